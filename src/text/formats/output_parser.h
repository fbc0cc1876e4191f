// What a model wrote, taken apart while it is being written: content, reasoning and tool calls. One
// parser a generation, one thread. formats.h says which one a model needs.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace mantou::text {

struct OutputEvent {
  enum class Kind {
    kContent,
    kReasoning,
    kCallBegin,      // text: the tool's name
    kCallArguments,  // text: a piece of the compact JSON object of the arguments
    kCallEnd,        // a call without one was cut off or broken: its arguments are a beginning
  };
  Kind kind;
  int call = -1;  // from 0 in the order of kCallBegin; -1: no call
  std::string text;
};

// Pieces of one kind follow each other and are meant to be joined; joined, they do not depend on
// how the text was cut. Nothing emitted is ever taken back. Only what may still turn out to be
// markup is held. Linear in the text.
class OutputParser {
 public:
  virtual ~OutputParser() = default;
  virtual void push(std::string_view text, std::vector<OutputEvent>& out) = 0;
  virtual void finish(std::vector<OutputEvent>& out) = 0;  // once, at the end
};

}  // namespace mantou::text
