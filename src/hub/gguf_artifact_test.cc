// ModelArtifact over GGUF files: names, configuration, permutation, tokenizer, weight audit.
#include <gtest/gtest.h>

#include "hub/config_reader.h"
#include "hub/expect_error.h"
#include "hub/model_artifact.h"
#include "hub/test_files.h"

namespace mantou::hub {
namespace {

using nlohmann::json;
using testing::expect_error;
using testing::GgufWriter;
using testing::TempDirectory;

constexpr uint64_t kHidden = 8, kHeads = 2, kKvHeads = 1, kVocabulary = 3;

// The keys every architecture needs: two layers, two heads of four, one of them for keys.
GgufWriter model(const std::string& architecture) {
  GgufWriter writer;
  writer.text("general.architecture", architecture);
  const auto key = [&](const char* name) { return architecture + "." + name; };
  writer.u32(key("block_count"), 2).u32(key("embedding_length"), kHidden);
  writer.u32(key("feed_forward_length"), 16).u32(key("context_length"), 2048);
  writer.u32(key("attention.head_count"), kHeads).u32(key("attention.head_count_kv"), kKvHeads);
  writer.f32(key("attention.layer_norm_rms_epsilon"), 0x1p-17f);
  writer.f32(key("rope.freq_base"), 50000);
  writer.floats("token_embd.weight", {kHidden, kVocabulary});
  return writer;
}

class GgufArtifactTest : public ::testing::Test {
 protected:
  std::unique_ptr<ModelArtifact> open(const GgufWriter& writer) {
    return ModelArtifact::open(directory_.write("tiny.Q4.gguf", std::string_view(writer.bytes())));
  }
  TempDirectory directory_;
};

std::vector<float> floats_of(const RawTensor& tensor) {
  std::vector<float> out(size_t(tensor.elements()));
  std::memcpy(out.data(), tensor.bytes.data(), tensor.bytes.size());
  return out;
}

TEST_F(GgufArtifactTest, ConfigurationInHfTerms) {
  const auto artifact = open(model("llama"));
  EXPECT_EQ(artifact->format(), Format::kGguf);
  EXPECT_EQ(artifact->name(), "tiny.Q4");
  EXPECT_FALSE(artifact->norm_plus_one_baked());
  const json expected = {
      {"model_type", "llama"},
      {"hidden_act", "silu"},
      {"hidden_size", 8},
      {"num_hidden_layers", 2},
      {"num_attention_heads", 2},
      {"num_key_value_heads", 1},
      {"head_dim", 4},
      {"intermediate_size", 16},
      {"vocab_size", 3},
      {"rms_norm_eps", 0x1p-17},
      {"rope_theta", 50000.0},
      {"max_position_embeddings", 2048},
      {"tie_word_embeddings", true},
      {"attention_bias", false},
      {"mlp_bias", false},
      {"partial_rotary_factor", 1.0},
  };
  EXPECT_EQ(artifact->config(), expected);
  EXPECT_EQ(artifact->generation_config(), json::object());
  EXPECT_EQ(config_reader(*artifact).origin(), artifact->path().string());
}

TEST_F(GgufArtifactTest, OptionalKeys) {
  GgufWriter writer = model("qwen2");
  writer.u32("qwen2.attention.key_length", 6).u32("qwen2.attention.value_length", 6);
  writer.u32("qwen2.rope.dimension_count", 3).u32("qwen2.vocab_size", 99);
  writer.floats("output.weight", {kHidden, kVocabulary}).floats("blk.0.attn_q.bias", {12});
  writer.f32("general.sampling.temp", 0.5f).number("general.sampling.top_k", GgufType::kI32, 20);
  writer.f32("general.sampling.top_p", 0.75f);
  const auto artifact = open(writer);
  const json& config = artifact->config();
  EXPECT_EQ(config["model_type"], "qwen2");
  EXPECT_EQ(config["head_dim"], 6);
  EXPECT_EQ(config["partial_rotary_factor"], 0.5);
  EXPECT_EQ(config["vocab_size"], 3);  // the table's rows, whatever the key says
  EXPECT_EQ(config["tie_word_embeddings"], false);
  EXPECT_EQ(config["attention_bias"], true);
  EXPECT_EQ(artifact->generation_config(),
            json({{"temperature", 0.5}, {"top_k", 20}, {"top_p", 0.75}}));
}

TEST_F(GgufArtifactTest, RopeScaling) {
  GgufWriter linear = model("llama");
  linear.text("llama.rope.scaling.type", "linear").f32("llama.rope.scaling.factor", 8);
  EXPECT_EQ(open(linear)->config()["rope_scaling"],
            json({{"rope_type", "linear"}, {"factor", 8.0}}));
  GgufWriter yarn = model("llama");
  yarn.text("llama.rope.scaling.type", "yarn").f32("llama.rope.scaling.factor", 4);
  yarn.u32("llama.rope.scaling.original_context_length", 32768);
  yarn.f32("llama.rope.scaling.yarn_beta_fast", 16);
  EXPECT_EQ(open(yarn)->config()["rope_scaling"], json({{"rope_type", "yarn"},
                                                        {"factor", 4.0},
                                                        {"original_max_position_embeddings", 32768},
                                                        {"beta_fast", 16.0}}));
  // llama.cpp multiplies 1 + 0.1 ln(factor) by the file's factor.
  yarn.f32("llama.rope.scaling.attn_factor", 0.5);
  EXPECT_DOUBLE_EQ(open(yarn)->config()["rope_scaling"]["attention_factor"].get<double>(),
                   0.5 * 1.1386294361119891);
  GgufWriter none = model("llama");
  none.text("llama.rope.scaling.type", "none");
  EXPECT_FALSE(open(none)->config().contains("rope_scaling"));
  // Llama 3 keeps its factors in a tensor.
  GgufWriter llama3 = model("llama");
  llama3.floats("rope_freqs.weight", {2}, 1);
  const auto artifact = open(llama3);
  EXPECT_TRUE(artifact->has("rope_freqs.weight"));
  EXPECT_EQ(floats_of(artifact->tensor("rope_freqs.weight")), (std::vector<float>{1, 2}));
}

TEST_F(GgufArtifactTest, Gemma3FillsInWhatFilesLeaveOut) {
  GgufWriter writer = model("gemma3");
  writer.u32("gemma3.attention.key_length", 16).u32("gemma3.attention.sliding_window", 512);
  for (const char* name : {"attn_norm", "post_attention_norm", "ffn_norm", "post_ffw_norm"})
    writer.floats(fmt::format("blk.1.{}.weight", name), {kHidden});
  const auto artifact = open(writer);
  EXPECT_TRUE(artifact->norm_plus_one_baked());
  const json& config = artifact->config();
  EXPECT_EQ(config["model_type"], "gemma3_text");
  EXPECT_EQ(config["hidden_act"], "gelu_pytorch_tanh");
  EXPECT_EQ(config["query_pre_attn_scalar"], 16);
  EXPECT_EQ(config["rope_local_base_freq"], 10000.0);
  EXPECT_EQ(config["sliding_window"], 512);
  EXPECT_FALSE(config.contains("sliding_window_pattern"));  // 6, as the loader knows
  for (const char* name : {"input_layernorm", "post_attention_layernorm",
                           "pre_feedforward_layernorm", "post_feedforward_layernorm"})
    EXPECT_TRUE(artifact->has(fmt::format("layers.1.{}.weight", name))) << name;
}

TEST_F(GgufArtifactTest, SlidingLayersByNumberOrByFlags) {
  GgufWriter number = model("llama");
  number.u32("llama.attention.sliding_window_pattern", 4);
  EXPECT_EQ(open(number)->config()["sliding_window_pattern"], 4);
  GgufWriter flags = model("llama");
  flags.array<uint8_t>("llama.attention.sliding_window_pattern", GgufType::kBool, {1, 0});
  EXPECT_EQ(open(flags)->config()["layer_types"], json({"sliding_attention", "full_attention"}));
}

TEST_F(GgufArtifactTest, NoExpertsMeansDense) {
  GgufWriter dense = model("llama");
  dense.u32("llama.expert_count", 0).u32("llama.expert_used_count", 0);
  EXPECT_EQ(open(dense)->config()["model_type"], "llama");
  EXPECT_FALSE(open(dense)->config().contains("num_experts"));
}

TEST_F(GgufArtifactTest, RefusesConfigurationsItCannotMap) {
  expect_error(ErrorCode::kUnsupported,
               "the architecture \"mamba\" is not supported; supported in GGUF files: llama,",
               [&] { open(model("mamba")); });
  GgufWriter bare;
  expect_error(ErrorCode::kCorruptData, "\"general.architecture\" is missing", [&] { open(bare); });
  bare.text("general.architecture", "llama").u32("llama.block_count", 0);
  expect_error(ErrorCode::kCorruptData, "llama.block_count is 0, must be 1 … 2147483647",
               [&] { open(bare); });
  GgufWriter half;
  half.text("general.architecture", "llama").u32("llama.block_count", 2);
  expect_error(ErrorCode::kCorruptData, "\"llama.embedding_length\" is missing",
               [&] { open(half); });
  GgufWriter uneven = model("llama");
  uneven.u32("llama.attention.value_length", 5);
  expect_error(ErrorCode::kUnsupported, "heads of 4 for keys and 5 for values",
               [&] { open(uneven); });
  GgufWriter embedding = model("llama");
  embedding.boolean("llama.attention.causal", false);
  expect_error(ErrorCode::kUnsupported, "attention is not causal", [&] { open(embedding); });
  GgufWriter narrow = model("llama");
  narrow.array<int32_t>("llama.attention.sliding_window", GgufType::kI32, {1, 2});
  expect_error(ErrorCode::kUnsupported, "llama.attention.sliding_window differs between layers",
               [&] { open(narrow); });
}

// convert_hf_to_gguf stores reshape(heads, 2, dim / 2, …).swapaxes(1, 2): of each head of four,
// rows 0 1 2 3 lie in the file as 0 2 1 3.
TEST_F(GgufArtifactTest, LlamaQueriesAndKeysAreUnpermuted) {
  GgufWriter writer = model("llama");
  writer.floats("blk.0.attn_q.weight", {1, 8}).floats("blk.0.attn_k.weight", {1, 4});
  writer.floats("blk.0.attn_v.weight", {1, 4}).floats("blk.0.attn_q.bias", {8});
  const auto artifact = open(writer);
  const RawWeight q = artifact->weight("layers.0.self_attn.q_proj");
  EXPECT_EQ(q.row_order, (std::vector<uint32_t>{0, 2, 1, 3, 4, 6, 5, 7}));
  EXPECT_EQ(q.rows, 8);
  EXPECT_EQ(q.cols, 1);
  float value;
  decode_row(q, 1, {&value, 1});
  EXPECT_EQ(value, 2.0f);
  EXPECT_EQ(artifact->weight("layers.0.self_attn.k_proj").row_order,
            (std::vector<uint32_t>{0, 2, 1, 3}));
  EXPECT_TRUE(artifact->weight("layers.0.self_attn.v_proj").row_order.empty());
  const std::vector<float> unpermuted = {0, 2, 1, 3, 4, 6, 5, 7};
  EXPECT_EQ(floats_of(artifact->tensor("layers.0.self_attn.q_proj.bias")), unpermuted);
  EXPECT_EQ(floats_of(artifact->tensor("layers.0.self_attn.q_proj.weight")), unpermuted);

  GgufWriter odd = model("llama");
  odd.floats("blk.0.attn_q.weight", {1, 6});
  expect_error(ErrorCode::kCorruptData, "\"blk.0.attn_q.weight\" has 6 rows for 2 heads",
               [&] { open(odd)->weight("layers.0.self_attn.q_proj"); });

  GgufWriter qwen = model("qwen2");
  qwen.floats("blk.0.attn_q.weight", {1, 8}).floats("blk.0.attn_q.bias", {8});
  const auto plain = open(qwen);
  EXPECT_TRUE(plain->weight("layers.0.self_attn.q_proj").row_order.empty());
  EXPECT_EQ(floats_of(plain->tensor("layers.0.self_attn.q_proj.bias"))[1], 1.0f);
}

TEST_F(GgufArtifactTest, TheAuditReportsWhatNobodyTook) {
  GgufWriter writer = model("llama");
  writer.floats("output_norm.weight", {kHidden}).floats("blk.0.attn_rot_embd.weight", {2});
  writer.floats("blk.0.ffn_gate_chexps.weight", {2}).floats("strange", {2});
  const auto artifact = open(writer);
  artifact->weight("embed_tokens");
  EXPECT_EQ(
      artifact->unused(),
      (std::vector<std::string>{"output_norm.weight", "blk.0.ffn_gate_chexps.weight", "strange"}));
  const RawWeight norm = artifact->weight("norm");
  EXPECT_EQ(norm.rows, 1);
  EXPECT_EQ(norm.cols, int64_t(kHidden));
  artifact->tensor("blk.0.ffn_gate_chexps.weight");
  EXPECT_EQ(artifact->unused(), (std::vector<std::string>{"strange"}));
  expect_error(ErrorCode::kCorruptData, "there is no tensor \"layers.0.mlp.up_proj.weight\"",
               [&] { artifact->weight("layers.0.mlp.up_proj"); });
  ASSERT_EQ(artifact->tensors().size(), 5u);
  EXPECT_EQ(artifact->tensors()[0].name, "token_embd.weight");
  EXPECT_EQ(artifact->tensors()[0].type, "F32");
  EXPECT_EQ(artifact->tensors()[0].bytes, 4 * kHidden * kVocabulary);
}

TEST_F(GgufArtifactTest, TwoTensorsOfOneMeaningAreRefused) {
  GgufWriter writer = model("llama");
  writer.floats("blk.0.ffn_up.weight", {2}).floats("layers.0.mlp.up_proj.weight", {2});
  expect_error(ErrorCode::kCorruptData, "both mean \"layers.0.mlp.up_proj.weight\"",
               [&] { open(writer); });
}

TEST_F(GgufArtifactTest, Tokenizer) {
  GgufWriter writer = model("llama");
  writer.text("tokenizer.ggml.model", "gpt2").text("tokenizer.ggml.pre", "smollm");
  writer.strings("tokenizer.ggml.tokens", {"<s>", "</s>", "<eot>", "a", "b"});
  writer.strings("tokenizer.ggml.merges", {"a b"});
  writer.array<int32_t>("tokenizer.ggml.token_type", GgufType::kI32, {3, 3, 3, 1, 1});
  writer.array<float>("tokenizer.ggml.scores", GgufType::kF32, {0, 0, 0, -1, -2});
  writer.u32("tokenizer.ggml.bos_token_id", 0).u32("tokenizer.ggml.eos_token_id", 1);
  writer.u32("tokenizer.ggml.eot_token_id", 2).u32("tokenizer.ggml.eom_token_id", 1);
  writer.u32("tokenizer.ggml.padding_token_id", 3).u32("tokenizer.ggml.unknown_token_id", 4);
  writer.boolean("tokenizer.ggml.add_bos_token", false);
  writer.boolean("tokenizer.ggml.add_space_prefix", false);
  writer.text("tokenizer.chat_template", "T").text("tokenizer.chat_template.tool_use", "U");
  const auto artifact = open(writer);
  const TokenizerSource& source = artifact->tokenizer();
  ASSERT_TRUE(source.gguf);
  EXPECT_TRUE(source.tokenizer_json.empty());
  EXPECT_EQ(source.gguf->model, "gpt2");
  EXPECT_EQ(source.gguf->pre, "smollm");
  EXPECT_EQ(source.gguf->tokens[2], "<eot>");
  EXPECT_EQ(source.gguf->merges, (std::vector<std::string>{"a b"}));
  EXPECT_EQ(source.gguf->types, (std::vector<int32_t>{3, 3, 3, 1, 1}));
  EXPECT_EQ(source.gguf->scores, (std::vector<float>{0, 0, 0, -1, -2}));
  EXPECT_FALSE(source.gguf->add_space_prefix);
  EXPECT_EQ(source.add_bos, false);
  EXPECT_EQ(source.add_eos, std::nullopt);
  EXPECT_EQ(source.bos_id, 0);
  EXPECT_EQ(source.eos_id, 1);
  EXPECT_EQ(source.bos_token, "<s>");
  EXPECT_EQ(source.eos_token, "</s>");
  EXPECT_EQ(source.pad_token, "a");
  EXPECT_EQ(source.unk_token, "b");
  EXPECT_EQ(source.end_ids, (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(source.chat_template, "T");
  EXPECT_EQ(source.named_templates, (std::map<std::string, std::string>{{"tool_use", "U"}}));
  EXPECT_EQ(artifact->config()["eos_token_id"], 1);
}

// Files whose padding id was made for another vocabulary run well without it.
TEST_F(GgufArtifactTest, IdsOfNoUseMayBeOutOfRange) {
  GgufWriter writer = model("llama");
  writer.text("tokenizer.ggml.model", "llama").strings("tokenizer.ggml.tokens", {"a", "b"});
  writer.u32("tokenizer.ggml.padding_token_id", 2).u32("tokenizer.ggml.unknown_token_id", 1u << 31);
  writer.u32("tokenizer.ggml.seperator_token_id", 7).u32("tokenizer.ggml.eos_token_id", 1);
  const auto artifact = open(writer);
  const TokenizerSource& source = artifact->tokenizer();
  EXPECT_EQ(source.pad_token, "");
  EXPECT_EQ(source.unk_token, "");
  EXPECT_EQ(source.eos_token, "b");
}

TEST_F(GgufArtifactTest, RefusesBrokenVocabularies) {
  const auto bare = open(model("llama"));
  expect_error(ErrorCode::kNotFound, "the model has no vocabulary", [&] { bare->tokenizer(); });
  const auto with = [&](auto change) {
    GgufWriter writer = model("llama");
    writer.strings("tokenizer.ggml.tokens", {"a", "b"});
    change(writer);
    open(writer);
  };
  expect_error(ErrorCode::kCorruptData, "\"tokenizer.ggml.model\" is missing",
               [&] { with([](GgufWriter&) {}); });
  expect_error(ErrorCode::kCorruptData, "tokenizer.ggml.scores has 1 elements for 2 tokens", [&] {
    with([](GgufWriter& writer) {
      writer.text("tokenizer.ggml.model", "llama");
      writer.array<float>("tokenizer.ggml.scores", GgufType::kF32, {0});
    });
  });
  expect_error(ErrorCode::kCorruptData, "tokenizer.ggml.eot_token_id is 2, must be 0 … 1", [&] {
    with([](GgufWriter& writer) {
      writer.text("tokenizer.ggml.model", "llama").u32("tokenizer.ggml.eot_token_id", 2);
    });
  });
}

}  // namespace
}  // namespace mantou::hub
