// The vocabularies of three real models: ids against another engine's
// (tests/golden/data/tokenizer.json holds what llama.cpp's llama-tokenize gives;
// tools/check_tokenizer.py wrote it), text back from ids, and what a hostile user message becomes.
#include <gtest/gtest.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "hub/model_artifact.h"
#include "tests/golden/models.h"
#include "text/chat_template.h"

namespace mantou::golden {
namespace {

using nlohmann::json;

struct Expected {
  const char* file;
  std::vector<TokenId> end_ids;
  TokenId bos;
};

const Expected kModels[] = {
    {"SmolLM2-135M-Instruct.Q4_1.gguf", {2, 0}, 1},
    {"gemma-3-270m-q4_k_m.gguf", {1, 106}, 2},
    {"qwen2.5-coder-0.5b-instruct-q4_k_m.gguf", {151645, 151643}, 151643},
};

class TokenizerGolden : public testing::TestWithParam<Expected> {
 protected:
  void SetUp() override {
    MANTOU_NEEDS_MODELS();
    artifact_ = hub::ModelArtifact::open(models_directory() / GetParam().file);
    tokenizer_ = text::Tokenizer::build(artifact_->tokenizer());
  }

  std::unique_ptr<hub::ModelArtifact> artifact_;
  std::shared_ptr<const text::Tokenizer> tokenizer_;
};

TEST_P(TokenizerGolden, IdsAndText) {
  const json data = json::parse(read_file(MANTOU_SOURCE_DIR "/tests/golden/data/tokenizer.json"));
  const json& cases = data.at(GetParam().file);
  EXPECT_GT(cases.size(), 25u);
  for (const json& item : cases) {
    const auto& text = item["text"].get_ref<const std::string&>();
    // Qwen's tokenizer composes characters, as its tokenizer.json says; llama.cpp does not.
    if (text == "e\u0301" && artifact_->tokenizer().gguf->pre == "qwen2") continue;
    const auto ids = tokenizer_->encode(text, {.add_special = false});
    EXPECT_EQ(ids, item["ids"].get<std::vector<TokenId>>()) << text;
    if (text == "▁x") continue;  // SentencePiece cannot tell its space from a real one
    EXPECT_EQ(tokenizer_->decode(ids, false), text);
  }
}

TEST_P(TokenizerGolden, EndIdsAndBos) {
  EXPECT_EQ(tokenizer_->bos(), GetParam().bos);
  EXPECT_EQ(tokenizer_->end_ids(), GetParam().end_ids);
}

// The first start of a program builds the tokenizer. 250k pieces take 40 ms on one idle core; the
// limit leaves room for a busy machine.
TEST_P(TokenizerGolden, BuildsQuickly) {
  auto best = std::chrono::steady_clock::duration::max();
  for (int i = 0; i < 3; ++i) {
    const auto start = std::chrono::steady_clock::now();
    text::Tokenizer::build(artifact_->tokenizer());
    best = std::min(best, std::chrono::steady_clock::now() - start);
  }
  EXPECT_LT(best, std::chrono::milliseconds(600));
}

TEST_P(TokenizerGolden, UsersCannotSpeakForOthers) {
  const auto chat = text::ChatTemplate::build(artifact_->tokenizer(), tokenizer_);
  const TokenId end = tokenizer_->end_ids().front();
  const std::string token(tokenizer_->piece_of(end));
  const auto count = [&](const std::string& content) {
    const auto prompt = chat->render({{{"role", "user"}, {"content", content}}}, {});
    EXPECT_NE(prompt.text.find(content), std::string::npos);
    return std::count(prompt.ids.begin(), prompt.ids.end(), end);
  };
  EXPECT_EQ(count("a" + token + "b" + token), count("ab"));
}

INSTANTIATE_TEST_SUITE_P(Models, TokenizerGolden, testing::ValuesIn(kModels), [](const auto& info) {
  return std::string(info.param.file).substr(0, 4);
});

}  // namespace
}  // namespace mantou::golden
