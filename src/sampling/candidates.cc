#include "sampling/candidates.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "sampling/select.h"

namespace mantou {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr size_t kNucleusGuesses[] = {16, 256};  // blocks whose maxima are looked at
constexpr double kMaxScale = 1e300;              // of 1 / temperature: 0 * scale must stay 0

size_t first_nan(std::span<const float> values) {
  return size_t(std::find_if(values.begin(), values.end(), [](float v) { return std::isnan(v); }) -
                values.begin());
}

}  // namespace

Candidates::Candidates(size_t vocab_size)
    : vocab_size_(vocab_size),
      ids_(std::make_unique_for_overwrite<TokenId[]>(vocab_size)),
      kept_(std::make_unique_for_overwrite<float[]>(vocab_size)),
      scratch_(std::make_unique_for_overwrite<float[]>(vocab_size)),
      maxima_(block_count(vocab_size)),
      sums_(block_count(vocab_size)) {}

void Candidates::reset(std::span<const float> logits) {
  if (logits.size() != vocab_size_) {
    fail(ErrorCode::kInternal, "a row of {} logits for a vocabulary of {}", logits.size(),
         vocab_size_);
  }
  values_ = logits;
  whole_ = true;
  if (!block_maxima(values_, maxima_)) {
    fail(ErrorCode::kNumerical, "the logits are not numbers: NaN at token {} of {}",
         first_nan(values_), vocab_size_);
  }
  summarize();
  if (max_ == kInfinity) {
    fail(ErrorCode::kNumerical, "the logits overflowed: infinity at token {} of {}", best(),
         vocab_size_);
  }
}

bool Candidates::none() const { return max_ == -kInfinity; }

TokenId Candidates::best() const {
  const size_t blocks = block_count(values_.size());
  const size_t block =
      size_t(std::find(maxima_.begin(), maxima_.begin() + blocks, max_) - maxima_.begin());
  return id_at(
      size_t(std::find(values_.begin() + block * kBlock, values_.end(), max_) - values_.begin()));
}

double Candidates::total() {
  if (!total_) total_ = block_weights(values_, max_, 1.0, sums_);
  return *total_;
}

void Candidates::largest(size_t n, std::vector<TokenLogprob>& out) const {
  out.clear();
  if (n == 0) return;
  const auto larger = [](const TokenLogprob& a, const TokenLogprob& b) {
    return a.logprob > b.logprob;
  };
  float lowest = -kInfinity;  // of the n largest so far; an equal one of a higher id stays out
  for (size_t i = 0; i < values_.size(); ++i) {
    if (i % kBlock == 0 && maxima_[i / kBlock] <= lowest) {
      i += kBlock - 1;
      continue;
    }
    if (values_[i] <= lowest) continue;
    const TokenLogprob entry{id_at(i), values_[i]};
    if (out.size() == n) out.pop_back();
    out.insert(std::upper_bound(out.begin(), out.end(), entry, larger), entry);
    if (out.size() == n) lowest = out.back().logprob;
  }
}

size_t Candidates::count_from(double lowest) const {
  size_t count = 0;
  for (size_t block = 0; block < block_count(size()); ++block) {
    if (maxima_[block] < lowest) continue;
    const size_t end = std::min((block + 1) * kBlock, size());
    for (size_t i = block * kBlock; i < end; ++i) count += values_[i] >= lowest;
  }
  return count;
}

float Candidates::lowest_above(double limit) const {
  float lowest = kInfinity;
  for (size_t block = 0; block < block_count(size()); ++block) {
    if (maxima_[block] <= limit) continue;
    const size_t end = std::min((block + 1) * kBlock, size());
    for (size_t i = block * kBlock; i < end; ++i) {
      if (values_[i] > limit && values_[i] < lowest) lowest = values_[i];
    }
  }
  return lowest;
}

// Keeps what `keep(value, id)` accepts, without looking into blocks whose maximum is lower than
// `lowest_block_max`. Entries only move towards the front, so it may run in place.
template <class Keep>
void Candidates::compact(double lowest_block_max, Keep keep) {
  const float* const values = values_.data();
  float* const kept = kept_.get();
  TokenId* const ids = ids_.get();
  const bool whole = whole_;
  size_t count = 0;
  for (size_t block = 0; block < block_count(size()); ++block) {
    if (maxima_[block] < lowest_block_max) continue;
    const size_t end = std::min((block + 1) * kBlock, size());
    for (size_t i = block * kBlock; i < end; ++i) {
      const float value = values[i];
      const TokenId id = whole ? TokenId(i) : ids[i];
      kept[count] = value;
      ids[count] = id;
      count += keep(value, id) ? 1 : 0;
    }
  }
  values_ = {kept_.get(), count};
  whole_ = false;
  block_maxima(values_, maxima_);
  summarize();
}

