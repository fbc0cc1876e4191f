#include <cstring>

#include "base/raw_tensor.h"

namespace mantou {
namespace {

// E8M0 scales with which the largest code reaches 2^128: 12 · 2^(e − 128), and 448 · 2^(e − 127).
constexpr int kMxFp4Infinite = 253, kMxFp8Infinite = 247;

// Where a block type keeps its f16 scales: byte offsets in a block, -1 for none.
struct ScaleOffsets {
  int first, second;
};

ScaleOffsets scales_of(DType dtype) {
  switch (dtype) {
    case DType::kQ4_1:
    case DType::kQ5_1:
    case DType::kQ4_K:
    case DType::kQ5_K:
      return {0, 2};  // scale and minimum
    case DType::kQ6_K:
      return {208, -1};
    case DType::kQ2_K:
      return {80, 82};
    case DType::kQ3_K:
      return {108, -1};
    default:
      return {0, -1};
  }
}

// All exponent bits set: NaN or infinity.
template <class Bits>
bool all_finite(std::span<const std::byte> bytes, Bits exponent) {
  bool finite = true;
  for (size_t at = 0; at + sizeof(Bits) <= bytes.size(); at += sizeof(Bits)) {
    Bits bits;
    std::memcpy(&bits, bytes.data() + at, sizeof bits);
    finite &= (bits & exponent) != exponent;
  }
  return finite;
}

bool all_below(const RawTensor& bytes, int limit) {
  bool below = true;
  for (const std::byte byte : bytes.bytes) below &= std::to_integer<int>(byte) < limit;
  return below;
}

bool no_e4m3_nan(const RawTensor& bytes) {
  bool finite = true;
  for (const std::byte byte : bytes.bytes) finite &= (std::to_integer<int>(byte) & 127) != 127;
  return finite;
}

// MXFP4 blocks begin with their scale.
bool all_finite_mxfp4(const RawTensor& tensor) {
  const size_t block = size_t(dtype_info(tensor.dtype).block_bytes);
  bool finite = true;
  for (size_t at = 0; at + block <= tensor.bytes.size(); at += block)
    finite &= std::to_integer<int>(tensor.bytes[at]) < kMxFp4Infinite;
  return finite;
}

bool all_finite_blocks(const RawTensor& tensor) {
  if (tensor.dtype == DType::kMXFP4) return all_finite_mxfp4(tensor);
  const size_t block = size_t(dtype_info(tensor.dtype).block_bytes);
  const ScaleOffsets offsets = scales_of(tensor.dtype);
  bool finite = true;
  for (size_t at = 0; at + block <= tensor.bytes.size(); at += block)
    for (const int offset : {offsets.first, offsets.second}) {
      if (offset < 0) continue;
      finite &= all_finite<uint16_t>(tensor.bytes.subspan(at + size_t(offset), 2), 0x7c00);
    }
  return finite;
}

bool all_finite(const RawTensor& tensor) {
  switch (tensor.dtype) {
    case DType::kF64:
      return all_finite<uint64_t>(tensor.bytes, 0x7ff0000000000000u);
    case DType::kF32:
      return all_finite<uint32_t>(tensor.bytes, 0x7f800000u);
    case DType::kF16:
      return all_finite<uint16_t>(tensor.bytes, 0x7c00);
    case DType::kBF16:
      return all_finite<uint16_t>(tensor.bytes, 0x7f80);
    default:
      return !is_block_type(tensor.dtype) || all_finite_blocks(tensor);
  }
}

// A float mode. Scales are judged by the largest code, whether or not it is there.
bool all_finite_codes(const RawWeight& weight) {
  switch (weight.mode) {
    case QuantMode::kNvFp4:
      return no_e4m3_nan(*weight.scales);
    case QuantMode::kMxFp8:
      return no_e4m3_nan(weight.data) && all_below(*weight.scales, kMxFp8Infinite);
    default:
      return all_below(*weight.scales, kMxFp4Infinite);
  }
}

}  // namespace

bool is_finite(const RawWeight& weight) {
  if (weight.scales && !weight.affine()) return all_finite_codes(weight);
  return all_finite(weight.data) && (!weight.scales || all_finite(*weight.scales)) &&
         (!weight.biases || all_finite(*weight.biases));
}

}  // namespace mantou
