// The configuration of dense decoders and of their ropes. Expected values are transformers'
// (configuration_llama.py: defaults of absent keys, names of activations) and the formula published
// with Llama 3.1, in float64.
#include "models/layers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <vector>

#include "base/error.h"

namespace mantou::models {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

json smallest() {
  return {{"hidden_size", 96},
          {"num_hidden_layers", 2},
          {"num_attention_heads", 6},
          {"intermediate_size", 128},
          {"vocab_size", 100}};
}

DecoderConfig read(const json& config) {
  return read_decoder_config(hub::ConfigReader(config, "config.json"));
}

std::string refusal(const char* key, const json& value, ErrorCode code) {
  json config = smallest();
  config[key] = value;
  try {
    read(config);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.message();
    return error.message();
  }
  return "no error";
}

TEST(DecoderConfig, AbsentKeysHaveTheirDefaults) {
  const DecoderConfig config = read(smallest());
  EXPECT_EQ(config.kv_heads, 6);
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_FLOAT_EQ(config.norm_eps, 1e-6f);
  EXPECT_FALSE(config.tied);
  EXPECT_EQ(config.activation, Activation::kSilu);
}

TEST(DecoderConfig, ActivationsByName) {
  json config = smallest();
  config["hidden_act"] = "gelu_pytorch_tanh";
  EXPECT_EQ(read(config).activation, Activation::kGeluTanh);
  config["hidden_act"] = "gelu";
  EXPECT_EQ(read(config).activation, Activation::kGeluErf);
  EXPECT_THAT(refusal("hidden_act", "relu2", ErrorCode::kUnsupported),
              HasSubstr("config.json: hidden_act \"relu2\" is not supported"));
}

TEST(DecoderConfig, RefusesHeadsThatDoNotFit) {
  EXPECT_THAT(refusal("num_key_value_heads", 4, ErrorCode::kCorruptData),
              HasSubstr("num_attention_heads is 6, no multiple of num_key_value_heads (4)"));
  EXPECT_THAT(refusal("head_dim", 15, ErrorCode::kUnsupported), HasSubstr("head_dim is 15"));
}

TEST(DecoderConfig, RefusesLayersItDoesNotKnow) {
  EXPECT_THAT(refusal("layer_types", json::array({"full_attention", "chunked_attention"}),
                      ErrorCode::kCorruptData),
              HasSubstr("layer_types names \"chunked_attention\""));
  EXPECT_THAT(refusal("layer_types", json::array({"full_attention"}), ErrorCode::kCorruptData),
              HasSubstr("has 1 entries for 2 layers"));
}

// Angles of rotation j of a head are theta^(-2j / head_dim): arXiv:2104.09864, section 3.2.2.
TEST(PlainRope, FrequenciesFallGeometrically) {
  const Rope rope = plain_rope(10000, 8);
  ASSERT_EQ(rope.inv_freq.size(), 4u);
  const double expected[] = {1, 0.1, 0.01, 0.001};
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(rope.inv_freq[i], expected[i], 1e-15);
}

// A checkpoint that holds nothing, or rope_freqs.weight alone.
class RopeArtifact final : public hub::ModelArtifact {
 public:
  explicit RopeArtifact(std::vector<float> divisors) : divisors_(std::move(divisors)) {}
  hub::Format format() const override { return hub::Format::kGguf; }
  const std::filesystem::path& path() const override { return path_; }
  const std::string& name() const override { return name_; }
  const json& config() const override { return empty_; }
  const json& generation_config() const override { return empty_; }
  const TokenizerSource& tokenizer() const override { return tokenizer_; }
  bool norm_plus_one_baked() const override { return false; }
  RawWeight weight(std::string_view) override { return {}; }
  bool has(std::string_view tensor) const override {
    return tensor == "rope_freqs.weight" && !divisors_.empty();
  }
  RawTensor tensor(std::string_view name) override {
    RawTensor tensor;
    tensor.name = name;
    tensor.shape = {int64_t(divisors_.size())};
    tensor.bytes = std::as_bytes(std::span(divisors_));
    return tensor;
  }
  std::vector<std::string> unused() const override { return {}; }
  std::vector<TensorInfo> tensors() const override { return {}; }

