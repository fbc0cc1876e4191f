// How 64 tokens of one layer lie in memory: the unit of sharing, of growth and of attention.
//
// A block is a sequence of kv_heads sections, each 64-byte aligned:
// - keys [2][head_dim][32]: lanes are tokens, 0 … 31 in the first half, 32 … 63 in the second;
// - values [64][value_stride]: lanes are dimensions, padded to a multiple of 16;
// so that attention reads whole vectors of 16 elements and never past a section. Cells of tokens
// that were not appended, and the padding, hold anything, NaN included.
//
// Quantized blocks hold codes instead of elements: bytes of the same shapes, or, with 4 bits, bytes
// of two codes, the low one of lane i and the high one of lane i + 16 of each 32. Behind them lie
// four planes [groups][64] of f16, lanes are tokens: scales and biases of the keys, scales and
// biases of the values. An element is code · scale + bias of its token and group; with 8 bits, an
// element of the rotated head.
#pragma once

#include <cstddef>

#include "tensor/layer_state.h"

namespace mantou::cpu {

constexpr int kBlockTokens = 64;
constexpr int kMaxHeadDim = 512;

struct KvBlockLayout {
  KvType type = KvType::kF16;
  int kv_heads = 0;
  int head_dim = 0;
  int value_stride = 0;     // elements between the values of two tokens
  size_t value_offset = 0;  // bytes from a head's keys to its values
  int bits = 0;             // of codes; 0: elements of `type`
  int group = 0;            // dimensions that share scale and bias
  int groups = 0;
  bool rotated = false;     // codes are of the rotated head (kernels/hadamard.h): with 8 bits
  size_t scale_offset = 0;  // bytes from a head's keys to the planes
  size_t head_bytes = 0;    // bytes of a head's section
  size_t block_bytes = 0;
};

// Of plain blocks. Error (kUnsupported) when spec.head_dim is not in 1 … kMaxHeadDim or a count is
// not positive.
KvBlockLayout kv_block_layout(const StateSpec& spec);

// Of blocks quantized as spec.quant says. kUnsupported as above, and for heads that have no groups
// of that size.
KvBlockLayout kv_quantized_layout(const StateSpec& spec);

}  // namespace mantou::cpu
