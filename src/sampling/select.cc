#include "sampling/select.h"

#include <algorithm>
#include <array>
#include <functional>

#include "sampling/math.h"

namespace mantou {
namespace {

constexpr size_t kSortable = 512;  // as many are sorted rather than counted
constexpr size_t kBuckets = 1024;
constexpr size_t kChunk = 256;

// Equal slices of [low, high], the highest values in bucket 0. Monotone, which is all that counts.
class Buckets {
 public:
  Buckets(float low, float high) : high_(high), scale_(kBuckets / (double(high) - low)) {}
  size_t of(float value) const { return std::min(kBuckets - 1, size_t((high_ - value) * scale_)); }

 private:
  double high_, scale_;
};

void weigh(std::span<const float> values, Weighing weighing, float max, std::span<double> out) {
  if (weighing == Weighing::kCount) {
    std::fill_n(out.begin(), values.size(), 1.0);
  } else {
    weights(values, max, 1.0, out);
  }
}

std::array<double, kBuckets> histogram(std::span<const float> values, const Buckets& buckets,
                                       Weighing weighing, float max) {
  std::array<double, kBuckets> sums{};
  std::array<double, kChunk> weight;
  for (size_t begin = 0; begin < values.size(); begin += kChunk) {
    const auto chunk = values.subspan(begin, std::min(kChunk, values.size() - begin));
    weigh(chunk, weighing, max, weight);
    for (size_t i = 0; i < chunk.size(); ++i) sums[buckets.of(chunk[i])] += weight[i];
  }
  return sums;
}

}  // namespace

float select_lowest(std::span<float> values, double target, Weighing weighing, float max) {
  double above = 0;  // weight of everything larger than `values`
  while (values.size() > kSortable) {
    const auto [low, high] = std::minmax_element(values.begin(), values.end());
    if (*low == *high) return *low;
    const Buckets buckets(*low, *high);
    const auto sums = histogram(values, buckets, weighing, max);
    size_t last = 0;
    while (last + 1 < kBuckets && above + sums[last] < target) above += sums[last++];
    const auto end = std::partition(values.begin(), values.end(),
                                    [&](float v) { return buckets.of(v) == last; });
    values = values.first(size_t(end - values.begin()));
  }
  std::sort(values.begin(), values.end(), std::greater<>());
  std::array<double, kSortable> weight;
  weigh(values, weighing, max, weight);
  size_t last = 0;
  while (last + 1 < values.size() && above + weight[last] < target) above += weight[last++];
  return values[last];
}

}  // namespace mantou
