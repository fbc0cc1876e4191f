// The tokenizer of a GGUF file, from its metadata. Stateless; any thread.
#pragma once

#include "base/tokenizer_source.h"
#include "hub/gguf.h"

namespace mantou::hub {

// Without tokenizer.ggml.tokens the source has no vocabulary. Errors name file and key.
TokenizerSource gguf_tokenizer(const GgufFile& file);

}  // namespace mantou::hub
