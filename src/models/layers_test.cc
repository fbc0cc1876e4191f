// The configuration of dense decoders. Expected values are transformers' (configuration_llama.py:
// defaults of absent keys, names of activations).
#include "models/layers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

DenseConfig read(const json& config) {
  return read_dense_config(hub::ConfigReader(config, "config.json"));
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

TEST(DenseConfig, AbsentKeysHaveTheirDefaults) {
  const DenseConfig config = read(smallest());
  EXPECT_EQ(config.kv_heads, 6);
  EXPECT_EQ(config.head_dim, 16);
  EXPECT_FLOAT_EQ(config.norm_eps, 1e-6f);
  EXPECT_FALSE(config.tied);
  EXPECT_EQ(config.activation, Activation::kSilu);
}

TEST(DenseConfig, ActivationsByName) {
  json config = smallest();
  config["hidden_act"] = "gelu_pytorch_tanh";
  EXPECT_EQ(read(config).activation, Activation::kGeluTanh);
  config["hidden_act"] = "gelu";
  EXPECT_EQ(read(config).activation, Activation::kGeluErf);
  EXPECT_THAT(refusal("hidden_act", "relu2", ErrorCode::kUnsupported),
              HasSubstr("config.json: hidden_act \"relu2\" is not supported"));
}

TEST(DenseConfig, RefusesHeadsThatDoNotFit) {
  EXPECT_THAT(refusal("num_key_value_heads", 4, ErrorCode::kCorruptData),
              HasSubstr("num_attention_heads is 6, no multiple of num_key_value_heads (4)"));
  EXPECT_THAT(refusal("head_dim", 15, ErrorCode::kUnsupported), HasSubstr("head_dim is 15"));
}

// Angles of rotation j of a head are theta^(-2j / head_dim): arXiv:2104.09864, section 3.2.2.
TEST(PlainRope, FrequenciesFallGeometrically) {
  const Rope rope = plain_rope(10000, 8);
  ASSERT_EQ(rope.inv_freq.size(), 4u);
  const double expected[] = {1, 0.1, 0.01, 0.001};
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(rope.inv_freq[i], expected[i], 1e-15);
}

}  // namespace
}  // namespace mantou::models
