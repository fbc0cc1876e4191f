#include "text/formats/gemma_calls.h"

#include <array>

#include "text/messages.h"
#include "text/strip.h"

namespace mantou::text {
namespace {

struct Dialect {
  std::string_view quote, close;
};
constexpr std::array<Dialect, 2> kDialects = {  // by opener
    {{"<|\"|>", "<tool_call|>"}, {"<escape>", "<end_function_call>"}}};

// The template prints what is neither a text nor a list as Python does.
std::string bare_value(std::string_view bare) {
  if (bare == "None") return "null";
  if (bare == "True") return "true";
  if (bare == "False") return "false";
  return json_compact(bare).value_or(json_quoted(bare));
}

}  // namespace

void GemmaCalls::open(size_t opener) {
  quote_ = kDialects[opener].quote;
  close_ = kDialects[opener].close;
  state_ = State::kCall;
  name_.clear();
  expected_.take();
}

CallParser::Step GemmaCalls::feed(char c) {
  switch (state_) {
    case State::kCall:
    case State::kAfter: {
      if (expected_.empty() && is_space(c)) return Step::kMore;
      const int found = state_ == State::kCall ? expected_.feed(c, {"call:"})
                                               : expected_.feed(c, {"call:", close_});
      if (found == Expected::kNone) return Step::kOver;
      if (found == 0) name_.clear();
      if (found == 0) state_ = State::kName;
      return found == 1 ? Step::kEnd : Step::kMore;
    }
    case State::kName:
      if (c != '{') return add_to_name(c, name_) ? Step::kMore : Step::kOver;
      begin();
      return Step::kMore;
    default:
      return arguments_byte(c);
  }
}

void GemmaCalls::begin() {
  sink_.begin(name_);
  state_ = State::kArguments;
  open_.clear();
  token_ = Token::kNone;
  comma_ = false;
  search_.take();
  open_bracket('{');
}

CallParser::Step GemmaCalls::arguments_byte(char c) {
  switch (token_) {
    case Token::kText:
      text_byte(c);
      return Step::kMore;
    case Token::kJsonString: {
      std::string piece;
      const JsonScanner::Step step = scanner_.feed(c, piece);
      put(piece);
      if (step == JsonScanner::Step::kDone) token_done();
      return Step::kMore;
    }
    case Token::kBare: {
      const std::string_view ends = place_ == Place::kKey ? ":,{}[]<" : ",}]<";
      if (ends.find(c) == std::string_view::npos) {
        bare_ += c;
        return Step::kMore;
      }
      const std::string_view bare = strip(bare_);
      put(place_ == Place::kKey ? json_quoted(bare) : bare_value(bare));
      token_done();
      return structure_byte(c);
    }
    default:
      return structure_byte(c);
  }
}

CallParser::Step GemmaCalls::structure_byte(char c) {
  if (expected_.empty() && is_space(c)) return Step::kMore;
  if (expected_.empty() && (c == '}' || c == ']')) return close_bracket(c);
  switch (place_) {
    case Place::kColon:
      if (c != ':') return Step::kOver;
      put(":");
      place_ = Place::kValue;
      return Step::kMore;
    case Place::kComma:
      if (c != ',') return Step::kOver;
      comma_ = true;
      place_ = open_.back() == '{' ? Place::kKey : Place::kValue;
      return Step::kMore;
    default:
      return start_token(c);
  }
}

CallParser::Step GemmaCalls::start_token(char c) {
  if (expected_.empty() && place_ == Place::kValue && (c == '{' || c == '['))
    return open_bracket(c);
  if (c == '<' || !expected_.empty()) {
    const int found = expected_.feed(c, {quote_});
    if (found != 0) return found == Expected::kMore ? Step::kMore : Step::kOver;
    put("\"");
    token_ = Token::kText;
    return Step::kMore;
  }
  if (c == '"') {
    put("");
    scanner_ = {};
    token_ = Token::kJsonString;
    return arguments_byte(c);
  }
  if (std::string_view(",:{[").find(c) != std::string_view::npos) return Step::kOver;
  bare_ = c;
  token_ = Token::kBare;
  return Step::kMore;
}

void GemmaCalls::text_byte(char c) {
  std::string piece;
  const std::string_view texts[] = {quote_};
  const int found = search_.feed(
      c, texts, [](size_t) { return true; }, [&](char b) { append_json_char(b, piece); });
  put(piece);
  if (found < 0) return;
  put("\"");
  token_done();
}

CallParser::Step GemmaCalls::open_bracket(char c) {
  if (open_.size() >= kMaxJsonDepth) return Step::kOver;
  put(std::string_view(&c, 1));
  open_ += c;
  place_ = c == '{' ? Place::kKey : Place::kValue;
  return Step::kMore;
}

CallParser::Step GemmaCalls::close_bracket(char c) {
  const bool between =
      place_ == Place::kComma || place_ == (c == '}' ? Place::kKey : Place::kValue);
  if (open_.back() != (c == '}' ? '{' : '[') || !between) return Step::kOver;
  comma_ = false;
  put(std::string_view(&c, 1));
  open_.pop_back();
  place_ = Place::kComma;
  if (!open_.empty()) return Step::kMore;
  sink_.end();
  state_ = State::kAfter;
  return Step::kMore;
}

void GemmaCalls::token_done() {
  token_ = Token::kNone;
  place_ = place_ == Place::kKey ? Place::kColon : Place::kComma;
}

void GemmaCalls::put(std::string_view json) {
  if (std::exchange(comma_, false)) sink_.arguments(",");
  sink_.arguments(json);
}

std::unique_ptr<CallParser> GemmaCalls::make(CallSink& sink) {
  return std::make_unique<GemmaCalls>(sink);
}

}  // namespace mantou::text
