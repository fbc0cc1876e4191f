#include "sampling/select.h"

#include <algorithm>
#include <array>
#include <functional>

#include "sampling/math.h"

namespace mantou {
namespace {

constexpr size_t kSortable = 512;  // as many are sorted rather than counted
constexpr int kSlices = 1024;
constexpr size_t kChunk = 256;

void weigh(std::span<const float> values, Weighing weighing, float max, std::span<double> out) {
  if (weighing == Weighing::kCount) {
    std::fill_n(out.begin(), values.size(), 1.0);
  } else {
    weights(values, max, 1.0, out);
  }
}

using Histogram = std::array<double, kSlices>;

Histogram histogram(std::span<const float> values, Range range, Weighing weighing, float max) {
  Histogram sums{};
  std::array<double, kChunk> weight;
  std::array<int32_t, kChunk> slice;
  for (size_t begin = 0; begin < values.size(); begin += kChunk) {
    const auto chunk = values.subspan(begin, std::min(kChunk, values.size() - begin));
    weigh(chunk, weighing, max, weight);
    slice_of(chunk, range, kSlices, slice);
    for (size_t i = 0; i < chunk.size(); ++i) sums[size_t(slice[i])] += weight[i];
  }
  return sums;
}

// Moves the values of one slice to the front.
std::span<float> only_slice(std::span<float> values, Range range, int32_t wanted) {
  size_t count = 0;
  std::array<int32_t, kChunk> slice;
  for (size_t begin = 0; begin < values.size(); begin += kChunk) {
    const auto chunk = values.subspan(begin, std::min(kChunk, values.size() - begin));
    slice_of(chunk, range, kSlices, slice);
    for (size_t i = 0; i < chunk.size(); ++i) {
      values[count] = chunk[i];
      count += slice[i] == wanted ? 1 : 0;
    }
  }
  return values.first(count);
}

}  // namespace

float select_lowest(std::span<float> values, double target, Weighing weighing, float max) {
  double above = 0;  // weight of everything larger than `values`
  while (values.size() > kSortable) {
    const Range all = range(values);
    if (all.low == all.high) return all.low;
    const Histogram sums = histogram(values, all, weighing, max);
    int last = 0;
    while (last + 1 < kSlices && above + sums[size_t(last)] < target) above += sums[size_t(last++)];
    values = only_slice(values, all, last);
  }
  std::sort(values.begin(), values.end(), std::greater<>());
  std::array<double, kSortable> weight;
  weigh(values, weighing, max, weight);
  size_t last = 0;
  while (last + 1 < values.size() && above + weight[last] < target) above += weight[last++];
  return values[last];
}

}  // namespace mantou
