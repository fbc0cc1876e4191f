// Prompt ids and greedy tokens of three real models against another engine's published runs
// (tests/golden/data/greedy.json says which).
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "cli/load.h"
#include "tests/golden/models.h"

namespace mantou::golden {
namespace {

using nlohmann::json;

const json& goldens() {
  static const json data =
      json::parse(read_file(MANTOU_SOURCE_DIR "/tests/golden/data/greedy.json"));
  return data["models"];
}

cli::LoadedModel load(const std::string& key) {
  cli::ModelOptions options;
  options.model = (models_directory() / goldens()[key]["file"].get<std::string>()).string();
  options.ctx_size = 2048;
  return cli::load_model(options);
}

std::vector<TokenId> greedy(Executor& executor, std::vector<TokenId> prompt, int count) {
  Request request;
  request.id = 1;
  request.prompt = std::move(prompt);
  request.sampling.temperature = 0;
  request.limits.max_tokens = count;
  executor.admit(request);
  std::vector<TokenId> tokens;
  int next = int(request.prompt.size());
  for (bool more = true; more; next = 1) {
    StepPlan plan;
    plan.work.push_back({1, next, Output::kSample});
    const StepResults results = executor.collect(executor.submit(plan));
    const RowResult& row = results.rows.at(0);
    if (row.error) throw *row.error;
    tokens.push_back(row.token->id);
    more = !row.finished;
  }
  executor.release(1, Release::kDrop);
  return tokens;
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

TEST_P(Greedy, Tokens) {
  MANTOU_NEEDS_MODELS();
  const cli::LoadedModel model = load(GetParam());
  for (const auto& [name, run] : goldens()[GetParam()]["runs"].items()) {
    const auto want = run["tokens"].get<std::vector<TokenId>>();
    const auto got =
        greedy(*model.executor, run["prompt_ids"].get<std::vector<TokenId>>(), int(want.size()));
    if (run["stable"].get<bool>()) {
      EXPECT_EQ(got, want) << name;
    } else {
      // A near-tie: two builds of the other engine part here, too. The first token has a margin.
      EXPECT_EQ(got.at(0), want.at(0)) << name;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Models, Greedy, testing::Values("smollm2", "gemma", "qwen"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace mantou::golden