void Candidates::summarize() {
  const auto end = maxima_.begin() + ptrdiff_t(block_count(size()));
  max_ = end == maxima_.begin() ? -kInfinity : *std::max_element(maxima_.begin(), end);
  total_.reset();
}

// The logits of tokens that have weight, in scratch memory.
std::span<float> Candidates::finite_copy() {
  size_t count = 0;
  for (const float value : values_) {
    scratch_[count] = value;
    count += value > -kInfinity ? 1 : 0;
  }
  return {scratch_.get(), count};
}

void Candidates::keep_from(double lowest) {
  const double finite = std::max(lowest, double(std::numeric_limits<float>::lowest()));
  compact(finite, [finite](float value, TokenId) { return value >= finite; });
}

// A logit that at least k candidates reach: the k-th largest block maximum.
float Candidates::reached_by(size_t k) {
  const size_t blocks = block_count(size());
  if (k > blocks) return std::numeric_limits<float>::lowest();
  float* maxima = scratch_.get();
  std::copy_n(maxima_.begin(), blocks, maxima);
  std::nth_element(maxima, maxima + k - 1, maxima + blocks, std::greater<>());
  return maxima[k - 1];
}

// True if the tokens of logit >= lowest hold `target` of the weight.
bool Candidates::hold(double target, float lowest) const {
  double sum = 0;
  for (size_t block = 0; block < block_count(size()) && sum < target; ++block) {
    if (maxima_[block] < lowest) continue;
    const size_t begin = block * kBlock;
    sum += weight_from(values_.subspan(begin, std::min(kBlock, size() - begin)), max_, lowest);
  }
  return sum >= target;
}

void Candidates::keep_top(size_t k) {
  if (k <= block_count(size())) keep_from(reached_by(k));
  if (k >= size()) return;
  const float last = select_lowest(finite_copy(), double(k), Weighing::kCount, max_);
  size_t equal = k - count_from(std::nextafter(double(last), double(kInfinity)));
  compact(last, [&equal, last](float value, TokenId) {
    if (value != last) return value > last;
    if (equal == 0) return false;
    --equal;
    return true;
  });
}

void Candidates::keep_nucleus(double p) {
  const double target = p * total();
  // Usually a few tokens hold it: look at the largest ones only.
  for (const size_t k : kNucleusGuesses) {
    const float lowest = reached_by(k);
    if (!hold(target, lowest)) continue;
    keep_from(lowest);
    break;
  }
  keep_from(select_lowest(finite_copy(), target, Weighing::kExponential, max_));
}

void Candidates::drop_above(float highest, std::span<const TokenId> except) {
  compact(std::numeric_limits<float>::lowest(), [highest, except](float value, TokenId id) {
    return value <= highest || std::binary_search(except.begin(), except.end(), id);
  });
}

TokenId Candidates::draw(double uniform, double temperature) {
  const double scale = std::min(1.0 / temperature, kMaxScale);
  const double target = uniform * block_weights(values_, max_, scale, sums_);
  const size_t blocks = block_count(size());
  double below = 0;
  size_t block = 0;
  size_t last_block = 0;  // the last one of any weight, should rounding carry past all of them
  for (; block < blocks; ++block) {
    if (below + sums_[block] > target) break;
    below += sums_[block];
    if (sums_[block] > 0) last_block = block;
  }
  if (block == blocks) block = last_block;

  double weight[kBlock];
  const size_t begin = block * kBlock;
  const size_t count = std::min(kBlock, size() - begin);
  weights(values_.subspan(begin, count), max_, scale, weight);
  size_t chosen = 0;
  for (size_t i = 0; i < count; ++i) {
    if (weight[i] == 0) continue;
    chosen = i;
    below += weight[i];
    if (below > target) break;
  }
  return id_at(begin + chosen);
}

}  // namespace mantou
