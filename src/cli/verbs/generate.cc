#include <fmt/format.h>

#include <cstdio>
#include <iostream>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "cli/answer.h"
#include "cli/load.h"
#include "cli/verbs/verbs.h"

namespace mantou::cli {
namespace {

std::string read_prompt(const PromptOptions& options) {
  if (!options.prompt.empty()) return options.prompt;
  std::string text(std::istreambuf_iterator<char>(std::cin), {});
  if (text.ends_with('\n')) text.pop_back();
  if (text.empty())
    fail_param(ErrorCode::kInvalidArgument, "--prompt",
               "the prompt is empty: give it as words, with --prompt or on standard input");
  return text;
}

// The chat template around the prompt, unless --raw or the checkpoint has none (base models).
std::vector<TokenId> prompt_ids(const LoadedModel& model, const PromptOptions& options) {
  const std::string prompt = read_prompt(options);
  if (options.raw || model.chat_template->is_fallback()) {
    for (const auto& [flag, value] :
         {std::pair("--system", &options.system),
          std::pair("--chat-template-kwargs", &options.chat_template_kwargs)})
      if (!value->empty())
        fail_param(ErrorCode::kInvalidArgument, flag, "{} needs a chat template: {}", flag,
                   options.raw ? "leave --raw out" : "this checkpoint has none");
    return model.tokenizer->encode(prompt, {});
  }
  nlohmann::json messages = nlohmann::json::array();
  if (!options.system.empty())
    messages.push_back({{"role", "system"}, {"content", options.system}});
  messages.push_back({{"role", "user"}, {"content", prompt}});
  return model.chat_template->render(messages, chat_options(options)).ids;
}

void print_now(std::string_view text) {
  fmt::print("{}", text);
  std::fflush(stdout);
}

}  // namespace

int run_generate(const Options& options) {
  LoadedModel model = load_model(options.model);
  Request request = make_request(model, options.sampling, options.limits);
  request.prompt = prompt_ids(model, options.prompt);
  Engine engine(std::move(model.executor), {1, {schedule_of(model, options.model)}});
  const Outcome outcome =
      answer(engine, std::move(request), text::TextStream(model.tokenizer, options.limits.stop),
             print_now, /*interruptible=*/false);
  if (outcome.error) throw *outcome.error;
  fmt::print("\n");
  if (options.prompt.stats)
    fmt::print(stderr, "{} | loaded in {:.2f} s\n", describe(stats_of(outcome)),
               model.load_seconds);
  return 0;
}

}  // namespace mantou::cli
