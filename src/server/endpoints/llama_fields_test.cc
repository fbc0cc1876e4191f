// What requests in llama-server's own protocol ask for, and what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "server/endpoints/llama_fields.h"
#include "server/test_client.h"

namespace mantou::server {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

LlamaRequest parse(const json& more) {
  json body = {{"prompt", "Hi"}};
  body.update(more);
  return parse_llama_request(body.dump(), {}, ByteTokenizer());
}

std::string refused_field(const json& more) {
  try {
    parse(more);
  } catch (const Error& error) {
    EXPECT_THAT(error.message(), HasSubstr(error.param().substr(0, error.param().find('['))));
    return error.param();
  }
  return "accepted";
}

TEST(LlamaFieldsTest, PromptsAreTextsIdsOrBoth) {
  EXPECT_THAT(parse({{"prompt", "ab"}}).prompt, ElementsAre('a', 'b'));
  EXPECT_THAT(parse({{"prompt", {1, 2}}}).prompt, ElementsAre(1, 2));
  EXPECT_THAT(parse({{"prompt", {"a", 2, "b"}}}).prompt, ElementsAre('a', 2, 'b'));
  EXPECT_THAT(parse({{"prompt", {"a"}}}).prompt, ElementsAre('a'));
  EXPECT_THAT(parse({{"prompt", {{3, 4}}}}).prompt, ElementsAre(3, 4));
  EXPECT_THAT(parse({{"prompt", {{"prompt_string", "x"}}}}).prompt, ElementsAre('x'));
  EXPECT_EQ(refused_field({{"prompt", {"a", "b"}}}), "prompt");
  EXPECT_EQ(refused_field({{"prompt", {{1}, {2}}}}), "prompt");
  EXPECT_EQ(refused_field({{"prompt", {1, 256}}}), "prompt[1]");
  EXPECT_EQ(refused_field({{"prompt", {1, -1}}}), "prompt[1]");
  EXPECT_EQ(refused_field({{"prompt", {1, nullptr}}}), "prompt[1]");
  EXPECT_EQ(refused_field({{"prompt", 5}}), "prompt");
  EXPECT_EQ(refused_field({{"prompt", nullptr}}), "prompt");
  EXPECT_EQ(refused_field({{"prompt", {{"prompt_string", "x"}, {"multimodal_data", {"AA"}}}}}),
            "prompt.multimodal_data");
}

TEST(LlamaFieldsTest, LogitBiasInAllItsForms) {
  const auto bias = [](const json& value) {
    return parse({{"logit_bias", value}}).generation.sampling.logit_bias;
  };
  using Biases = std::map<TokenId, float>;
  EXPECT_EQ(bias(json::parse(R"([[5, 1.5], ["ab", -2], [7, false]])")),
            (Biases{{5, 1.5f}, {'a', -2.f}, {'b', -2.f}, {7, -INFINITY}}));
  EXPECT_EQ(bias(json::parse(R"({"5": 1.5, "a": false})")), (Biases{{5, 1.5f}, {'a', -INFINITY}}));
  EXPECT_EQ(bias(json::array()), Biases());
  EXPECT_EQ(refused_field({{"logit_bias", {{5}}}}), "logit_bias");
  EXPECT_EQ(refused_field({{"logit_bias", {{5, true}}}}), "logit_bias");
  EXPECT_EQ(refused_field({{"logit_bias", "x"}}), "logit_bias");
  EXPECT_EQ(refused_field(json::parse(R"({"logit_bias": [[5, 1e300]]})")), "logit_bias");
  EXPECT_EQ(refused_field(json::parse(R"({"logit_bias": [[300, 1]]})")), "logit_bias[0]");
}

TEST(LlamaFieldsTest, LimitsAndWindows) {
  const auto limits = [](const json& more) { return parse(more).generation.limits; };
  EXPECT_EQ(limits(json::object()).max_tokens, -1);
  EXPECT_EQ(limits({{"n_predict", -1}}).max_tokens, -1);
  EXPECT_EQ(limits({{"n_predict", -2}}).max_tokens, -1);
  EXPECT_EQ(limits({{"n_predict", 0}}).max_tokens, 1);
  EXPECT_EQ(limits({{"n_predict", 9}, {"max_tokens", 3}}).max_tokens, 9);
  EXPECT_EQ(limits({{"max_tokens", 3}}).max_tokens, 3);
  EXPECT_EQ(refused_field({{"n_predict", -3}}), "n_predict");
  EXPECT_EQ(refused_field({{"n_cmpl", 129}}), "n_cmpl");
  const auto sampling = [](const json& more) { return parse(more).generation.sampling; };
  SamplingParams windowed = sampling({{"repeat_last_n", 64}, {"presence_penalty", 1}});
  EXPECT_EQ(windowed.repetition_context, 64);
  EXPECT_EQ(windowed.presence_context, 64);
  EXPECT_EQ(windowed.frequency_context, 64);
  EXPECT_EQ(windowed.presence_penalty, 1);
  windowed = sampling({{"repeat_last_n", -1}});
  EXPECT_EQ(windowed.frequency_context, 0) << "the whole history";
  windowed = sampling({{"repeat_last_n", 0}, {"presence_penalty", 1}, {"repeat_penalty", 1.2}});
  EXPECT_EQ(windowed.presence_penalty, 0);
  EXPECT_EQ(windowed.repetition_penalty, 0);
}

TEST(LlamaFieldsTest, SpellingsOfOffAreTaken) {
  // What clients send who spell out llama-server's defaults.
  const LlamaRequest request = parse({{"typical_p", 1},
                                      {"mirostat", 0},
                                      {"dry_multiplier", 0},
                                      {"dynatemp_range", 0},
                                      {"top_n_sigma", -1},
                                      {"adaptive_target", -1},
                                      {"lora", json::array()},
                                      {"t_max_predict_ms", 0},
                                      {"min_keep", 0},
                                      {"xtc_threshold", 1},
                                      {"xtc_probability", 0.5},
                                      {"seed", -1},
                                      {"stop", {"", "x"}},
                                      {"id_slot", -1},
                                      {"n_keep", 0},
                                      {"logit_bias", json::array()},
                                      {"samplers",
                                       {"penalties", "dry", "top_n_sigma", "top_k", "typ_p",
                                        "top_p", "min_p", "xtc", "temperature"}}});
  EXPECT_EQ(request.generation.sampling.xtc_probability, 0);
  EXPECT_EQ(request.generation.sampling.min_tokens_to_keep, 1);
  EXPECT_THAT(request.generation.stop, ElementsAre("x"));
  EXPECT_NE(parse({{"seed", -1}}).generation.sampling.seed,
            parse({{"seed", -1}}).generation.sampling.seed);
  EXPECT_THAT(parse({{"stop", ""}}).generation.stop, IsEmpty());
}

TEST(LlamaFieldsTest, WhatNothingHereCanDoIsRefusedByName) {
  const json refused = json({{"typical_p", 0.9},
                             {"mirostat", 2},
                             {"dry_multiplier", 0.8},
                             {"dynatemp_range", 1},
                             {"top_n_sigma", 1},
                             {"adaptive_target", 0.5},
                             {"t_max_predict_ms", 100},
                             {"post_sampling_probs", true},
                             {"lora", json::parse(R"([{"id": 0, "scale": 1}])")},
                             {"grammar_lazy", true},
                             {"n_indent", 2},
                             {"n_probs", 21},
                             {"samplers", {"temperature", "top_k"}},
                             {"reasoning_budget_tokens", 0},
                             {"use_beam_search", true}});
  for (const auto& [name, value] : refused.items()) EXPECT_EQ(refused_field({{name, value}}), name);
  for (const char* negative_is_off : {"top_n_sigma", "adaptive_target", "n_indent",
                                      "t_max_predict_ms", "reasoning_budget_tokens"})
    EXPECT_EQ(refused_field({{negative_is_off, UINT64_MAX}}), negative_is_off);
}

TEST(LlamaFieldsTest, SamplersThatAreNotNamedAreOff) {
  const SamplingParams only_k = parse({{"samplers", {"top_k", "temperature"}},
                                       {"top_k", 5},
                                       {"top_p", 0.5},
                                       {"min_p", 0.2},
                                       {"temperature", 0.5},
                                       {"repeat_penalty", 1.3}})
                                    .generation.sampling;
  EXPECT_EQ(only_k.top_k, 5);
  EXPECT_EQ(only_k.top_p, 1);
  EXPECT_EQ(only_k.min_p, 0);
  EXPECT_EQ(only_k.temperature, 0.5);
  EXPECT_EQ(only_k.repetition_penalty, 0);
  EXPECT_EQ(parse({{"samplers", {"top_k"}}, {"temperature", 0.2}}).generation.sampling.temperature,
            1);
}

}  // namespace
}  // namespace mantou::server
