// Gemma 4's GGUF files in HF's terms; the expectations are the keys and names that llama.cpp's
// conversion script writes for given configurations.
#include <gtest/gtest.h>

#include <set>

#include "hub/expect_error.h"
#include "hub/model_artifact.h"
#include "hub/test_files.h"

namespace mantou::hub {
namespace {

using nlohmann::json;
using testing::expect_error;
using testing::GgufWriter;
using testing::TempDirectory;

// Six layers, every third full, the last three sharing keys; without the keys named (after
// "gemma4."), which the caller writes as it likes.
GgufWriter model(const std::set<std::string>& without = {}) {
  GgufWriter writer;
  writer.text("general.architecture", "gemma4");
  const auto number = [&](const std::string& name, uint32_t value) {
    if (!without.contains(name)) writer.u32("gemma4." + name, value);
  };
  const auto real = [&](const std::string& name, float value) {
    if (!without.contains(name)) writer.f32("gemma4." + name, value);
  };
  number("block_count", 6);
  number("embedding_length", 8);
  number("context_length", 2048);
  number("attention.head_count", 2);
  number("attention.head_count_kv", 1);
  number("attention.key_length", 8);
  number("attention.value_length", 8);
  number("attention.key_length_swa", 4);
  number("attention.value_length_swa", 4);
  number("attention.sliding_window", 16);
  number("attention.shared_kv_layers", 3);
  number("rope.dimension_count", 8);
  number("rope.dimension_count_swa", 4);
  number("embedding_length_per_layer_input", 2);
  real("attention.layer_norm_rms_epsilon", 0x1p-17f);
  real("rope.freq_base", 1000000);
  real("rope.freq_base_swa", 10000);
  if (!without.contains("feed_forward_length"))
    writer.array<int32_t>("gemma4.feed_forward_length", GgufType::kI32, {16, 16, 16, 32, 32, 32});
  if (!without.contains("attention.sliding_window_pattern"))
    writer.array<uint8_t>("gemma4.attention.sliding_window_pattern", GgufType::kBool,
                          {1, 1, 0, 1, 1, 0});
  writer.floats("token_embd.weight", {8, 3});
  if (!without.contains("attn_v")) writer.floats("blk.2.attn_v.weight", {8, 8});
  if (!without.contains("rope_freqs")) writer.floats("rope_freqs.weight", {4}, 1);
  return writer;
}

class GgufGemma4Test : public ::testing::Test {
 protected:
  std::unique_ptr<ModelArtifact> open(const GgufWriter& writer) {
    return ModelArtifact::open(directory_.write("tiny.gguf", std::string_view(writer.bytes())));
  }
  void expect_refused(ErrorCode code, const std::string& text, const GgufWriter& writer) {
    expect_error(code, text, [&] { open(writer); });
  }
  TempDirectory directory_;
};

TEST_F(GgufGemma4Test, ConfigurationInHfTerms) {
  const auto artifact = open(model());
  EXPECT_FALSE(artifact->norm_plus_one_baked());
  const json expected = {
      {"model_type", "gemma4_text"},
      {"hidden_act", "gelu_pytorch_tanh"},
      {"hidden_size", 8},
      {"num_hidden_layers", 6},
      {"num_attention_heads", 2},
      {"num_key_value_heads", 1},
      {"num_global_key_value_heads", 1},
      {"attention_k_eq_v", false},
      {"head_dim", 4},
      {"global_head_dim", 8},
      {"intermediate_size", 16},
      {"use_double_wide_mlp", true},
      {"num_kv_shared_layers", 3},
      {"hidden_size_per_layer_input", 2},
      {"layer_types",
       {"sliding_attention", "sliding_attention", "full_attention", "sliding_attention",
        "sliding_attention", "full_attention"}},
      {"sliding_window", 16},
      {"vocab_size", 3},
      {"rms_norm_eps", 0x1p-17},
      {"rope_theta", 1000000.0},
      {"rope_local_base_freq", 10000.0},
      {"partial_rotary_factor", 1.0},
      {"final_logit_softcapping", 0.0},  // a file without the key means none
      {"enable_moe_block", false},
      {"max_position_embeddings", 2048},
      {"tie_word_embeddings", true},
      {"attention_bias", false},
      {"mlp_bias", false},
  };
  EXPECT_EQ(artifact->config(), expected);
}

TEST_F(GgufGemma4Test, KeysAsValuesAndExperts) {
  GgufWriter writer = model({"attention.head_count_kv", "attention.shared_kv_layers", "attn_v",
                             "feed_forward_length", "embedding_length_per_layer_input"});
  writer.array<int32_t>("gemma4.attention.head_count_kv", GgufType::kI32, {2, 2, 1, 2, 2, 1});
  writer.u32("gemma4.feed_forward_length", 16).u32("gemma4.embedding_length_per_layer_input", 0);
  writer.u32("gemma4.expert_count", 8).u32("gemma4.expert_used_count", 3);
  writer.u32("gemma4.expert_feed_forward_length", 24);
  writer.f32("gemma4.final_logit_softcapping", 30);
  const auto artifact = open(writer);
  const json& config = artifact->config();
  EXPECT_EQ(config["attention_k_eq_v"], true);
  EXPECT_EQ(config["num_key_value_heads"], 2);
  EXPECT_EQ(config["num_global_key_value_heads"], 1);
  EXPECT_EQ(config["num_kv_shared_layers"], 0);
  EXPECT_EQ(config["use_double_wide_mlp"], false);
  EXPECT_EQ(config["hidden_size_per_layer_input"], 0);
  EXPECT_EQ(config["enable_moe_block"], true);
  EXPECT_EQ(config["num_experts"], 8);
  EXPECT_EQ(config["top_k_experts"], 3);
  EXPECT_EQ(config["moe_intermediate_size"], 24);
  EXPECT_EQ(config["final_logit_softcapping"], 30.0);
}

TEST_F(GgufGemma4Test, Names) {
  constexpr std::pair<const char*, const char*> kNames[] = {
      {"per_layer_token_embd.weight", "embed_tokens_per_layer.weight"},
      {"per_layer_model_proj.weight", "per_layer_model_projection.weight"},
      {"per_layer_proj_norm.weight", "per_layer_projection_norm.weight"},
      {"blk.1.attn_norm.weight", "layers.1.input_layernorm.weight"},
      {"blk.1.post_attention_norm.weight", "layers.1.post_attention_layernorm.weight"},
      {"blk.1.ffn_norm.weight", "layers.1.pre_feedforward_layernorm.weight"},
      {"blk.1.post_ffw_norm.weight", "layers.1.post_feedforward_layernorm.weight"},
      {"blk.1.post_ffw_norm_1.weight", "layers.1.post_feedforward_layernorm_1.weight"},
      {"blk.1.pre_ffw_norm_2.weight", "layers.1.pre_feedforward_layernorm_2.weight"},
      {"blk.1.post_ffw_norm_2.weight", "layers.1.post_feedforward_layernorm_2.weight"},
      {"blk.1.layer_output_scale.weight", "layers.1.layer_scalar"},
      {"blk.1.inp_gate.weight", "layers.1.per_layer_input_gate.weight"},
      {"blk.1.proj.weight", "layers.1.per_layer_projection.weight"},
      {"blk.1.post_norm.weight", "layers.1.post_per_layer_input_norm.weight"},
      {"blk.1.ffn_gate_inp.weight", "layers.1.router.proj.weight"},
      {"blk.1.ffn_gate_inp.scale", "layers.1.router.scale"},
      {"blk.1.ffn_down_exps.scale", "layers.1.router.per_expert_scale"},
      {"blk.1.ffn_gate_up_exps.weight", "layers.1.experts.gate_up_proj.weight"},
      {"blk.1.ffn_down_exps.weight", "layers.1.experts.down_proj.weight"},
      {"blk.1.ffn_gate.weight", "layers.1.mlp.gate_proj.weight"},
  };
  GgufWriter writer = model();
  for (const auto& [gguf, hf] : kNames) writer.floats(gguf, {2});
  const auto artifact = open(writer);
  for (const auto& [gguf, hf] : kNames) EXPECT_TRUE(artifact->has(hf)) << gguf;
}

TEST_F(GgufGemma4Test, RefusesWhatIsMissing) {
  for (const std::string key :
       {"feed_forward_length", "attention.head_count_kv", "attention.key_length_swa",
        "attention.sliding_window", "attention.sliding_window_pattern",
        "embedding_length_per_layer_input", "rope.freq_base", "rope.freq_base_swa"})
    expect_refused(ErrorCode::kCorruptData, "\"gemma4." + key + "\" is missing", model({key}));
  expect_refused(ErrorCode::kCorruptData, "\"gemma4.attention.key_length\" is missing",
                 model({"attention.key_length", "attention.value_length"}));
  expect_refused(ErrorCode::kCorruptData, "there is no tensor \"rope_freqs.weight\"",
                 model({"rope_freqs"}));
  GgufWriter experts = model();
  experts.u32("gemma4.expert_count", 8);
  expect_refused(ErrorCode::kCorruptData, "\"gemma4.expert_used_count\" is missing", experts);
}

TEST_F(GgufGemma4Test, RefusesArraysOfAnotherLength) {
  GgufWriter widths = model({"feed_forward_length"});
  widths.array<int32_t>("gemma4.feed_forward_length", GgufType::kI32, {16, 16, 16, 32, 32});
  expect_refused(ErrorCode::kCorruptData, "gemma4.feed_forward_length has 5 elements for 6 layers",
                 widths);
  GgufWriter heads = model({"attention.head_count_kv"});
  heads.array<int32_t>("gemma4.attention.head_count_kv", GgufType::kI32, {});
  expect_refused(ErrorCode::kCorruptData, "head_count_kv has 0 elements for 6 layers", heads);
  GgufWriter flags = model({"attention.sliding_window_pattern"});
  flags.u32("gemma4.attention.sliding_window_pattern", 3);
  expect_refused(ErrorCode::kCorruptData, "sliding_window_pattern has 1 elements for 6 layers",
                 flags);
  // Nothing is made for as many layers as a file claims.
  GgufWriter many = model({"block_count"});
  many.u32("gemma4.block_count", 2147483647);
  expect_refused(ErrorCode::kCorruptData, "has 6 elements for 2147483647 layers", many);
}

TEST_F(GgufGemma4Test, RefusesNumbersThatDoNotFit) {
  const auto with = [](const std::string& key, uint32_t value) {
    GgufWriter writer = model({key});
    writer.u32("gemma4." + key, value);
    return writer;
  };
  expect_refused(ErrorCode::kCorruptData, "gemma4.attention.shared_kv_layers is 6, must be 0 … 5",
                 with("attention.shared_kv_layers", 6));
  expect_refused(ErrorCode::kCorruptData, "is 4, which leaves no full layer",
                 with("attention.shared_kv_layers", 4));
  expect_refused(ErrorCode::kCorruptData, "gemma4.attention.head_count_kv is 0, must be 1",
                 with("attention.head_count_kv", 0));
  expect_refused(ErrorCode::kUnsupported, "gemma4.attention.value_length_swa is 8",
                 with("attention.value_length_swa", 8));
  expect_refused(ErrorCode::kUnsupported, "gemma4.rope.dimension_count is 2",
                 with("rope.dimension_count", 2));
  expect_refused(ErrorCode::kUnsupported, "gemma4.rope.dimension_count_swa is 2",
                 with("rope.dimension_count_swa", 2));
  GgufWriter heads = model({"attention.head_count_kv"});
  heads.array<int32_t>("gemma4.attention.head_count_kv", GgufType::kI32, {2, 2, 1, 2, 2, 1});
  expect_refused(ErrorCode::kUnsupported,
                 "is 2 in sliding and 1 in full layers that have values of their own", heads);
  GgufWriter mixed = model({"attention.head_count_kv"});
  mixed.array<int32_t>("gemma4.attention.head_count_kv", GgufType::kI32, {2, 1, 1, 2, 2, 1});
  expect_refused(ErrorCode::kUnsupported, "is 2 and 1 in layers of one kind", mixed);
  GgufWriter widths = model({"feed_forward_length"});
  widths.array<int32_t>("gemma4.feed_forward_length", GgufType::kI32, {16, 16, 16, 48, 48, 48});
  expect_refused(ErrorCode::kUnsupported, "is 16, and 48 in the layers that share keys", widths);
}

}  // namespace
}  // namespace mantou::hub
