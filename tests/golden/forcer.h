// Token sequences forced through a model on the cpu backend, several rows a step, for their logits.
#pragma once

#include <algorithm>
#include <filesystem>
#include <memory>
#include <vector>

#include "backends/cpu/cpu_backend.h"
#include "hub/model_artifact.h"
#include "models/registry.h"

namespace mantou::golden {

using Logits = std::vector<float>;

class Forcer {
 public:
  Forcer(const std::filesystem::path& file, int threads, KvType kv)
      : artifact_(hub::ModelArtifact::open(file)),
        backend_(cpu::make_cpu_backend({threads, false})),
        model_(models::load_model(*artifact_, *backend_)),
        kv_(kv) {}

  int vocab() const { return model_->info().vocab; }

  // All sequences together: each step forwards min(chunk, left) tokens of a row that is still
  // before its last `tail` tokens, one of a row that is among them. Result: for each sequence the
  // logits after the token before the tail and after each token of the tail.
  std::vector<std::vector<Logits>> run(const std::vector<std::vector<int32_t>>& sequences,
                                       int chunk, size_t tail) {
    States states;
    for (const StateSpec& spec : model_->state_specs(kv_)) {
      states.push_back(backend_->make_state(spec));
      for (size_t i = 0; i < sequences.size(); i++) states.back()->add_row();
    }
    std::vector<std::vector<Logits>> logits(sequences.size());
    std::vector<size_t> done(sequences.size(), 0);
    for (Step step; gather(sequences, chunk, tail, done, step); step = {})
      forward(step, states, logits);
    return logits;
  }

 private:
  using States = std::vector<std::unique_ptr<LayerState>>;

  struct Step {
    StepLayout layout;
    std::vector<int32_t> tokens;
    std::vector<HeadRequest> requests;
    std::vector<size_t> owners;  // of the requests
  };

  static bool gather(const std::vector<std::vector<int32_t>>& sequences, int chunk, size_t tail,
                     std::vector<size_t>& done, Step& step) {
    for (size_t r = 0; r < sequences.size(); r++) {
      const std::vector<int32_t>& ids = sequences[r];
      const size_t prompt = ids.size() - tail;
      if (done[r] == ids.size()) continue;
      const size_t count = done[r] < prompt ? std::min(size_t(chunk), prompt - done[r]) : 1;
      step.layout.rows.push_back({int(r), int(step.tokens.size()), int(count), int64_t(done[r])});
      const auto begin = ids.begin() + ptrdiff_t(done[r]);
      step.tokens.insert(step.tokens.end(), begin, begin + ptrdiff_t(count));
      done[r] += count;
      if (done[r] < prompt) continue;
      step.requests.push_back({int(step.tokens.size()) - 1, HeadRequest::Want::kLogits});
      step.owners.push_back(r);
    }
    step.layout.total_tokens = int(step.tokens.size());
    return !step.tokens.empty();
  }

  void forward(const Step& step, States& states, std::vector<std::vector<Logits>>& logits) {
    for (auto& state : states) state->begin_step(step.layout);
    backend_->begin_step(step.layout);
    const Tensor hidden = model_->forward(*backend_, step.tokens, states, nullptr);
    const std::vector<Score> scores = backend_->head(hidden, model_->head(), step.requests);
    for (size_t i = 0; i < scores.size(); i++)
      logits[step.owners[i]].emplace_back(scores[i].logits.begin(), scores[i].logits.end());
    backend_->end_step();
    for (auto& state : states) state->commit_step();
  }

  std::unique_ptr<hub::ModelArtifact> artifact_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<models::Model> model_;
  KvType kv_;
};

}  // namespace mantou::golden
