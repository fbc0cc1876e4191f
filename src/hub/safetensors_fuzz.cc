// Any bytes as a safetensors file: either an Error, or tensors whose every byte can be read.
#include <numeric>
#include <string>

#include "base/error.h"
#include "hub/safetensors.h"
#include "hub/tensor_table.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace mantou;
  try {
    const auto bytes = std::as_bytes(std::span(data, size));
    for (const RawTensor& tensor : hub::parse_safetensors(bytes, "input", nullptr)) {
      const RawWeight weight = hub::plain_weight(tensor);
      std::vector<float> row(size_t(weight.cols));
      for (const int64_t i : {int64_t{0}, weight.rows - 1}) decode_row(weight, i, row);
    }
  } catch (const Error&) {
  }
  return 0;
}
