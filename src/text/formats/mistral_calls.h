// Mistral's calls: [TOOL_CALLS][{"name": …, "arguments": {…}}, …] and, since 2025,
// [TOOL_CALLS]name[ARGS]{…} with or without [CALL_ID]… before [ARGS].
#pragma once

#include <memory>

#include "text/formats/json_calls.h"

namespace mantou::text {

class MistralCalls final : public CallParser {
 public:
  explicit MistralCalls(CallSink& sink) : sink_(sink), list_(sink, "", false) {}

  void open(size_t opener) override;
  Step feed(char c) override;
  std::string_view tail() const override { return mark_.read(); }  // a list has none
  bool finish() override { return state_ == State::kList && list_.finish(); }

  static std::unique_ptr<CallParser> make(CallSink& sink);

 private:
  enum class State { kStart, kList, kName, kMark, kId, kBefore, kArguments };
  Step start(char c);
  Step arguments_byte(char c);

  CallSink& sink_;
  JsonCalls list_;
  State state_ = State::kStart;
  std::string name_;
  Expected mark_;
  JsonScanner scanner_;
};

}  // namespace mantou::text
