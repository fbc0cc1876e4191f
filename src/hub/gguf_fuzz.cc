// Any bytes as a GGUF file: either an Error, or an artifact whose every tensor can be decoded.
#include <memory>
#include <string>

#include "base/error.h"
#include "hub/artifact_base.h"
#include "hub/config_reader.h"

namespace {

using namespace mantou;
using namespace mantou::hub;

constexpr int64_t kLongestRow = 1 << 16;

void decode_ends(const RawWeight& weight) {
  if (weight.cols > kLongestRow) return;
  std::vector<float> row(size_t(weight.cols));
  decode_row(weight, 0, row);
  decode_row(weight, weight.rows - 1, row);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    const auto bytes =
        std::make_shared<const std::string>(reinterpret_cast<const char*>(data), size);
    const auto file = GgufFile::parse(std::as_bytes(std::span(*bytes)), "input.gguf", bytes);
    for (const RawTensor& tensor : file->tensors()) decode_ends(plain_weight(tensor));
    const auto artifact = make_gguf_artifact(*file, "input.gguf");
    config_reader(*artifact).get_int("num_hidden_layers", 1, 1 << 30);
    for (const char* projection : {"q_proj", "k_proj"}) {
      const std::string module = std::string("layers.0.self_attn.") + projection;
      if (artifact->has(module + ".bias")) artifact->tensor(module + ".bias");
      if (artifact->has(module + ".weight")) decode_ends(artifact->weight(module));
    }
    artifact->unused();
    artifact->tokenizer();
  } catch (const Error&) {
  }
  return 0;
}
