// Memory by hand for small descriptions of models.
#include "cli/memory_need.h"

#include <gtest/gtest.h>

#include "cli/memory_bandwidth.h"

namespace mantou::cli {
namespace {

StateSpec full(int heads, int dim, KvType type = KvType::kF16) { return {heads, dim, 0, type}; }

TEST(MemoryNeed, KeysAndValuesOfEachLayer) {
  MemoryNeed need;
  need.states = {full(3, 64), full(3, 64)};
  EXPECT_EQ(need.cache_bytes(0), 0u);
  EXPECT_EQ(need.cache_bytes(100), 2u * 2 * 3 * 64 * 2 * 100);  // layers, k and v, …, bytes
  need.states = {full(1, 8, KvType::kF32), {1, 8, 16, KvType::kBF16}};
  EXPECT_EQ(need.cache_bytes(10), 2u * 8 * 4 * 10 + 2u * 8 * 2 * 10);
  EXPECT_EQ(need.cache_bytes(1000), 2u * 8 * 4 * 1000 + 2u * 8 * 2 * 16);  // the window is full
  need.states = {{1, 128, 0, KvType::kF32, {4, 32, 0}}};
  EXPECT_EQ(need.cache_bytes(10), 2u * 10 * (64 + 4 * (2 + 2)));  // codes, scales and biases
  need.typed_scales = true;
  EXPECT_EQ(need.cache_bytes(10), 2u * 10 * (64 + 4 * (4 + 4)));
}

TEST(MemoryNeed, LargestContextIsTheLastThatFits) {
  MemoryNeed need;
  need.states = {full(1, 8), {1, 8, 16, KvType::kF16}, {1, 32, 0, KvType::kF16, {4, 32, 70}}};
  need.train_context = 200;
  EXPECT_GT(need.cache_bytes(70), 2u * 32 * 2 * 70);
  EXPECT_LT(need.cache_bytes(200), 2u * 8 * 2 * 216 + 2u * 32 * 2 * 200);
  for (uint64_t bytes = 0; bytes < 10'000; bytes += 7) {
    int64_t expected = 0;
    while (expected < 200 && need.cache_bytes(expected + 1) <= bytes) ++expected;
    ASSERT_EQ(need.largest_context(bytes), expected) << bytes;
  }
  EXPECT_EQ(need.largest_context(uint64_t{1} << 60), 200);
}

// A checkpoint of names and sizes alone.
class NamedTensors final : public hub::ModelArtifact {
 public:
  NamedTensors(nlohmann::json config, std::vector<TensorInfo> tensors,
               hub::Format format = hub::Format::kDirectory)
      : format_(format), config_(std::move(config)), tensors_(std::move(tensors)) {}
  hub::Format format() const override { return format_; }
  const std::filesystem::path& path() const override { return path_; }
  const std::string& name() const override { return name_; }
  const nlohmann::json& config() const override { return config_; }
  const nlohmann::json& generation_config() const override { return config_; }
  const TokenizerSource& tokenizer() const override { return source_; }
  bool norm_plus_one_baked() const override { return false; }
  RawWeight weight(std::string_view) override { return {}; }
  bool has(std::string_view name) const override {
    for (const TensorInfo& tensor : tensors_)
      if (tensor.name == name) return true;
    return false;
  }
  RawTensor tensor(std::string_view) override { return {}; }
  std::vector<std::string> unused() const override { return {}; }
  std::vector<TensorInfo> tensors() const override { return tensors_; }

 private:
  hub::Format format_;
  std::filesystem::path path_;
  std::string name_;
  nlohmann::json config_;
  std::vector<TensorInfo> tensors_;
  TokenizerSource source_;
};

class NoModel final : public models::Model {
 public:
  const models::ModelInfo& info() const override { return info_; }
  const Head& head() const override { return head_; }
  std::vector<StateSpec> state_specs(KvType type) const override { return {full(1, 8, type)}; }
  Tensor forward(Backend&, std::span<const int32_t>, std::span<const std::unique_ptr<LayerState>>,
                 const StopFlag*) const override {
    return {};
  }

 private:
  models::ModelInfo info_{"none", 16, 77};
  Head head_;
};

TEST(MemoryNeed, ATokenReadsNoTableAndOnlyItsExperts) {
  const std::vector<hub::ModelArtifact::TensorInfo> tensors = {
      {"embed_tokens.weight", "F16", {}, 1000},
      {"lm_head.weight", "F16", {}, 1000},
      {"layers.0.mlp.switch_mlp.gate_proj.weight", "F16", {}, 400},
      {"layers.0.mlp.experts.0.gate_proj.weight", "F16", {}, 400},
      {"model.vision_tower.patches.weight", "F16", {}, 5000},
      {"blk.0.ffn_up_exps.weight", "F16", {}, 800},
      {"layers.0.mlp.shared_expert.up_proj.weight", "F16", {}, 10},
      {"layers.0.self_attn.q_proj.weight", "F16", {}, 5}};
  const NamedTensors experts({{"num_experts", 8}, {"num_experts_per_tok", 2}}, tensors);
  const MemoryNeed need = memory_need(experts, NoModel(), {full(1, 8, KvType::kF32)});
  EXPECT_EQ(need.weights, 3615u);
  EXPECT_EQ(need.read_per_token, 1000u + 200 + 200 + 10 + 5);
  EXPECT_EQ(need.train_context, 77);
  EXPECT_EQ(need.cache_bytes(1), 64u);
  const NamedTensors tied({{"tie_word_embeddings", true}}, {tensors.front(), tensors.back()});
  EXPECT_EQ(memory_need(tied, NoModel(), {full(1, 8)}).read_per_token, 1005u);
}

TEST(MemoryNeed, MlxHoldsTheBlocksOfGgufFilesAsF32) {
  const std::vector<hub::ModelArtifact::TensorInfo> tensors = {
      {"token_embd.weight", "Q4_K", {8, 256}, 8 * 144}, {"output_norm.weight", "F16", {256}, 512}};
  const NamedTensors gguf({}, tensors, hub::Format::kGguf);
  EXPECT_EQ(memory_need(gguf, NoModel(), {full(1, 8)}).weights, 8u * 144 + 512);
  EXPECT_EQ(memory_need(gguf, NoModel(), {full(1, 8)}, true).weights, 8u * 256 * 4 + 512);
  const NamedTensors directory({}, tensors);
  EXPECT_EQ(memory_need(directory, NoModel(), {full(1, 8)}, true).weights, 8u * 144 + 512);
}

TEST(MemoryBandwidth, IsThatOfSomeMachine) {
  const double rate = measure_memory_bandwidth(2, 16 << 20);
  EXPECT_GT(rate, 1e7);
  EXPECT_LT(rate, 1e14);
}

}  // namespace
}  // namespace mantou::cli
