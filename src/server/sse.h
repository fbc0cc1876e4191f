// Server-sent events: the framing of streamed answers.
#pragma once

#include <string>
#include <string_view>

namespace mantou::server {

inline constexpr std::string_view kEventStream = "text/event-stream; charset=utf-8";
inline constexpr std::string_view kDoneEvent = "data: [DONE]\n\n";

// `json` is one line.
inline std::string sse_event(std::string_view json) {
  std::string event = "data: ";
  event += json;
  event += "\n\n";
  return event;
}

// An event whose name is also in its JSON, as some protocols want it.
inline std::string sse_event(std::string_view name, std::string_view json) {
  std::string event = "event: ";
  event += name;
  event += '\n';
  event += sse_event(json);
  return event;
}

// A line clients ignore: shows proxies and time-outs that the server is alive.
inline std::string sse_comment(std::string_view text) {
  std::string comment = ": ";
  comment += text;
  comment += "\n\n";
  return comment;
}

}  // namespace mantou::server
