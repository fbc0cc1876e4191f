// docs/determinism.md on real models: a row's logits are the same bits alone or with seven others,
// with any chunking of its prompt, with any number of threads and on every instruction set.
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <random>

#include "backends/cpu/cpu_backend.h"
#include "hub/model_artifact.h"
#include "models/registry.h"
#include "tests/golden/models.h"

namespace mantou::golden {
namespace {

using Logits = std::vector<float>;

constexpr int kDecodeSteps = 6;

// Forces token sequences through a model and collects the logits after the prompt and after each of
// the last kDecodeSteps tokens.
class Forcer {
 public:
  Forcer(const std::filesystem::path& file, int threads, KvType kv)
      : artifact_(hub::ModelArtifact::open(file)),
        backend_(cpu::make_cpu_backend({threads, false})),
        model_(models::load_model(*artifact_, *backend_)),
        kv_(kv) {}

  int vocab() const { return model_->info().vocab; }

  std::vector<std::vector<Logits>> run(const std::vector<std::vector<int32_t>>& sequences,
                                       int chunk) {
    std::vector<std::unique_ptr<LayerState>> states;
    for (const StateSpec& spec : model_->state_specs(kv_)) {
      states.push_back(backend_->make_state(spec));
      for (size_t i = 0; i < sequences.size(); i++) states.back()->add_row();
    }
    std::vector<std::vector<Logits>> logits(sequences.size());
    std::vector<size_t> done(sequences.size(), 0);
    while (step(sequences, chunk, states, done, logits)) {
    }
    return logits;
  }

 private:
  bool step(const std::vector<std::vector<int32_t>>& sequences, int chunk,
            std::vector<std::unique_ptr<LayerState>>& states, std::vector<size_t>& done,
            std::vector<std::vector<Logits>>& logits) {
    StepLayout layout;
    std::vector<int32_t> tokens;
    std::vector<HeadRequest> requests;
    std::vector<size_t> owners;
    for (size_t r = 0; r < sequences.size(); r++) {
      const size_t prompt = sequences[r].size() - kDecodeSteps;
      if (done[r] == sequences[r].size()) continue;
      const size_t count = done[r] < prompt ? std::min(size_t(chunk), prompt - done[r]) : 1;
      layout.rows.push_back({int(r), int(tokens.size()), int(count), int64_t(done[r])});
      tokens.insert(tokens.end(), sequences[r].begin() + ptrdiff_t(done[r]),
                    sequences[r].begin() + ptrdiff_t(done[r] + count));
      done[r] += count;
      if (done[r] < prompt) continue;
      requests.push_back({int(tokens.size()) - 1, HeadRequest::Want::kLogits});
      owners.push_back(r);
    }
    if (tokens.empty()) return false;
    layout.total_tokens = int(tokens.size());
    for (auto& state : states) state->begin_step(layout);
    backend_->begin_step(layout);
    const Tensor hidden = model_->forward(*backend_, tokens, states, nullptr);
    const std::vector<Score> scores = backend_->head(hidden, model_->head(), requests);
    for (size_t i = 0; i < scores.size(); i++)
      logits[owners[i]].emplace_back(scores[i].logits.begin(), scores[i].logits.end());
    backend_->end_step();
    for (auto& state : states) state->commit_step();
    return true;
  }

  std::unique_ptr<hub::ModelArtifact> artifact_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<models::Model> model_;
  KvType kv_;
};

bool same_bits(const std::vector<Logits>& a, const std::vector<Logits>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); i++)
    if (a[i].size() != b[i].size() ||
        std::memcmp(a[i].data(), b[i].data(), a[i].size() * sizeof(float)) != 0)
      return false;
  return true;
}

struct Case {
  const char* name;
  const char* file;
  std::vector<int> prompts;  // lengths
  KvType kv;
};

class Determinism : public testing::TestWithParam<Case> {};

TEST_P(Determinism, LogitsOfARowDependOnTheRowAlone) {
  MANTOU_NEEDS_MODELS();
  const Case& c = GetParam();
  const std::filesystem::path file = models_directory() / c.file;
  Forcer one(file, 1, c.kv), two(file, 2, c.kv);
  std::mt19937 random(7);
  std::vector<std::vector<int32_t>> sequences;
  for (const int length : c.prompts) {
    sequences.emplace_back();
    for (int i = 0; i < length + kDecodeSteps; i++)
      sequences.back().push_back(int32_t(random() % uint32_t(one.vocab())));
  }
  std::vector<std::vector<Logits>> alone;
  for (const auto& sequence : sequences) alone.push_back(two.run({sequence}, 512)[0]);
  for (const int chunk : {1, 7, 64, 512}) {
    const auto together = (chunk == 7 ? one : two).run(sequences, chunk);
    for (size_t r = 0; r < sequences.size(); r++)
      EXPECT_TRUE(same_bits(together[r], alone[r])) << "chunk " << chunk << ", row " << r;
  }
  EXPECT_TRUE(same_bits(one.run({sequences[1]}, 64)[0], alone[1])) << "one thread";
}

INSTANTIATE_TEST_SUITE_P(Models, Determinism,
                         testing::Values(Case{"smollm2",
                                              "SmolLM2-135M-Instruct.Q4_1.gguf",
                                              {1, 130, 7, 64, 65, 33, 200, 12},
                                              KvType::kF16},
                                         // Longer than gemma's window of 512.
                                         Case{"gemma",
                                              "gemma-3-270m-q4_k_m.gguf",
                                              {600, 5, 70, 1, 31, 2, 64, 9},
                                              KvType::kF16},
                                         Case{"qwen",
                                              "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
                                              {65, 1, 20, 3, 8, 40, 2, 11},
                                              KvType::kBF16}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace mantou::golden