 private:
  std::vector<float> divisors_;
  std::filesystem::path path_ = "tiny.gguf";
  std::string name_ = "tiny";
  json empty_ = json::object();
  TokenizerSource tokenizer_;
};

std::vector<double> frequencies(const json& config, int head_dim,
                                RopeArtifact artifact = RopeArtifact({})) {
  return read_rope(artifact, hub::ConfigReader(config, "config.json"), head_dim).inv_freq;
}

json llama3(double theta, double factor, double low, double high, int original) {
  return {{"rope_theta", theta},
          {"rope_scaling",
           {{"rope_type", "llama3"},
            {"factor", factor},
            {"low_freq_factor", low},
            {"high_freq_factor", high},
            {"original_max_position_embeddings", original}}}};
}

void expect_near(double actual, double expected, size_t i, double relative = 1e-14) {
  EXPECT_NEAR(actual, expected, relative * expected) << "frequency " << i;
}
constexpr double kRoundedFactor = 0x1p-24;  // where a factor is rounded to f32

// In the terms of the paper: a rotation that turns more than `high` times within the original
// context is kept, one that turns less than `low` times becomes `factor` times slower, and those
// between are mixed by where their number of turns lies.
TEST(ReadRope, Llama3FollowsThePublishedFormula) {
  struct Case {
    double theta, factor, low, high;
    int original, head_dim;
  };
  for (const Case& c : {Case{500000, 8, 1, 4, 8192, 128}, Case{500000, 32, 1, 4, 8192, 64},
                        Case{10000, 2.5, 2, 16, 2048, 96}}) {
    const auto actual =
        frequencies(llama3(c.theta, c.factor, c.low, c.high, c.original), c.head_dim);
    ASSERT_EQ(actual.size(), size_t(c.head_dim) / 2);
    int kept = 0, mixed = 0, slowed = 0;
    for (size_t i = 0; i < actual.size(); ++i) {
      const double plain = std::exp(-2.0 * double(i) / c.head_dim * std::log(c.theta));
      const double turns = c.original * plain / (2 * std::numbers::pi);
      double share = (turns - c.low) / (c.high - c.low);  // of the frequency as it was
      ++(share >= 1 ? kept : share <= 0 ? slowed : mixed);
      share = std::fmin(std::fmax(share, 0), 1);
      expect_near(actual[i], plain * (share + (1 - share) / c.factor), i, kRoundedFactor);
    }
    EXPECT_TRUE(kept > 0 && mixed > 0 && slowed > 0);
  }
}

// Llama 3.1 8B and Llama 3.2 1B; the numbers are those of a Python transcription of
// apply_scaling() in Meta's llama-models.
TEST(ReadRope, Llama3OfPublishedModels) {
  const auto large = frequencies(llama3(500000, 8, 1, 4, 8192), 128);
  const double expected_large[] = {1.0,
                                   0.19392274474868576,
                                   0.03760603093086393,
                                   0.0072926647372171085,
                                   0.0005248461609929547,
                                   3.428102195952591e-05,
                                   6.647869871181236e-06,
                                   1.2891731721515574e-06};
  for (size_t i = 0; i < 8; ++i)
    expect_near(large[8 * i], expected_large[i], 8 * i, kRoundedFactor);
  const auto small = frequencies(llama3(500000, 32, 1, 4, 8192), 64);
  const double expected_small[] = {1.0,
                                   0.19392274474868576,
                                   0.03760603093086393,
                                   0.0072926647372171085,
                                   0.00042955679655936815,
                                   8.570255489881478e-06,
                                   1.661967467795309e-06,
                                   3.2229329303788936e-07};
  for (size_t i = 0; i < 8; ++i)
    expect_near(small[4 * i], expected_small[i], 4 * i, kRoundedFactor);
  // 1, 4 and 8192 are what absent keys mean.
  EXPECT_EQ(
      frequencies({{"rope_theta", 5e5}, {"rope_scaling", {{"rope_type", "llama3"}, {"factor", 8}}}},
                  128),
      large);
}

TEST(ReadRope, LinearDividesEveryFrequency) {
  for (const char* key : {"rope_type", "type"}) {
    const auto actual =
        frequencies({{"rope_theta", 1e4}, {"rope_scaling", {{key, "linear"}, {"factor", 8}}}}, 16);
    ASSERT_EQ(actual.size(), 8u);
    for (size_t i = 0; i < 8; ++i) expect_near(actual[i], std::pow(1e4, -double(i) / 8) / 8, i);
  }
}

TEST(ReadRope, ATableDividesFrequenciesOneByOne) {
  const auto actual = frequencies({{"rope_theta", 1e4}}, 8, RopeArtifact({1, 2, 4, 0.5f}));
  const double expected[] = {1, 0.05, 0.0025, 0.002};
  for (size_t i = 0; i < 4; ++i) expect_near(actual[i], expected[i], i);
}

Rope rope_of(const json& config, int head_dim) {
  RopeArtifact artifact({});
  return read_rope(artifact, hub::ConfigReader(config, "config.json"), head_dim);
}

TEST(ReadRope, APartOfTheHead) {
  const auto actual = frequencies({{"rope_theta", 1e4}, {"partial_rotary_factor", 0.25}}, 32);
  ASSERT_EQ(actual.size(), 4u);  // of the first 8 dimensions, as if they were the head
  for (size_t i = 0; i < 4; ++i) expect_near(actual[i], std::pow(1e4, -double(i) / 4), i);
}

// In the terms of arXiv:2309.00071, section 3.4: rotations with more than beta_fast turns in the
// original context keep their frequency, those with fewer than beta_slow are divided by the factor;
// the ramp between runs over whole dimensions. Frequencies and the temperature's factor.
TEST(ReadRope, YarnKeepsFastAndSlowsSlowRotations) {
  const json config = {
      {"rope_theta", 1e4},
      {"rope_scaling",
       {{"rope_type", "yarn"}, {"factor", 4}, {"original_max_position_embeddings", 512}}}};
  const Rope rope = rope_of(config, 64);
  EXPECT_FLOAT_EQ(rope.scale, float(0.1 * std::log(4.0) + 1));
  const auto bound = [](double turns) {  // the dimension with so many turns
    return 64 * std::log(512 / (turns * 2 * std::numbers::pi)) / (2 * std::log(1e4));
  };
  const double low = std::floor(bound(32)), high = std::ceil(bound(1));
  for (size_t i = 0; i < 32; ++i) {
    const double plain = std::pow(1e4, -double(i) / 32);
    const double slowed = std::fmin(std::fmax((double(i) - low) / (high - low), 0), 1);
    EXPECT_NEAR(rope.inv_freq[i], plain * (1 - slowed) + plain / 4 * slowed, 1e-14 * plain) << i;
  }
}

// arXiv:2402.13753 with the factors of a checkpoint; scale as in the published Phi-3 code,
// sqrt(1 + ln(s) / ln(L)) for s = longest / original.
TEST(ReadRope, LongropeDividesEachFrequency) {
  const json config = {
      {"rope_theta", 1e4},
      {"max_position_embeddings", 16384},
      {"original_max_position_embeddings", 4096},
      {"rope_scaling",
       {{"type", "longrope"}, {"short_factor", {1, 1, 1, 1}}, {"long_factor", {1, 1.5, 3, 40}}}}};
  const Rope rope = rope_of(config, 8);
  const double factors[] = {1, 1.5, 3, 40};
  for (size_t i = 0; i < 4; ++i)
    expect_near(rope.inv_freq[i], std::pow(1e4, -double(i) / 4) / factors[i], i);
  EXPECT_FLOAT_EQ(rope.scale, float(std::sqrt(1 + std::log(4.0) / std::log(4096.0))));
}

TEST(ReadRope, ProportionalTurnsTheFirstOfAllFrequencies) {
  const Rope rope =
      rope_of({{"rope_theta", 1e4},
               {"rope_scaling", {{"rope_type", "proportional"}, {"partial_rotary_factor", 0.5}}}},
              16);
  ASSERT_EQ(rope.inv_freq.size(), 8u);
  for (size_t i = 0; i < 8; ++i)
    EXPECT_NEAR(rope.inv_freq[i], i < 4 ? std::pow(1e4, -double(i) / 8) : 0, 1e-15) << i;
}

TEST(ReadRope, RefusalsNameTheKey) {
  const auto message = [](const json& config, RopeArtifact artifact = RopeArtifact({})) {
    try {
      frequencies(config, 8, std::move(artifact));
    } catch (const Error& error) {
      return error.message();
    }
    return std::string("no error");
  };
  EXPECT_THAT(message({{"rope_scaling", {{"rope_type", "ntk"}}}}), HasSubstr("\"ntk\""));
  EXPECT_THAT(message({{"rope_scaling", {{"rope_type", "yarn"}}}}),
              HasSubstr("rope_scaling.factor is missing"));
  EXPECT_THAT(message({{"rope_scaling", {{"type", "longrope"}, {"long_factor", {1, 2}}}}}),
              HasSubstr("long_factor has 2 entries, the rope needs 4"));
  EXPECT_THAT(message({{"rope_scaling", {{"rope_type", "linear"}}}}),
              HasSubstr("config.json: rope_scaling.factor is missing"));
  EXPECT_THAT(message(llama3(1e4, 8, 4, 4, 8192)),
              HasSubstr("rope_scaling.high_freq_factor must exceed low_freq_factor"));
  EXPECT_THAT(message({{"partial_rotary_factor", 1.5}}), HasSubstr("partial_rotary_factor is 1.5"));
  EXPECT_THAT(message(json::object(), RopeArtifact({1, 2})),
              HasSubstr("rope_freqs.weight has 2 elements, the rope needs 4"));
}

}  // namespace
}  // namespace mantou::models
