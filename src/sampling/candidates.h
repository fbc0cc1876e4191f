// The tokens of one step that may still be drawn: all of them after reset(), fewer after each
// filter. Kept in token order with their logits, so that a draw walks the vocabulary the same way
// whatever filters ran. Owned by one Sampler, used on its thread; allocates only in its
// constructor.
//
// Weights are exp(logit - max()), in double precision. Tokens of logit -inf do not count.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "engine/request.h"
#include "sampling/math.h"

namespace mantou {

class Candidates {
 public:
  explicit Candidates(size_t vocab_size);

  // Starts over with every token; `logits` must stay as they are until the next reset.
  // Error kNumerical: a logit is NaN or +inf.
  void reset(std::span<const float> logits);

  size_t size() const { return values_.size(); }  // right after reset, those of logit -inf included
  bool none() const;                              // no token has any weight
  float max() const { return max_; }
  TokenId best() const;  // the lowest id of logit max()
  double total();        // sum of all weights

  // The `n` largest logits, largest first, lower ids first where equal; fewer if fewer have weight.
  void largest(size_t n, std::vector<TokenLogprob>& out) const;

  size_t count_from(double lowest) const;  // tokens of logit >= lowest
  float lowest_above(double limit) const;  // the smallest logit > limit; +inf if there is none
  void keep_from(double lowest);           // drops tokens of logit < lowest
  void keep_top(size_t k);                 // the k largest; lower ids first where equal
  void keep_nucleus(double p);             // the fewest of largest weight that hold p of the total;
                                           // tokens equal to the last one stay with it
  // Drops tokens of logit > highest, except those listed (ascending).
  void drop_above(float highest, std::span<const TokenId> except);

  // Inverse of the distribution function of weight^(1/temperature) at `uniform` in [0, 1).
  TokenId draw(double uniform, double temperature);

 private:
  template <class Keep>
  void compact(double lowest_block_max, Keep keep);
  float reached_by(size_t k);
  bool hold(double target, float lowest) const;
  void summarize();
  TokenId id_at(size_t index) const { return whole_ ? TokenId(index) : ids_[index]; }
  std::span<float> finite_copy();

  const size_t vocab_size_;
  std::span<const float> values_;  // logits of the candidates
  bool whole_ = true;              // values_ is the caller's row and an index is a token id
  float max_ = 0;
  std::optional<double> total_;

  // Untouched pages of the large buffers cost nothing until a filter keeps that many tokens.
  std::unique_ptr<TokenId[]> ids_;
  std::unique_ptr<float[]> kept_, scratch_;  // [vocab_size]
  std::vector<float> maxima_;                // per block of values_
  std::vector<double> sums_;                 // likewise, of weights
};

}  // namespace mantou
