// POST /v1/completions, OpenAI's legacy shapes: a prompt continued as it stands, without template.
#include <algorithm>
#include <utility>

#include "base/utf8.h"
#include "server/completion_sink.h"
#include "server/endpoints/endpoints.h"
#include "server/endpoints/openai_format.h"
#include "server/generation_fields.h"

namespace mantou::server {
namespace {

// A token as a key or text of the legacy logprobs; parts of characters are spelled out.
std::string legacy_token(std::string_view bytes) {
  if (is_utf8(bytes)) return std::string(bytes);
  std::string text = "bytes:";
  for (const char byte : bytes) text += fmt::format("\\x{:02x}", uint8_t(byte));
  return text;
}

int64_t characters(std::string_view bytes) {
  return std::count_if(bytes.begin(), bytes.end(), [](char c) { return (c & 0xc0) != 0x80; });
}

class CompletionFormat final : public OpenAiFormat {
 public:
  // `logprob_list`: logprobs as mlx-lm's server writes them, in the shape of chat.
  CompletionFormat(ReplyHead head, bool logprob_list)
      : OpenAiFormat(std::move(head), "text_completion", "text_completion"),
        logprob_list_(logprob_list) {}

  std::string first_events(int choices) override {
    offsets_.resize(size_t(choices));
    return {};
  }

  std::string delta_events(const ChoiceState& state, std::span<const text::OutputEvent> delta,
                           std::span<const ReportedToken> tokens) override {
    std::string text;
    for (const text::OutputEvent& event : delta) text += event.text;
    return event(choice(state.index, text, logprobs(state.index, tokens), nullptr));
  }

 private:
  Json last_choice(const ChoiceState& state) override {
    return choice(state.index, "", nullptr, state.finish);
  }

  Json whole_choice(const ChoiceState& state) override {
    offsets_.resize(std::max(offsets_.size(), size_t(state.index) + 1));
    return choice(state.index, state.content, logprobs(state.index, state.tokens), state.finish);
  }

  static Json choice(int index, std::string_view text, Json logprobs, Json finish) {
    return {{"index", index},
            {"text", text},
            {"logprobs", std::move(logprobs)},
            {"finish_reason", std::move(finish)}};
  }

  Json logprobs(int index, std::span<const ReportedToken> tokens) {
    if (!head_.logprobs) return nullptr;
    if (logprob_list_) return {{"content", logprob_list(tokens)}};
    int64_t& offset = offsets_[size_t(index)];
    Json texts = Json::array(), values = Json::array();
    Json tops = Json::array(), offsets = Json::array();
    for (const ReportedToken& token : tokens) {
      texts.push_back(legacy_token(token.chosen.bytes));
      values.push_back(finite_logprob(token.chosen.logprob));
      offsets.push_back(offset);
      offset += characters(token.chosen.bytes);
      if (!token.chosen.logprob) {
        tops.push_back(nullptr);
        continue;
      }
      Json top = Json::object();
      for (const auto& other : token.top)
        top[legacy_token(other.bytes)] = finite_logprob(other.logprob);
      top[texts.back().get<std::string>()] = values.back();
      tops.push_back(std::move(top));
    }
    return {{"tokens", std::move(texts)},
            {"token_logprobs", std::move(values)},
            {"top_logprobs", head_.top_logprobs > 0 ? std::move(tops) : Json(nullptr)},
            {"text_offset", std::move(offsets)}};
  }

  const bool logprob_list_;
  std::vector<int64_t> offsets_;  // of each choice: characters of the text before the next token
};

}  // namespace

void completions(const Services& services, const HttpRequest& request,
                 const std::shared_ptr<Responder>& responder) {
  CompletionRequest parsed = parse_completion_request(request.body, services.defaults,
                                                      services.engine.capabilities().vocab_size);
  std::vector<Prompt> prompts;
  for (CompletionRequest::Prompt& given : parsed.prompts) {
    Prompt prompt{std::move(given.ids), std::move(given.field), std::move(given.text)};
    if (prompt.ids.empty())
      prompt.ids = services.tokenizer->encode(prompt.text, {.add_eos = false});
    else if (parsed.generation.echo)
      prompt.text = services.tokenizer->decode(prompt.ids, /*skip_special=*/false);
    prompts.push_back(std::move(prompt));
  }
  auto format = std::make_unique<CompletionFormat>(make_head(services, parsed.generation, "cmpl-"),
                                                   parsed.logprob_list);
  start_generation(services, request, responder, prompts, std::move(parsed.generation),
                   std::move(format));
}

}  // namespace mantou::server
