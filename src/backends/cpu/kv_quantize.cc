#include "backends/cpu/kv_quantize.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "backends/cpu/kernels/hadamard.h"
#include "base/half.h"

namespace mantou::cpu {
namespace {

constexpr float kLargest = 65504;  // of f16
constexpr uint16_t kNan = 0x7e00;  // of f16

// Where a plane of scales or biases lies: 0 and 1 of the keys, 2 and 3 of the values.
uint16_t* plane(const KvBlockLayout& layout, std::byte* section, int index) {
  return reinterpret_cast<uint16_t*>(section + layout.scale_offset) +
         size_t(index) * layout.groups * kBlockTokens;
}

// A code into lane `lane` of a row of codes; with 4 bits lanes i and i + 16 of each 32 share bytes.
void put(const KvBlockLayout& layout, std::byte* row, int lane, uint8_t code) {
  if (layout.bits == 8) {
    row[lane] = std::byte{code};
    return;
  }
  std::byte& both = row[lane / 32 * 16 + lane % 16];
  const bool high = lane % 32 >= 16;
  both = high ? (both & std::byte{0x0f}) | std::byte(code << 4)
              : (both & std::byte{0xf0}) | std::byte{code};
}

const float* turned(const float* head, int head_dim, float* into) {
  std::copy_n(head, head_dim, into);
  rotate_head(into, head_dim);
  return into;
}

void quantize_token(const KvBlockLayout& layout, std::byte* section, int slot, const float* k,
                    const float* v) {
  float turned_k[kMaxHeadDim], turned_v[kMaxHeadDim];
  if (layout.rotated) {
    k = turned(k, layout.head_dim, turned_k);
    v = turned(v, layout.head_dim, turned_v);
  }
  uint8_t codes[kMaxHeadDim];
  const size_t key_row = size_t(32) * layout.bits / 8;
  const size_t value_row = size_t(layout.value_stride) * layout.bits / 8;
  std::byte* const keys = section + size_t(slot / 32) * layout.head_dim * key_row;
  std::byte* const values = section + layout.value_offset + slot * value_row;
  for (int g = 0; g < layout.groups; g++) {
    const int first = g * layout.group, at = g * kBlockTokens + slot;
    const QuantizedGroup key = quantize_group(k + first, layout.group, layout.bits, codes);
    for (int i = 0; i < layout.group; i++)
      put(layout, keys + (first + i) * key_row, slot % 32, codes[i]);
    plane(layout, section, 0)[at] = key.scale;
    plane(layout, section, 1)[at] = key.bias;
    const QuantizedGroup value = quantize_group(v + first, layout.group, layout.bits, codes);
    for (int i = 0; i < layout.group; i++) put(layout, values, first + i, codes[i]);
    plane(layout, section, 2)[at] = value.scale;
    plane(layout, section, 3)[at] = value.bias;
  }
}

float element(KvType type, const std::byte* cells, size_t index) {
  uint16_t bits;
  float value;
  switch (type) {
    case KvType::kF16:
      std::memcpy(&bits, cells + 2 * index, 2);
      return f16_to_f32(bits);
    case KvType::kBF16:
      std::memcpy(&bits, cells + 2 * index, 2);
      return bf16_to_f32(bits);
    case KvType::kF32:
      break;
  }
  std::memcpy(&value, cells + 4 * index, 4);
  return value;
}

}  // namespace

QuantizedGroup quantize_group(const float* values, int n, int bits, uint8_t* codes) {
  float low = kLargest, high = -kLargest;
  bool nan = false;
  for (int i = 0; i < n; i++) {
    nan = nan || std::isnan(values[i]);
    const float x = std::clamp(values[i], -kLargest, kLargest);
    low = std::min(low, x);
    high = std::max(high, x);
  }
  if (nan) {
    std::fill_n(codes, n, uint8_t{0});
    return {kNan, kNan};
  }
  const float bins = float((1 << bits) - 1);
  const bool from_low = std::fabs(low) > std::fabs(high);
  float scale = std::max((high - low) / bins, 1e-7f);
  if (!from_low) scale = -scale;
  const float edge = from_low ? low : high;
  const float steps = std::nearbyint(edge / scale);
  if (steps != 0) scale = edge / steps;
  const QuantizedGroup group{f32_to_f16(scale), f32_to_f16(steps != 0 ? edge : 0.0f)};
  const float rounded = f16_to_f32(group.scale), bias = f16_to_f32(group.bias);
  for (int i = 0; i < n; i++) {
    const float x = std::clamp(values[i], -kLargest, kLargest);
    const float code = rounded == 0 ? 0.0f : std::nearbyint((x - bias) / rounded);
    codes[i] = uint8_t(std::clamp(code, 0.0f, bins));
  }
  return group;
}

void quantize_tokens(const KvBlockLayout& layout, std::byte* section, int slot, int count,
                     const float* k, const float* v, size_t stride) {
  for (int i = 0; i < count; i++)
    quantize_token(layout, section, slot + i, k + i * stride, v + i * stride);
}

void quantize_block(const KvBlockLayout& plain, const std::byte* from,
                    const KvBlockLayout& quantized, std::byte* to, int count) {
  float k[kMaxHeadDim] = {}, v[kMaxHeadDim] = {};
  for (int head = 0; head < plain.kv_heads; head++) {
    const std::byte* const section = from + head * plain.head_bytes;
    for (int token = 0; token < count; token++) {
      const size_t lane = size_t(token / 32) * 32 * plain.head_dim + token % 32;
      for (int d = 0; d < plain.head_dim; d++) {
        k[d] = element(plain.type, section, lane + size_t(d) * 32);
        v[d] = element(plain.type, section + plain.value_offset,
                       size_t(token) * plain.value_stride + d);
      }
      quantize_token(quantized, to + head * quantized.head_bytes, token, k, v);
    }
  }
}

}  // namespace mantou::cpu
