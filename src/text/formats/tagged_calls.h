// Calls in tags: <tool_call><function=NAME><parameter=KEY>VALUE</parameter>…</function></tool_call>
// (Qwen 3 Coder, Qwen 3.5, Nemotron) and <function name="NAME"><param name="KEY">VALUE</param>…
// </function> (MiniCPM 5, with CDATA and entities).
//
// A value whose schema is a string is taken as it is and streams; others are taken as JSON, or as
// a string if they are none. Values are not escaped by models, so a closing tag within one ends it
// only where the next tag follows.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "text/formats/call_parser.h"
#include "text/formats/markup.h"

namespace mantou::text {

struct TagSyntax {
  std::string_view wrapper_close;  // "": </function> ends the markup
  std::string_view function_open, name_end;
  std::string_view parameter_open, key_end;
  std::string_view value_close, function_close;
  bool wrapped;   // opener 0 is the wrapper, so that function_open still has to follow
  bool newlines;  // one line break at each end of a value is markup
  bool xml;       // values may be CDATA sections, and hold entities outside of them
};

class TaggedCalls final : public CallParser {
 public:
  TaggedCalls(CallSink& sink, const TagSyntax& syntax) : sink_(sink), syntax_(syntax) {}

  void open(size_t opener) override;
  Step feed(char c) override;
  std::string_view tail() const override { return expected_.read(); }
  bool finish() override { return state_ == State::kAfter; }

  static std::unique_ptr<CallParser> qwen(CallSink& sink);
  static std::unique_ptr<CallParser> minicpm(CallSink& sink);

 private:
  enum class State { kFunction, kName, kBody, kKey, kBeforeValue, kValue, kFollow, kAfter };

  Step name_byte(char c);
  Step key_byte(char c);
  Step before_value_byte(char c);
  void value_byte(char c);
  Step follow_byte(char c);
  void not_the_end(char c);
  Step take_tag(int tag);
  void start_value();
  void value_char(char c);
  void entity_char(char c);
  void inner_char(char c);
  void put(char c);
  void end_value();
  Step end_call();
  std::string_view terminator() const { return cdata_ ? "]]>" : syntax_.value_close; }

  CallSink& sink_;
  const TagSyntax& syntax_;
  State state_ = State::kFunction;
  const Tool* tool_ = nullptr;
  std::string name_, key_;
  Expected expected_;
  std::string spaces_;  // before what is expected
  bool first_ = true;   // no parameter yet

  // The value being read.
  MarkerSearch search_;
  bool cdata_ = false, is_text_ = false;
  bool at_start_ = true, newline_ = false;  // newline_: held, for it may be the last
  std::string entity_;                      // from '&' on
  std::string value_;                       // of one that is not a text
};

}  // namespace mantou::text
