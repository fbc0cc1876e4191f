// Calls that are JSON objects: {"name": …, "arguments": {…}} after <tool_call> (Hermes, Qwen 2 and
// 3), after [TOOL_CALLS] in an array (Mistral), or with "parameters" as the whole answer (Llama 3).
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "text/formats/call_parser.h"
#include "text/formats/json_stream.h"
#include "text/formats/markup.h"

namespace mantou::text {

// One object. Arguments stream once the name is known, and wait for it if they come first; a string
// that holds the object's text, null and nothing at all will do for them; other keys are passed
// over.
class JsonCall {
 public:
  using Step = JsonScanner::Step;
  // `bare`: no markup says that this is a call, so it must look like one: arguments and no unknown
  // keys.
  JsonCall(CallSink& sink, bool bare) : sink_(sink), bare_(bare) {}
  void start();       // after the opening brace
  Step feed(char c);  // never kDoneBefore
  bool finish();      // ends a call whose tool and arguments are complete; false: they are not

 private:
  enum class State { kKey, kInKey, kColon, kValue, kAfter };
  enum class Role { kName, kArguments, kOther };

  bool take_key();
  Step value_byte(char c);
  bool starts_value(char c);
  bool take_value();
  void begin(std::string_view arguments);
  Step close();

  CallSink& sink_;
  const bool bare_;
  State state_ = State::kKey;
  Role role_ = Role::kOther;
  JsonScanner scanner_;
  std::string key_, value_, name_, arguments_;
  bool named_ = false, has_arguments_ = false;  // read to their ends
  bool begun_ = false, streaming_ = false, in_value_ = false;
};

// One object, several (separated by nothing, ';' or ','), or an array of them.
class JsonCalls final : public CallParser {
 public:
  // `close`: the text that ends the markup; empty: nothing does, or the end of the array.
  JsonCalls(CallSink& sink, std::string_view close, bool bare) : close_(close), call_(sink, bare) {}

  void open(size_t opener) override;
  Step feed(char c) override;
  std::string_view tail() const override { return closing_.read(); }
  bool finish() override;

  static std::unique_ptr<CallParser> hermes(CallSink& sink);
  static std::unique_ptr<CallParser> llama3(CallSink& sink);

 private:
  enum class State { kFirst, kNext, kCall, kAfter };
  Step start_call();
  Step after_byte(char c);

  const std::string_view close_;
  JsonCall call_;
  State state_ = State::kFirst;
  bool in_array_ = false;
  Expected closing_;
};

}  // namespace mantou::text
