#include "text/formats/mistral_calls.h"

namespace mantou::text {

void MistralCalls::open(size_t /*opener*/) {
  state_ = State::kStart;
  name_.clear();
  mark_.take();
  scanner_ = {};
}

CallParser::Step MistralCalls::feed(char c) {
  switch (state_) {
    case State::kStart:
      return start(c);
    case State::kList:
      return list_.feed(c);
    case State::kName:
      if (c == '[') state_ = State::kMark;
      if (c == '{') return arguments_byte(c);
      if (c != '[') return add_to_name(c, name_) ? Step::kMore : Step::kOver;
      [[fallthrough]];
    case State::kMark: {
      const int mark = mark_.feed(c, {"[ARGS]", "[CALL_ID]"});
      if (mark >= 0) state_ = mark == 0 ? State::kBefore : State::kId;
      return mark == Expected::kNone ? Step::kOver : Step::kMore;
    }
    case State::kId:  // the id is the model's own and goes unused
      if (c == '[') state_ = State::kMark;
      if (c != '[') return is_name_char(c) ? Step::kMore : Step::kOver;
      mark_.feed(c, {"[ARGS]"});
      return Step::kMore;
    case State::kBefore:
      if (is_space(c)) return Step::kMore;
      return c == '{' ? arguments_byte(c) : Step::kOver;
    default:
      return arguments_byte(c);
  }
}

CallParser::Step MistralCalls::start(char c) {
  if (is_space(c)) return Step::kMore;
  if (c == '[' || c == '{') {
    state_ = State::kList;
    list_.open(0);
    return list_.feed(c);
  }
  state_ = State::kName;
  return add_to_name(c, name_) ? Step::kMore : Step::kOver;
}

CallParser::Step MistralCalls::arguments_byte(char c) {
  if (state_ != State::kArguments) sink_.begin(name_);
  state_ = State::kArguments;
  std::string piece;
  const JsonScanner::Step step = scanner_.feed(c, piece);
  if (step == JsonScanner::Step::kBroken) return Step::kOver;
  sink_.arguments(piece);
  if (step == JsonScanner::Step::kMore) return Step::kMore;
  sink_.end();
  return Step::kEnd;
}

std::unique_ptr<CallParser> MistralCalls::make(CallSink& sink) {
  return std::make_unique<MistralCalls>(sink);
}

}  // namespace mantou::text
