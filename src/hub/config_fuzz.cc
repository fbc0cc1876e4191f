// Any two texts, parted by a NUL, as config.json and tokenizer_config.json: nothing but an Error.
#include <string>
#include <string_view>

#include "base/error.h"
#include "hub/config_reader.h"
#include "hub/directory_config.h"
#include "hub/json_file.h"
#include "hub/mlx_quantization.h"

namespace {

using namespace mantou;
using namespace mantou::hub;
using nlohmann::json;

RawTensor zeros(DType dtype, std::vector<int64_t> shape) {
  static const std::vector<std::byte> kZeros(1024);
  RawTensor tensor;
  tensor.dtype = dtype;
  tensor.shape = std::move(shape);
  tensor.bytes = std::span(kZeros).first(dtype_bytes(dtype, size_t(tensor.elements())));
  return tensor;
}

void read_config(std::string_view text) {
  json config = lift_text_config(parse_json(text, "config.json"), "config.json");
  expand_rope_parameters(config, "config.json");
  std::vector<int32_t> end_ids;
  add_end_ids(config, "config.json", vocabulary_size(config, "config.json"), end_ids);
  const ConfigReader reader(config, "config.json");
  reader.get_int("hidden_size", 1, 1 << 20, 64);
  reader.get_double("rope_theta", 1, 1e12, 1e4);
  reader.get_bool("tie_word_embeddings", true);
  reader.get_string_array("layer_types", 1024);
  if (const auto rope = reader.get_object("rope_scaling")) rope->get_string("rope_type", "default");
  const auto quantization = MlxQuantization::parse(config, "config.json");
  const auto decode = [&](const char* module, const RawTensor& scales, const RawTensor* biases) {
    const RawWeight weight =
        quantization.weight(module, zeros(DType::kU32, {2, 16}), scales, biases);
    std::vector<float> row(size_t(weight.cols));
    decode_row(weight, 1, row);
  };
  const RawTensor floats = zeros(DType::kF16, {2, 2}), bytes = zeros(DType::kU8, {2, 4});
  try {
    decode("head", bytes, nullptr);
  } catch (const Error&) {
  }
  decode("norm", floats, &floats);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t split = input.find('\0');
  try {
    read_config(input.substr(0, split));
  } catch (const Error&) {
  }
  if (split == std::string_view::npos) return 0;
  try {
    TokenizerSource source;
    read_tokenizer_config(parse_json(input.substr(split + 1), "tokenizer_config.json"),
                          "tokenizer_config.json", source);
  } catch (const Error&) {
  }
  return 0;
}
