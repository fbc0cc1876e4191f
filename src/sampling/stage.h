// The stages of sampling: processors edit a row's logits, filters drop candidates. Each lives in
// one file that ends with the stage's description, and has one line in the table of stages.cc,
// whose order is the order of execution. A stage belongs to one Sampler and keeps nothing between
// steps but its settings, so that any step can be sampled again.
#pragma once

#include <limits>
#include <memory>
#include <span>
#include <string_view>

#include "engine/request.h"
#include "sampling/candidates.h"
#include "sampling/rng.h"

namespace mantou {

// What a row's stages are made from; only valid while they are made.
struct StageInput {
  const SamplingParams& params;
  const Limits& limits;
  std::span<const TokenId> end_ids;
  int vocab_size;
};

struct Step {
  int64_t index;                      // tokens the row generated before this one
  std::span<const TokenId> history;   // prompt and generated tokens, oldest first
  std::span<const uint32_t> allowed;  // bit id % 32 of word id / 32: the grammar takes it; or empty
  ThreefryKey filter_key;             // for a filter that draws
};

class Processor {
 public:
  virtual ~Processor() = default;
  virtual void apply(std::span<float> logits, const Step& step) = 0;
  // May change logits at `step` or later even without a grammar.
  virtual bool edits_from(int64_t step) const = 0;
};

class Filter {
 public:
  virtual ~Filter() = default;
  virtual void apply(Candidates& candidates, const Step& step) = 0;
  virtual bool draws() const { return false; }  // uses Step::filter_key
};

// `validate` throws kInvalidArgument for settings out of range; `make` gives nothing when the stage
// is off for these settings.
template <class Stage>
struct StageEntry {
  std::string_view name;
  void (*validate)(const SamplingParams&, const Limits&);
  std::unique_ptr<Stage> (*make)(const StageInput&);
};

using ProcessorEntry = StageEntry<Processor>;
using FilterEntry = StageEntry<Filter>;

std::span<const ProcessorEntry* const> processor_table();
std::span<const FilterEntry* const> filter_table();

// For validate: NaN and values outside [low, high] are errors that name `field` and the range.
inline constexpr double kUnbounded = std::numeric_limits<float>::max();  // settings become f32
void check_range(std::string_view field, double value, double low, double high);
// For make: every id must be in the vocabulary.
void check_ids(std::string_view field, std::span<const TokenId> ids, int vocab_size);

}  // namespace mantou
