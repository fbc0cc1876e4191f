// ModelArtifact over HF and MLX directories.
#include <gtest/gtest.h>

#include <bit>

#include "base/half.h"
#include "base/test_decode_row_goldens.h"
#include "hub/expect_error.h"
#include "hub/model_artifact.h"
#include "hub/test_files.h"

namespace mantou::hub {
namespace {

using nlohmann::json;
using testing::expect_error;
using testing::SafetensorsWriter;
using testing::TempDirectory;

class DirectoryArtifactTest : public ::testing::Test {
 protected:
  DirectoryArtifactTest() { weights(SafetensorsWriter().floats("model.norm.weight", {4})); }

  void weights(const SafetensorsWriter& writer) {
    directory_.write("model.safetensors", std::string_view(writer.bytes()));
  }
  void config(const json& json) { directory_.write("config.json", json); }
  std::unique_ptr<ModelArtifact> open() { return ModelArtifact::open(directory_.path()); }
  std::string file(const char* name) const { return (directory_.path() / name).string(); }

  TempDirectory directory_;
};

TEST_F(DirectoryArtifactTest, PlainConfiguration) {
  config({{"model_type", "llama"}, {"hidden_size", 4}, {"tie_word_embeddings", false}});
  const auto artifact = open();
  EXPECT_EQ(artifact->format(), Format::kDirectory);
  EXPECT_FALSE(artifact->norm_plus_one_baked());
  EXPECT_EQ(artifact->name(), directory_.path().filename().string());
  EXPECT_EQ(artifact->config(),
            json({{"model_type", "llama"}, {"hidden_size", 4}, {"tie_word_embeddings", false}}));
  EXPECT_EQ(artifact->generation_config(), json::object());
}

TEST_F(DirectoryArtifactTest, TextConfigIsLifted) {
  config({{"model_type", "gemma3"},
          {"vocab_size", 7},
          {"eos_token_id", {1, 6}},
          {"tie_word_embeddings", true},
          {"text_config",
           {{"model_type", "gemma3_text"},
            {"hidden_size", 4},
            {"vocab_size", nullptr},
            {"x", nullptr}}}});
  const json lifted = open()->config();
  EXPECT_EQ(lifted, json({{"model_type", "gemma3_text"},
                          {"vocab_size", 7},
                          {"eos_token_id", {1, 6}},
                          {"tie_word_embeddings", true},
                          {"hidden_size", 4},
                          {"x", nullptr}}));
}

TEST_F(DirectoryArtifactTest, TiedUnlessThereIsAHead) {
  config({{"model_type", "llama"}});
  EXPECT_EQ(open()->config()["tie_word_embeddings"], true);
  weights(SafetensorsWriter().floats("lm_head.weight", {1, 4}));
  EXPECT_EQ(open()->config()["tie_word_embeddings"], false);
}

TEST_F(DirectoryArtifactTest, RopeParametersOfTransformers5) {
  config({{"rope_parameters", {{"rope_theta", 5e5}, {"rope_type", "llama3"}, {"factor", 8}}}});
  EXPECT_EQ(open()->config()["rope_theta"], 5e5);
  EXPECT_EQ(open()->config()["rope_scaling"]["factor"], 8);
  config({{"rope_theta", 3.0},
          {"rope_parameters",
           {{"full_attention", {{"rope_theta", 1e6}, {"rope_type", "default"}}},
            {"sliding_attention", {{"rope_theta", 1e4}, {"rope_type", "default"}}}}}});
  const auto artifact = open();
  EXPECT_EQ(artifact->config()["rope_theta"], 1e6);  // as in transformers, the inner one counts
  EXPECT_EQ(artifact->config()["rope_local_base_freq"], 1e4);
  EXPECT_FALSE(artifact->config().contains("rope_scaling"));
  config({{"rope_parameters", {{"type", "linear"}, {"factor", 4}}}});
  EXPECT_EQ(open()->config()["rope_scaling"]["factor"], 4);
  config({{"rope_parameters", {{"sliding_attention", {{"rope_type", "yarn"}, {"factor", 4}}}}}});
  expect_error(ErrorCode::kUnsupported, "rope_parameters.sliding_attention is scaled",
               [&] { open(); });
}

TEST_F(DirectoryArtifactTest, BrokenConfigurationsAreNamed) {
  expect_error(ErrorCode::kNotFound, "has no config.json", [&] { open(); });
  directory_.write("config.json", std::string_view("{"));
  expect_error(ErrorCode::kCorruptData, file("config.json") + ": not valid JSON", [&] { open(); });
  config(json::array());
  expect_error(ErrorCode::kCorruptData, "config.json: not a JSON object", [&] { open(); });
  config({{"text_config", 3}});
  expect_error(ErrorCode::kCorruptData, "text_config is no object", [&] { open(); });
  config({{"eos_token_id", -1}});
  expect_error(ErrorCode::kCorruptData, "config.json: eos_token_id is -1", [&] { open(); });
  config({{"vocab_size", 100}, {"eos_token_id", {99, 100}}});
  expect_error(ErrorCode::kCorruptData,
               file("config.json") + ": eos_token_id[1] is 100, must be 0 … 99", [&] { open(); });
  config({{"text_config", {{"vocab_size", 100}, {"eos_token_id", 99}}}});
  directory_.write("generation_config.json", json{{"eos_token_id", 100}});
  expect_error(ErrorCode::kCorruptData,
               file("generation_config.json") + ": eos_token_id is 100, must be 0 … 99",
               [&] { open(); });
  expect_error(ErrorCode::kNotFound, "no such file or directory",
               [&] { ModelArtifact::open(directory_.path() / "absent"); });
}

TEST_F(DirectoryArtifactTest, PrefixesAreStripped) {
  config({{"model_type", "x"}, {"tie_word_embeddings", false}});
  for (const char* prefix : {"", "model.", "language_model.model.", "model.language_model."}) {
    weights(
        SafetensorsWriter().floats(std::string(prefix) + "layers.0.mlp.up_proj.weight", {2, 4}));
    const auto artifact = open();
    EXPECT_EQ(artifact->weight("layers.0.mlp.up_proj").rows, 2) << prefix;
    EXPECT_TRUE(artifact->unused().empty());
  }
  for (const char* name :
       {"lm_head.weight", "language_model.lm_head.weight", "model.lm_head.weight"}) {
    weights(SafetensorsWriter().floats(name, {2, 4}));
    EXPECT_TRUE(open()->has("lm_head.weight")) << name;
  }
  weights(SafetensorsWriter().floats("model.norm.weight", {4}).floats("norm.weight", {4}));
  expect_error(ErrorCode::kCorruptData, "both mean \"norm.weight\"", [&] { open(); });
}

TEST_F(DirectoryArtifactTest, TheAudit) {
  SafetensorsWriter writer;
  writer.floats("model.norm.weight", {4}).floats("lm_head.weight", {1, 4});
  writer.floats("model.layers.0.self_attn.rotary_emb.inv_freq", {2});
  writer.floats("vision_tower.x.weight", {2}).floats("model.layers.9.odd", {2});
  weights(writer);
  config({{"tie_word_embeddings", true}});
  EXPECT_EQ(open()->unused(),
            (std::vector<std::string>{"model.norm.weight", "vision_tower.x.weight",
                                      "model.layers.9.odd"}));
  config({{"tie_word_embeddings", false}});
  const auto artifact = open();
  EXPECT_EQ(artifact->unused(),
            (std::vector<std::string>{"model.norm.weight", "lm_head.weight",
                                      "vision_tower.x.weight", "model.layers.9.odd"}));
  artifact->tensor("layers.9.odd");
  artifact->tensor("vision_tower.x.weight");
  artifact->weight("norm");
  artifact->weight("lm_head");
  EXPECT_TRUE(artifact->unused().empty());
}

TEST_F(DirectoryArtifactTest, TokenizerFiles) {
  config({{"eos_token_id", 5}, {"text_config", {{"eos_token_id", {5, 6}}}}});
  const auto bare = open();
  expect_error(ErrorCode::kNotFound, "has no tokenizer.json", [&] { bare->tokenizer(); });
  directory_.write("tokenizer.json", std::string_view("{the bytes}"));
  directory_.write("generation_config.json", json{{"eos_token_id", {7, 5}}, {"temperature", 0.6}});
  directory_.write("tokenizer_config.json",
                   json{{"bos_token", {{"content", "<s>"}, {"lstrip", false}}},
                        {"eos_token", "</s>"},
                        {"pad_token", nullptr},
                        {"add_bos_token", true},
                        {"chat_template", "T"}});
  const auto artifact = open();
  const TokenizerSource& source = artifact->tokenizer();
  EXPECT_EQ(source.origin, directory_.path().string());
  EXPECT_EQ(source.tokenizer_origin, file("tokenizer.json"));
  EXPECT_EQ(source.tokenizer_json, "{the bytes}");
  EXPECT_FALSE(source.gguf);
  EXPECT_EQ(source.bos_token, "<s>");
  EXPECT_EQ(source.eos_token, "</s>");
  EXPECT_EQ(source.pad_token, "");
  EXPECT_EQ(source.add_bos, true);
  EXPECT_EQ(source.add_eos, std::nullopt);
  EXPECT_EQ(source.end_ids, (std::vector<int32_t>{5, 6, 7}));
  EXPECT_EQ(source.chat_template, "T");
  EXPECT_EQ(artifact->generation_config()["temperature"], 0.6);
}

TEST_F(DirectoryArtifactTest, ChatTemplatePlaces) {
  config({{"model_type", "x"}});
  directory_.write("tokenizer.json", std::string_view("{}"));
  const auto templates = [&] {
    const auto artifact = open();
    std::map<std::string, std::string> all = artifact->tokenizer().named_templates;
    all["default"] = artifact->tokenizer().chat_template;
    return all;
  };
  using Map = std::map<std::string, std::string>;
  directory_.write("tokenizer_config.json", json{{"chat_template",
                                                  {{{"name", "default"}, {"template", "D"}},
                                                   {{"name", "tool_use"}, {"template", "U"}}}}});
  EXPECT_EQ(templates(), (Map{{"default", "D"}, {"tool_use", "U"}}));
  directory_.write("chat_template.json", json{{"chat_template", "J"}});
  EXPECT_EQ(templates(), (Map{{"default", "J"}}));
  directory_.write("chat_template.jinja", std::string_view("F"));
  EXPECT_EQ(templates(), (Map{{"default", "F"}}));
  directory_.write("additional_chat_templates/rag.jinja", std::string_view("R"));
  EXPECT_EQ(templates(), (Map{{"default", "F"}, {"rag", "R"}}));
}

TEST_F(DirectoryArtifactTest, BrokenTokenizerConfigurations) {
  config({{"model_type", "x"}});
  const auto expect_bad = [&](const json& json, const std::string& text) {
    directory_.write("tokenizer_config.json", json);
    expect_error(ErrorCode::kCorruptData, text, [&] { open(); });
  };
  expect_bad({{"chat_template", 3}}, "chat_template is neither a string nor a list");
  expect_bad({{"chat_template", {{{"name", "x"}}}}}, "template is missing");
  expect_bad({{"chat_template", {{"default", 1}}}}, "chat_template \"default\" is no string");
  expect_bad({{"bos_token", 3}}, "bos_token is 3, must be a string");
  expect_bad({{"bos_token", {{"content", 3}}}}, "bos_token.content is 3, must be a string");
  expect_bad({{"add_bos_token", "yes"}}, "add_bos_token is \"yes\", must be true or false");
}

// --- MLX quantization
// -------------------------------------------------------------------------------

// [rows, cols] of codes that are all `code`, with scales 2 and biases -1 in the given type.
void add_affine(SafetensorsWriter& writer, const std::string& module, int bits, int group,
                int64_t rows, int64_t cols, uint32_t code, const char* dtype = "F32") {
  uint32_t word = 0;
  for (int i = 0; i < 32; i += bits) word |= code << i;
  writer.add(module + ".weight", "U32", {rows, cols * bits / 32},
             std::vector<uint32_t>(size_t(rows * cols * bits / 32), word));
  const std::vector<int64_t> shape = {rows, cols / group};
  const size_t n = size_t(rows * cols / group);
  const std::string type = dtype;
  if (type == "F32") {
    writer.add(module + ".scales", dtype, shape, std::vector<float>(n, 2.0f));
    writer.add(module + ".biases", dtype, shape, std::vector<float>(n, -1.0f));
  } else {
    const auto convert = type == "BF16" ? f32_to_bf16 : f32_to_f16;
    writer.add(module + ".scales", dtype, shape, std::vector<uint16_t>(n, convert(2.0f)));
    writer.add(module + ".biases", dtype, shape, std::vector<uint16_t>(n, convert(-1.0f)));
  }
}

float first_value(const RawWeight& weight) {
  std::vector<float> row(size_t(weight.cols));
  decode_row(weight, weight.rows - 1, row);
  return row.front();
}

// Each row of `weight` must equal `bits`, the rows' f32 values one after the other.
void expect_values(const RawWeight& weight, const std::vector<uint32_t>& bits) {
  ASSERT_EQ(bits.size(), size_t(weight.rows * weight.cols));
  std::vector<float> row(size_t(weight.cols));
  for (int64_t r = 0; r < weight.rows; ++r) {
    decode_row(weight, r, row);
    for (size_t i = 0; i < row.size(); ++i)
      ASSERT_EQ(std::bit_cast<uint32_t>(row[i]), bits[size_t(r) * row.size() + i])
          << "row " << r << ", column " << i;
  }
}

TEST_F(DirectoryArtifactTest, MlxDefaultsAndOverrides) {
  SafetensorsWriter writer;
  add_affine(writer, "model.embed_tokens", 4, 64, 3, 128, 5, "BF16");
  add_affine(writer, "model.layers.0.mlp.up_proj", 8, 32, 2, 64, 200, "F16");
  add_affine(writer, "model.layers.0.mlp.gate_proj", 4, 128, 2, 128, 15);
  add_affine(writer, "model.layers.0.mlp.down_proj", 8, 64, 2, 64, 7);
  writer.floats("model.layers.1.mlp.up_proj.weight", {2, 4});
  weights(writer);
  config({{"quantization",
           {{"bits", 4},
            {"group_size", 64},
            {"mode", "affine"},
            {"model.layers.0.mlp.up_proj", {{"bits", 8}, {"group_size", 32}}},
            {"model.layers.0.mlp.gate_proj", {{"bits", nullptr}, {"group_size", 128}}},
            {"model.layers.0.mlp.down_proj", {{"bits", 8}, {"group_size", nullptr}}},
            {"model.layers.1.mlp.up_proj", false}}}});
  const auto artifact = open();
  const RawWeight embed = artifact->weight("embed_tokens");
  EXPECT_TRUE(embed.affine());
  EXPECT_EQ(embed.bits, 4);
  EXPECT_EQ(embed.group, 64);
  EXPECT_EQ(embed.rows, 3);
  EXPECT_EQ(embed.cols, 128);
  EXPECT_EQ(first_value(embed), 2 * 5 - 1);
  EXPECT_EQ(first_value(artifact->weight("layers.0.mlp.up_proj")), 2 * 200 - 1);
  EXPECT_EQ(first_value(artifact->weight("layers.0.mlp.gate_proj")), 2 * 15 - 1);
  EXPECT_EQ(first_value(artifact->weight("layers.0.mlp.down_proj")), 2 * 7 - 1);
  EXPECT_FALSE(artifact->weight("layers.1.mlp.up_proj").affine());
  EXPECT_TRUE(artifact->unused().empty());
}

// What MLX itself decodes, bit by bit, from a directory that holds the same words.
TEST_F(DirectoryArtifactTest, MlxAffineEqualsMlx) {
  for (const goldens::Affine& golden : goldens::kAffine) {
    SCOPED_TRACE(fmt::format("{} bits, groups of {}", golden.bits, golden.group));
    const int64_t rows = goldens::kRows, groups = golden.cols / golden.group;
    const char* type = dtype_info(golden.dtype).name.data();
    SafetensorsWriter writer;
    writer.words("m.weight", "U32", {rows, golden.cols * golden.bits / 32}, golden.codes);
    writer.words("m.scales", type, {rows, groups}, golden.scales);
    writer.words("m.biases", type, {rows, groups}, golden.biases);
    weights(writer);
    config({{"quantization", {{"bits", golden.bits}, {"group_size", golden.group}}}});
    expect_values(open()->weight("m"), golden.values);
  }
}

TEST_F(DirectoryArtifactTest, MlxFloatModesEqualMlx) {
  for (const goldens::FloatCodes& golden : goldens::kFloatCodes) {
    SCOPED_TRACE(golden.name);
    const int64_t rows = goldens::kRows;
    SafetensorsWriter writer;
    writer.words("m.weight", "U32", {rows, golden.cols * golden.bits / 32}, golden.codes);
    writer.words("m.scales", "U8", {rows, golden.cols / golden.group}, golden.scales);
    add_affine(writer, "router", 8, 64, 2, 64, 3);
    weights(writer);
    // Bits and groups stated; MLX's own for the mode; as an exception; and one that says no mode.
    const json mode = {{"mode", golden.name}};
    for (const json& quantization : std::vector<json>{
             {{"bits", golden.bits}, {"group_size", golden.group}, {"mode", golden.name}},
             {{"mode", golden.name}},
             {{"bits", 8}, {"group_size", 64}, {"m", mode}}}) {
      config({{"quantization", quantization}});
      const RawWeight weight = open()->weight("m");
      EXPECT_EQ(weight.mode, golden.mode);
      EXPECT_FALSE(weight.affine());
      expect_values(weight, golden.values);
    }
    config({{"quantization", {{"mode", golden.name}, {"router", {{"bits", 8}}}}}});
    const auto artifact = open();
    EXPECT_TRUE(artifact->weight("router").affine());
    EXPECT_EQ(first_value(artifact->weight("router")), 2 * 3 - 1);
  }
}

// The same bytes as MLX's mxfp4, under the names that gpt-oss was published with.
TEST_F(DirectoryArtifactTest, PublishedExpertsAreMxfp4) {
  const auto mxfp4 =
      std::find_if(std::begin(goldens::kFloatCodes), std::end(goldens::kFloatCodes),
                   [](const auto& golden) { return golden.name == std::string("mxfp4"); });
  ASSERT_NE(mxfp4, std::end(goldens::kFloatCodes));
  const int64_t rows = goldens::kRows, groups = mxfp4->cols / 32;
  const std::string stem = "model.layers.0.mlp.experts.down_proj_";
  SafetensorsWriter writer;
  writer.words(stem + "blocks", "U8", {1, rows, groups, 16}, mxfp4->codes);
  writer.words(stem + "scales", "U8", {1, rows, groups}, mxfp4->scales);
  writer.floats(stem + "bias", {1, rows});
  weights(writer);
  config({{"quantization_config",
           {{"quant_method", "mxfp4"}, {"modules_to_not_convert", {"model.layers.*.self_attn"}}}}});
  const auto artifact = open();
  expect_values(artifact->weight("layers.0.mlp.experts.down_proj"), mxfp4->values);
  EXPECT_EQ(artifact->tensor("layers.0.mlp.experts.down_proj.bias").elements(), rows);
  EXPECT_TRUE(artifact->unused().empty());

  SafetensorsWriter flat;
  flat.words(stem + "blocks", "U8", {rows, groups * 16}, mxfp4->codes);
  weights(flat);
  expect_error(ErrorCode::kCorruptData, "down_proj_blocks\" must be u8 blocks of 16",
               [&] { open(); });
}

TEST_F(DirectoryArtifactTest, MlxAliasAndDefaults) {
  SafetensorsWriter writer;
  add_affine(writer, "model.norm", 4, 64, 2, 64, 3);
  weights(writer);
  config({{"quantization_config", {{"bits", 4}, {"group_size", nullptr}}}});
  EXPECT_EQ(open()->weight("norm").group, 64);
}

TEST_F(DirectoryArtifactTest, MlxSpecsThatCannotBe) {
  SafetensorsWriter writer;
  add_affine(writer, "model.layers.0.mlp.up_proj", 4, 64, 2, 64, 3);
  weights(writer);
  const auto expect_bad = [&](ErrorCode code, const json& quantization, const std::string& text) {
    config({{"quantization", quantization}});
    expect_error(code, text, [&] { open()->weight("layers.0.mlp.up_proj"); });
  };
  const std::string module = "model.layers.0.mlp.up_proj";
  expect_bad(ErrorCode::kUnsupported, {{"bits", 7}, {"group_size", 64}},
             "layers.0.mlp.up_proj is quantized to 7 bits in groups of 64");
  expect_bad(ErrorCode::kUnsupported, {{"bits", 4}, {"group_size", 64}, {module, {{"bits", 16}}}},
             "layers.0.mlp.up_proj is quantized to 16 bits in groups of 64");
  expect_bad(ErrorCode::kUnsupported, {{"bits", 4}, {"group_size", 16}}, "in groups of 16");
  expect_bad(ErrorCode::kUnsupported, {{"bits", 4}, {"group_size", 32}, {"mode", "trellis"}},
             "layers.0.mlp.up_proj is quantized in mode \"trellis\"; affine, mxfp4");
  expect_bad(ErrorCode::kUnsupported, {{"bits", 4}, {"group_size", 64}, {"mode", "mxfp4"}},
             "to 4 bits in groups of 64; mode mxfp4 has 4 bits in groups of 32");
  expect_bad(ErrorCode::kCorruptData, {{"mode", "mxfp8"}}, "there are biases, which this mode");
  expect_bad(ErrorCode::kCorruptData, {{"bits", 4}, {"group_size", 64}, {module, false}},
             "is not quantized, but it has scales");
  expect_bad(ErrorCode::kCorruptData, {{"bits", "four"}}, "quantization.bits is \"four\"");
  expect_bad(ErrorCode::kCorruptData, {{"bits", 4}, {module, {{"bits", -1}}}},
             "quantization." + module + ".bits is -1");
  expect_bad(ErrorCode::kCorruptData, {{"bits", 8}, {"group_size", 64}},
             "rows of 8 words do not match 1 scales");
  config({{"model_type", "x"}});
  expect_error(ErrorCode::kCorruptData, "has scales, but there is no \"quantization\"",
               [&] { open()->weight("layers.0.mlp.up_proj"); });
  config({{"quantization_config", {{"quant_method", "gptq"}, {"bits", 4}}}});
  expect_error(ErrorCode::kUnsupported, "weights quantized by \"gptq\" are not supported",
               [&] { open(); });
}

TEST_F(DirectoryArtifactTest, MlxShapesThatDisagree) {
  config({{"quantization", {{"bits", 4}, {"group_size", 64}}}});
  const auto expect_bad = [&](const SafetensorsWriter& writer, const std::string& text) {
    weights(writer);
    expect_error(ErrorCode::kCorruptData, text, [&] { open()->weight("norm"); });
  };
  const std::vector<uint32_t> codes(16);
  const auto codes_only = [&] {
    SafetensorsWriter writer;
    writer.add("norm.weight", "U32", {2, 8}, codes);
    return writer;
  };
  expect_bad(codes_only(), "holds packed codes but there is no \"norm.scales\"");
  expect_bad(codes_only().floats("norm.scales", {2, 1}), "there are scales but no biases");
  expect_bad(codes_only().floats("norm.scales", {2, 1}).floats("norm.biases", {1, 2}),
             "scales and biases differ");
  expect_bad(codes_only().floats("norm.scales", {1, 1}).floats("norm.biases", {1, 1}),
             "codes and scales differ in rows");
  expect_bad(codes_only().floats("norm.scales", {2}).floats("norm.biases", {2}),
             "codes and scales differ in rows");
  expect_bad(codes_only().floats("norm.scales", {2, 2}).floats("norm.biases", {2, 2}),
             "rows of 8 words do not match 2 scales");
  SafetensorsWriter wrong_codes;
  wrong_codes.floats("norm.weight", {2, 8})
      .floats("norm.scales", {2, 1})
      .floats("norm.biases", {2, 1});
  expect_bad(wrong_codes, "the codes are no u32 matrix");
  SafetensorsWriter wrong_scales = codes_only();
  wrong_scales.add<uint8_t>("norm.scales", "U8", {2, 1}, {1, 1})
      .add<uint8_t>("norm.biases", "U8", {2, 1}, {1, 1});
  expect_bad(wrong_scales, "scales must be f32, f16 or bf16");
  weights(codes_only().floats("norm.scales", {2, 1}).floats("norm.global_scale", {1}));
  expect_error(ErrorCode::kUnsupported, "\"norm.global_scale\": nvfp4 with a scale of the whole",
               [&] { open()->weight("norm"); });
  config({{"quantization", {{"mode", "mxfp4"}}}});
  expect_bad(codes_only().floats("norm.scales", {2, 2}), "scales must be u8");
}

}  // namespace
}  // namespace mantou::hub
