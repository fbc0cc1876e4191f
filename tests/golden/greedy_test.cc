// Prompt ids and greedy tokens of three real models against another engine's published runs
// (tests/golden/data/greedy.json says which).
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "cli/answer.h"
#include "cli/load.h"
#include "tests/golden/forcer.h"
#include "tests/golden/models.h"

namespace mantou::golden {
namespace {

using nlohmann::json;

const json& goldens() {
  static const json data =
      json::parse(read_file(MANTOU_SOURCE_DIR "/tests/golden/data/greedy.json"));
  return data["models"];
}

std::filesystem::path file_of(const std::string& key) {
  return models_directory() / goldens()[key]["file"].get<std::string>();
}

cli::LoadedModel load(const std::string& key) {
  cli::ModelOptions options;
  options.model = file_of(key).string();
  options.ctx_size = 2048;
  return cli::load_model(options);
}

class Greedy : public testing::TestWithParam<const char*> {};

TEST_P(Greedy, PromptIds) {
  MANTOU_NEEDS_MODELS();
  const cli::LoadedModel model = load(GetParam());
  for (const auto& [name, run] : goldens()[GetParam()]["runs"].items()) {
    const auto want = run["prompt_ids"].get<std::vector<TokenId>>();
    EXPECT_EQ(model.tokenizer->encode(run["prompt"].get<std::string>(), {}), want) << name;
    if (name != "chat") continue;
    const auto prompt = model.chat_template->render(
        {{{"role", "user"}, {"content", "What is the capital of France?"}}}, {});
    EXPECT_EQ(prompt.text, run["prompt"].get<std::string>());
    EXPECT_EQ(prompt.ids, want);
  }
}

// Teacher-forced along the recorded run: the best token is the recorded one, but for near-ties.
TEST_P(Greedy, Tokens) {
  MANTOU_NEEDS_MODELS();
  Forcer forcer(file_of(GetParam()), 2, KvType::kF16);
  for (const auto& [name, run] : goldens()[GetParam()]["runs"].items()) {
    if (!run.contains("tokens")) continue;
    auto ids = run["prompt_ids"].get<std::vector<int32_t>>();
    const auto tokens = run["tokens"].get<std::vector<int32_t>>();
    ids.insert(ids.end(), tokens.begin(), tokens.end());
    const std::vector<Logits> logits = forcer.run({ids}, 512, tokens.size())[0];
    for (size_t i = 0; i < tokens.size(); i++) {
      if (run["near_ties"].contains(std::to_string(i))) continue;
      const auto best = std::max_element(logits[i].begin(), logits[i].end()) - logits[i].begin();
      EXPECT_EQ(best, tokens[i]) << GetParam() << ' ' << name << ", token " << i;
    }
  }
}

// One run without any near-tie, through everything that generates.
TEST(GreedyAnswer, QwenNamesTheCapitalOfFrance) {
  MANTOU_NEEDS_MODELS();
  cli::LoadedModel model = load("qwen");
  Request request;
  request.prompt =
      model.chat_template
          ->render({{{"role", "user"}, {"content", "What is the capital of France?"}}}, {})
          .ids;
  request.sampling.temperature = 0;
  Engine engine(std::move(model.executor));
  std::string text;
  const Outcome outcome = cli::answer(
      engine, request, text::TextStream(model.tokenizer, {}),
      [&](std::string_view more) { text += more; }, /*interruptible=*/false);
  EXPECT_EQ(text, "The capital of France is Paris.");
  EXPECT_EQ(outcome.completion_tokens, 8);
  EXPECT_EQ(outcome.reason, FinishReason::kStop);
}

INSTANTIATE_TEST_SUITE_P(Models, Greedy, testing::Values("smollm2", "gemma", "qwen"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace mantou::golden
