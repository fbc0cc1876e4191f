#include "text/formats/json_calls.h"

namespace mantou::text {

void JsonCall::start() {
  state_ = State::kKey;
  name_.clear();
  arguments_.clear();
  named_ = has_arguments_ = begun_ = streaming_ = false;
}

JsonCall::Step JsonCall::feed(char c) {
  if (state_ == State::kInKey) {
    if (scanner_.feed(c, key_) != Step::kDone) return Step::kMore;
    state_ = State::kColon;
    return take_key() ? Step::kMore : Step::kBroken;
  }
  if (state_ == State::kValue) return value_byte(c);
  if (is_space(c)) return Step::kMore;
  switch (state_) {
    case State::kKey:
      if (c == '}') return close();
      if (c != '"') return Step::kBroken;
      key_.clear();
      scanner_ = {};
      state_ = State::kInKey;
      return scanner_.feed(c, key_);
    case State::kColon:
      if (c != ':') return Step::kBroken;
      state_ = State::kValue;
      scanner_ = {};
      value_.clear();
      in_value_ = false;
      return Step::kMore;
    default:  // kAfter
      if (c == '}') return close();
      if (c != ',') return Step::kBroken;
      state_ = State::kKey;
      return Step::kMore;
  }
}

bool JsonCall::take_key() {
  const bool name = key_ == "\"name\"";
  const bool arguments = key_ == "\"arguments\"" || key_ == "\"parameters\"";
  role_ = name && !named_                ? Role::kName
          : arguments && !has_arguments_ ? Role::kArguments
                                         : Role::kOther;
  return !bare_ || name || arguments || key_ == "\"type\"" || key_ == "\"id\"";
}

JsonCall::Step JsonCall::value_byte(char c) {
  if (!in_value_) {
    if (is_space(c)) return Step::kMore;
    if (!starts_value(c)) return Step::kBroken;
    in_value_ = true;
  }
  const Step step = scanner_.feed(c, value_);
  if (step == Step::kBroken) return step;
  if (streaming_) sink_.arguments(value_);
  if (streaming_ || role_ == Role::kOther) value_.clear();
  if (step == Step::kMore) return step;
  if (!take_value()) return Step::kBroken;
  state_ = State::kAfter;
  return step == Step::kDone ? Step::kMore : feed(c);
}

bool JsonCall::starts_value(char c) {
  if (role_ == Role::kName) return c == '"';
  if (role_ != Role::kArguments) return true;
  if (c == '{' && named_) {
    streaming_ = true;
    begin({});
  }
  return c == '{' || c == '"' || c == 'n';
}

bool JsonCall::take_value() {
  if (role_ == Role::kName) {
    auto name = json_unquoted(value_);
    if (!name) return false;
    name_ = std::move(*name);
    named_ = true;
    if (has_arguments_) begin(arguments_);
  } else if (role_ == Role::kArguments) {
    has_arguments_ = true;
    if (std::exchange(streaming_, false)) return true;
    if (value_ == "null") value_ = "{}";
    if (value_.starts_with('"'))
      if (const auto inner = json_unquoted(value_)) value_ = json_compact(*inner).value_or("");
    if (!value_.starts_with('{')) return false;
    arguments_ = std::move(value_);
    if (named_) begin(arguments_);
  }
  return true;
}

void JsonCall::begin(std::string_view arguments) {
  begun_ = true;
  sink_.begin(name_);
  sink_.arguments(arguments);
}

JsonCall::Step JsonCall::close() {
  if (!begun_ && (!named_ || bare_)) return Step::kBroken;
  if (!begun_) begin("{}");
  sink_.end();
  return Step::kDone;
}

bool JsonCall::finish() {
  if (!begun_ || !has_arguments_) return false;
  sink_.end();
  return true;
}

void JsonCalls::open(size_t /*opener*/) {
  state_ = State::kFirst;
  in_array_ = false;
  closing_.take();
}

CallParser::Step JsonCalls::start_call() {
  closing_.take();
  call_.start();
  state_ = State::kCall;
  return Step::kMore;
}

CallParser::Step JsonCalls::feed(char c) {
  if (state_ == State::kAfter) return after_byte(c);
  if (state_ != State::kCall) {
    if (is_space(c)) return Step::kMore;
    if (c == '{') return start_call();
    if (c != '[' || state_ != State::kFirst || in_array_) return Step::kOver;
    in_array_ = true;
    return Step::kMore;
  }
  switch (call_.feed(c)) {
    case JsonCall::Step::kMore:
      return Step::kMore;
    case JsonCall::Step::kDone:
      state_ = State::kAfter;
      return Step::kMore;
    default:  // kBroken; small models forget the last brace
      if (!call_.finish()) return Step::kOver;
      state_ = State::kAfter;
      return Step::kAgain;
  }
}

CallParser::Step JsonCalls::after_byte(char c) {
  if (closing_.empty()) {
    if (is_space(c)) return Step::kMore;
    if (c == '{' && !in_array_) return start_call();
    if (c == ',' || (c == ';' && !in_array_)) {
      state_ = State::kNext;
      return Step::kMore;
    }
    if (c == ']' && in_array_) {
      in_array_ = false;
      return close_.empty() ? Step::kEnd : Step::kMore;
    }
    if (in_array_ || close_.empty()) return Step::kOver;
  }
  const int found = closing_.feed(c, {close_});
  return found == 0 ? Step::kEnd : found == Expected::kMore ? Step::kMore : Step::kOver;
}

bool JsonCalls::finish() {
  if (state_ == State::kCall) return call_.finish();
  return state_ != State::kFirst;
}

std::unique_ptr<CallParser> JsonCalls::hermes(CallSink& sink) {
  return std::make_unique<JsonCalls>(sink, "</tool_call>", false);
}

namespace {

// Openers: <|python_tag|>, '{' and '['; the last two are themselves the beginning of what follows.
class Llama3Calls final : public CallParser {
 public:
  explicit Llama3Calls(CallSink& sink) : calls_(sink, "", true) {}
  void open(size_t opener) override {
    calls_.open(opener);
    if (opener > 0) calls_.feed("{["[opener - 1]);
  }
  Step feed(char c) override { return calls_.feed(c); }
  std::string_view tail() const override { return calls_.tail(); }
  bool finish() override { return calls_.finish(); }

 private:
  JsonCalls calls_;
};

}  // namespace

std::unique_ptr<CallParser> JsonCalls::llama3(CallSink& sink) {
  return std::make_unique<Llama3Calls>(sink);
}

}  // namespace mantou::text
