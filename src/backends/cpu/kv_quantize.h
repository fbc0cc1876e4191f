// Writing keys and values into quantized blocks (kv_block.h), in plain C++: the same bytes on every
// machine. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/cpu/kv_block.h"

namespace mantou::cpu {

// MLX's affine quantization of n values: code · scale + bias, with the value of largest magnitude
// on a code. Scale and bias are rounded to f16 before the codes are chosen. Values beyond ±65504
// count as ±65504; a group that holds NaN becomes NaN. codes: n bytes below 2^bits.
struct QuantizedGroup {
  uint16_t scale, bias;  // f16
};
QuantizedGroup quantize_group(const float* values, int n, int bits, uint8_t* codes);

// Heads are rotated before they are quantized where the layout says so.
//
// Tokens slot … slot + count − 1 of one head's section; k, v: [count][stride] from their first.
void quantize_tokens(const KvBlockLayout& layout, std::byte* section, int slot, int count,
                     const float* k, const float* v, size_t stride);

// The first `count` tokens of a plain block, quantized into another.
void quantize_block(const KvBlockLayout& plain, const std::byte* from,
                    const KvBlockLayout& quantized, std::byte* to, int count);

}  // namespace mantou::cpu
