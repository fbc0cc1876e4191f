// The tokenizer of whatever a driver is given.
#pragma once

#include <string>

#include "base/file.h"
#include "hub/gguf.h"
#include "hub/gguf_tokenizer.h"
#include "hub/model_artifact.h"
#include "text/tokenizer.h"

namespace mantou {

// Of a GGUF file, a model directory or a tokenizer.json.
inline TokenizerSource read_tokenizer(const std::string& model) {
  if (model.ends_with(".gguf")) return hub::gguf_tokenizer(*hub::GgufFile::open(model));
  if (!model.ends_with(".json")) return hub::ModelArtifact::open(model)->tokenizer();
  TokenizerSource source;
  source.origin = model;
  source.tokenizer_json = read_file(model);
  return source;
}

}  // namespace mantou
