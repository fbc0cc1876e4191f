// The OutputParser: content with marks in it that open reasoning or calls. Knows what surrounds
// calls and leaves what is within them to a CallParser. formats.cc puts it together.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "text/formats/call_parser.h"
#include "text/formats/markup.h"
#include "text/formats/output_parser.h"
#include "text/formats/tool_catalog.h"

namespace mantou::text {

struct ReasoningSyntax {
  std::string_view open, close;
  bool named;     // the channel's name, a word and a line break, follows `open`
  bool anywhere;  // false: `open` counts only before the first text of the answer
};

// What opens a call; `leading`: only before the first text of the answer.
struct CallOpener {
  std::string_view text;
  bool leading = false;
};

using MakeCallParser = std::unique_ptr<CallParser> (*)(CallSink&);

class OutputSplitter final : public OutputParser, private CallSink {
 public:
  struct Rules {
    const ReasoningSyntax* reasoning = nullptr;  // null: there is none
    std::vector<CallOpener> openers;             // empty: no calls
    MakeCallParser make_calls = nullptr;
    bool inside_reasoning = false;  // the prompt has opened it
  };
  OutputSplitter(const Rules& rules, ToolCatalog tools);

  void push(std::string_view text, std::vector<OutputEvent>& out) override;
  void finish(std::vector<OutputEvent>& out) override;

 private:
  enum class State { kContent, kReasoning, kCall };
  using Kind = OutputEvent::Kind;

  void byte(char c);
  void content_byte(char c);
  void reasoning_byte(char c);
  void call_byte(char c);

  void open_mark(size_t mark);
  void start_reasoning(bool named);
  void end_reasoning();
  void thought(char c);
  void content(char c);
  void content(std::string_view text);
  void leave_call(std::string_view tail);
  void raw_to_content(std::string_view tail);
  void emit(Kind kind, std::string_view text);

  const Tool* begin(std::string_view name) override;
  void arguments(std::string_view json) override;
  void end() override;

  const ReasoningSyntax* reasoning_;
  ToolCatalog tools_;
  std::vector<std::string_view> marks_;  // of reasoning, if any, then of calls
  std::vector<bool> leading_only_;       // by mark
  size_t call_marks_;                    // where the calls' marks begin
  bool begins_mark_[256] = {};
  std::unique_ptr<CallParser> parser_;
  std::vector<OutputEvent>* out_ = nullptr;  // during push and finish
  State state_ = State::kContent;
  MarkerSearch search_;

  // Content. Spaces before its first text wait: they go where no text follows but a call.
  bool leading_ = true;  // no text since the beginning, the last reasoning or the last call
  bool after_reasoning_ = false;  // line breaks here belong to the reasoning's markup
  std::string spaces_;

  // Reasoning. Line breaks at its beginning and end are markup.
  bool thought_begun_ = false;
  bool naming_ = false;
  std::string channel_;
  size_t newlines_ = 0;

  // Calls. What a call spelled is kept until the call is begun, for it may have to become content.
  int calls_ = 0;
  bool begun_ = false;         // between kCallBegin and kCallEnd
  bool verbatim_ = false;      // within the call of an unknown tool
  bool was_verbatim_ = false;  // the last call of this markup was one: so is what closes it
  bool ended_ = false;         // a call ended in the last byte
  std::string raw_;
};

}  // namespace mantou::text
