// Exponential, logarithm and sums of exponentials in double precision for distributions over a
// vocabulary. Only additions, multiplications, divisions and bit operations in a fixed order, none
// from libm: the results are the same bits on every machine that has IEEE doubles. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace mantou {

// Tokens a block sum or block maximum covers; sums are taken inside a block first, then over
// blocks.
inline constexpr size_t kBlock = 64;

constexpr size_t block_count(size_t n) { return (n + kBlock - 1) / kBlock; }

// exp(x) for x <= 0, relative error below 1e-15; 0 where it would be
// subnormal (below about -708).
double exp_negative(double x);

// ln(x) for finite normal x > 0, error below 1e-15 of max(1, |ln x|).
double natural_log(double x);

// Weight of each value relative to the largest: exp((value - max) * scale), for values <= max,
// which may be -inf but not NaN; 0 < scale < inf.
void weights(std::span<const float> values, float max, double scale, std::span<double> out);

// The same, summed per block into sums[block_count(n)]; returns their sum in block order.
double block_weights(std::span<const float> values, float max, double scale,
                     std::span<double> sums);

// Sum of the weights (scale 1) of at most kBlock values, those below `lowest` left out.
double weight_from(std::span<const float> values, float max, float lowest);

struct Range {
  float low, high;
};
// Smallest and largest of `values`, which are not empty and hold no NaN.
Range range(std::span<const float> values);

// Which of `slices` equal parts of the range a value lies in, the highest values in slice 0;
// monotone.
void slice_of(std::span<const float> values, Range range, int slices, std::span<int32_t> out);

// Maximum of each block into maxima[block_count(n)]; false if a value is NaN.
bool block_maxima(std::span<const float> values, std::span<float> maxima);

}  // namespace mantou
