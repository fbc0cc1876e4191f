#include "backends/cpu/routing.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace mantou::cpu {
namespace {

// exp(score − largest) of the listed experts.
std::vector<double> exponentials(std::span<const float> scores, std::span<const int> experts) {
  double largest = -INFINITY;
  for (const int e : experts) largest = std::max(largest, double(scores[size_t(e)]));
  std::vector<double> out;
  for (const int e : experts) out.push_back(std::exp(double(scores[size_t(e)]) - largest));
  return out;
}

double sum(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

}  // namespace

std::vector<std::vector<Assignment>> route(std::span<const float> scores, const MoeSpec& spec) {
  const size_t experts = size_t(spec.experts.count), chosen = size_t(spec.top_k);
  const auto tokens = int64_t(scores.size() / experts);
  std::vector<std::vector<Assignment>> work(experts);
  std::vector<int> order(experts);
  for (int64_t t = 0; t < tokens; t++) {
    const std::span<const float> s = scores.subspan(size_t(t) * experts, experts);
    std::iota(order.begin(), order.end(), 0);
    const auto better = [&](int a, int b) {
      const float x = s[size_t(a)], y = s[size_t(b)];
      if (std::isnan(x) || std::isnan(y))
        return std::isnan(x) == std::isnan(y) ? a < b : std::isnan(y);
      return x != y ? x > y : a < b;
    };
    std::partial_sort(order.begin(), order.begin() + ptrdiff_t(chosen), order.end(), better);
    const std::span<const int> top(order.data(), chosen);
    std::vector<double> weights = exponentials(s, top);
    double total = sum(weights);
    if (spec.weights == MoeSpec::Weights::kOfAll) {
      std::vector<int> all(experts);
      std::iota(all.begin(), all.end(), 0);
      total = sum(exponentials(s, all));
    }
    for (size_t i = 0; i < chosen; i++)
      work[size_t(top[i])].push_back({t, float(weights[i] / total)});
  }
  return work;
}

}  // namespace mantou::cpu
