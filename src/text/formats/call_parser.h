// How the grammar of one format of tool calls (CallParser) and what surrounds it (the sink, an
// OutputSplitter) talk. Bytes come one at a time, which is why no result can depend on how the text
// was cut.
#pragma once

#include <cstddef>
#include <string_view>

#include "text/formats/tool_catalog.h"

namespace mantou::text {

class CallSink {
 public:
  virtual ~CallSink() = default;
  // A call of the tool `name`. nullptr: there is no such tool; the markup of this call becomes
  // content, and the parser goes on, so that it knows where the call ends.
  virtual const Tool* begin(std::string_view name) = 0;
  virtual void arguments(std::string_view json) = 0;
  virtual void end() = 0;
};

class CallParser {
 public:
  enum class Step {
    kMore,
    kAgain,  // a call ended before this byte: feed it again
    kEnd,    // this byte closes the markup
    kOver,   // this byte is not of the markup, which is over or broken
  };

  virtual ~CallParser() = default;
  virtual void open(size_t opener) = 0;  // the format's opener with this index has been read
  virtual Step feed(char c) = 0;
  // The last bytes, where they are only the beginning of an expected text: after kOver they may
  // begin other markup.
  virtual std::string_view tail() const = 0;
  // The text ends here: ends a call that lacks nothing but closing markup. Whether nothing but
  // closing markup came since the last call.
  virtual bool finish() = 0;
};

}  // namespace mantou::text
