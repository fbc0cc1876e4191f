// Nothing here reads the floating-point exception flags; g++ would keep the loops scalar for their
// sake.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("no-trapping-math")
#endif

#include "sampling/math.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>

// The loops below are element-wise or have eight explicit lanes, so wider registers change their
// speed and not their results. The loader picks a clone.
#if defined(__x86_64__) && defined(__linux__) && !defined(MANTOU_SANITIZED)
#define MANTOU_WIDE_CLONES __attribute__((target_clones("arch=x86-64-v4", "avx2", "default")))
#else
#define MANTOU_WIDE_CLONES
#endif

namespace mantou {
namespace {

constexpr double kLn2High = 0x1.62e42feep-1;  // 32 bits: k * kLn2High is exact
constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
constexpr size_t kLanes = 8;

// exp = 2^k * p(r) with x = k ln2 + r. p interpolates exp at the Chebyshev nodes of |r| <= ln2 / 2.
inline double exp_core(double x) {
  constexpr double kSmallest = -1023 * 0x1.62e42fefa39efp-1;  // its 2^k has exponent bits 0: zero
  constexpr double kRound = 0x1.8p52;  // adding it rounds to an integer, left in the low bits
  const double clamped = x > kSmallest ? x : kSmallest;
  const double shifted = clamped * 0x1.71547652b82fep0 + kRound;
  const double k = shifted - kRound;
  const double r = (clamped - k * kLn2High) - k * kLn2Low;
  double p = 0x1.28a2ca617b969p-22;
  p = p * r + 0x1.72fafebdaf273p-19;
  p = p * r + 0x1.a019a6611cad5p-16;
  p = p * r + 0x1.a01978b8b3d18p-13;
  p = p * r + 0x1.6c16c17f46982p-10;
  p = p * r + 0x1.1111112ddae8bp-7;
  p = p * r + 0x1.55555555520a4p-5;
  p = p * r + 0x1.555555554b736p-3;
  p = p * r + 0x1.0000000000005p-1;
  p = p * r + 0x1.000000000001ep+0;
  p = p * r + 1.0;
  return p * std::bit_cast<double>((std::bit_cast<uint64_t>(shifted) + 1023) << 52);
}

// Eight running sums, added in pairs: a fixed tree.
inline double add_block(const double* weight) {
  double lane[kLanes] = {};
  for (size_t i = 0; i < kBlock; i += kLanes) {
    for (size_t l = 0; l < kLanes; ++l) lane[l] += weight[i + l];
  }
  return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

}  // namespace

double exp_negative(double x) { return exp_core(x); }

double natural_log(double x) {
  // x = 2^k * m with m in [sqrt(1/2), sqrt(2)); ln m = 2 atanh(s), s = (m - 1) / (m + 1).
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  const uint64_t above = bits - 0x3fe6a09e667f3bcdu;  // sqrt(1/2)
  const double k = double(int64_t(above) >> 52);
  const double m = std::bit_cast<double>(bits - (above & 0xfff0000000000000u));
  const double s = (m - 1.0) / (m + 1.0);
  const double s2 = s * s;
  double series = 0;  // |s| < 0.172: the term after s^21 is below 1e-18
  for (int odd = 21; odd >= 3; odd -= 2) series = (series + 1.0 / odd) * s2;
  return k * kLn2High + (k * kLn2Low + 2.0 * (s + s * series));
}

MANTOU_WIDE_CLONES
void weights(std::span<const float> values, float max, double scale, std::span<double> out) {
  const float* v = values.data();
  double* w = out.data();
  const double m = max;
  for (size_t i = 0; i < values.size(); ++i) w[i] = exp_core((double(v[i]) - m) * scale);
}

MANTOU_WIDE_CLONES
double block_weights(std::span<const float> values, float max, double scale,
                     std::span<double> sums) {
  const double m = max;
  const size_t blocks = block_count(values.size());
  double total = 0;
  for (size_t block = 0; block < blocks; ++block) {
    const float* v = values.data() + block * kBlock;
    const size_t n = std::min(kBlock, values.size() - block * kBlock);
    double weight[kBlock] = {};  // a short last block adds zeros
    for (size_t i = 0; i < n; ++i) weight[i] = exp_core((double(v[i]) - m) * scale);
    sums[block] = add_block(weight);
    total += sums[block];
  }
  return total;
}

MANTOU_WIDE_CLONES
double weight_from(std::span<const float> values, float max, float lowest) {
  const double m = max;
  double weight[kBlock] = {};
  for (size_t i = 0; i < values.size(); ++i) {
    const double w = exp_core(double(values[i]) - m);
    weight[i] = values[i] >= lowest ? w : 0.0;
  }
  return add_block(weight);
}

MANTOU_WIDE_CLONES
Range range(std::span<const float> values) {
  float low[kLanes], high[kLanes];
  std::fill(low, low + kLanes, values[0]);
  std::fill(high, high + kLanes, values[0]);
  const size_t whole = values.size() / kLanes * kLanes;
  for (size_t i = 0; i < whole; i += kLanes) {
    for (size_t l = 0; l < kLanes; ++l) {
      low[l] = values[i + l] < low[l] ? values[i + l] : low[l];
      high[l] = values[i + l] > high[l] ? values[i + l] : high[l];
    }
  }
  for (const float v : values.subspan(whole)) {
    low[0] = std::min(low[0], v);
    high[0] = std::max(high[0], v);
  }
  return {*std::min_element(low, low + kLanes), *std::max_element(high, high + kLanes)};
}

MANTOU_WIDE_CLONES
void slice_of(std::span<const float> values, Range range, int slices, std::span<int32_t> out) {
  const double high = range.high;
  const double scale = slices / (high - double(range.low));
  const float* v = values.data();
  int32_t* slice = out.data();
  const size_t n = values.size();
  for (size_t i = 0; i < n; ++i) {
    const int32_t index = int32_t((high - double(v[i])) * scale);
    slice[i] = index < slices - 1 ? index : slices - 1;
  }
}

MANTOU_WIDE_CLONES
bool block_maxima(std::span<const float> values, std::span<float> maxima) {
  const size_t blocks = block_count(values.size());
  uint32_t not_a_number = 0;
  for (size_t block = 0; block < blocks; ++block) {
    const float* v = values.data() + block * kBlock;
    const size_t n = std::min(kBlock, values.size() - block * kBlock);
    float lane[kLanes];
    std::fill(lane, lane + kLanes, -std::numeric_limits<float>::infinity());
    uint32_t bad[kLanes] = {};
    size_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      for (size_t l = 0; l < kLanes; ++l) {
        lane[l] = v[i + l] > lane[l] ? v[i + l] : lane[l];
        bad[l] |= v[i + l] != v[i + l] ? 1u : 0u;
      }
    }
    for (size_t l = 0; i < n; ++i, ++l) {
      lane[l] = v[i] > lane[l] ? v[i] : lane[l];
      bad[l] |= v[i] != v[i] ? 1u : 0u;
    }
    float best = lane[0];
    for (size_t l = 0; l < kLanes; ++l) {
      best = std::max(best, lane[l]);
      not_a_number |= bad[l];
    }
    maxima[block] = best;
  }
  return not_a_number == 0;
}

}  // namespace mantou
