// docs/determinism.md on real models: a row's logits are the same bits alone or with seven others,
// with any chunking of its prompt, with any number of threads and on every instruction set.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "tests/golden/forcer.h"
#include "tests/golden/models.h"

namespace mantou::golden {
namespace {

constexpr size_t kDecodeSteps = 6;

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
    for (int i = 0; i < length + int(kDecodeSteps); i++)
      sequences.back().push_back(int32_t(random() % uint32_t(one.vocab())));
  }
  std::vector<std::vector<Logits>> alone;
  for (const auto& sequence : sequences) alone.push_back(two.run({sequence}, 512, kDecodeSteps)[0]);
  for (const int chunk : {1, 7, 64, 512}) {
    const auto together = (chunk == 7 ? one : two).run(sequences, chunk, kDecodeSteps);
    for (size_t r = 0; r < sequences.size(); r++)
      EXPECT_TRUE(same_bits(together[r], alone[r])) << "chunk " << chunk << ", row " << r;
  }
  EXPECT_TRUE(same_bits(one.run({sequences[1]}, 64, kDecodeSteps)[0], alone[1])) << "one thread";
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
