// For the tests and the fuzz target of formats: what a parser makes of a text cut somehow, joined.
#pragma once

#include <algorithm>
#include <functional>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <string_view>
#include <vector>

#include "text/formats/formats.h"

namespace mantou::text {

inline bool operator==(const OutputEvent& a, const OutputEvent& b) {
  return a.kind == b.kind && a.call == b.call && a.text == b.text;
}

inline std::ostream& operator<<(std::ostream& out, const OutputEvent& event) {
  constexpr const char* kKinds[] = {"content", "reasoning", "begin", "arguments", "end"};
  out << kKinds[static_cast<int>(event.kind)];
  if (event.call >= 0) out << event.call;
  return out << "<" << event.text << ">";
}

inline nlohmann::ordered_json test_tools() {
  return nlohmann::ordered_json::parse(R"([
    {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object",
      "properties": {"city": {"type": "string"}, "days": {"type": "integer"},
                     "unit": {"enum": ["c", "f"]}, "note": {"type": ["string", "null"]},
                     "deep": {"type": "object"}}}}},
    {"type": "function", "function": {"name": "write_file", "parameters": {"type": "object",
      "properties": {"path": {"type": "string"},
                     "text": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                     "mode": {"type": "integer"}, "tags": {"type": "array"},
                     "force": {"type": "boolean"}}}}},
    {"type": "function", "function": {"name": "now"}}])");
}

struct ParserSetup {
  OutputFormat format;
  nlohmann::ordered_json tools = test_tools();
  bool in_reasoning = false;
};

// `next` says how many bytes the next push takes (at least 1). Adjacent pieces of a kind are
// joined.
inline std::vector<OutputEvent> parse_pieces(const ParserSetup& setup, std::string_view text,
                                             const std::function<size_t()>& next) {
  const auto parser = make_output_parser(setup.format, setup.tools, setup.in_reasoning);
  std::vector<OutputEvent> joined;
  const auto take = [&](std::vector<OutputEvent> events) {
    for (OutputEvent& event : events) {
      const bool piece =
          event.kind != OutputEvent::Kind::kCallBegin && event.kind != OutputEvent::Kind::kCallEnd;
      if (piece && !joined.empty() && joined.back().kind == event.kind &&
          joined.back().call == event.call)
        joined.back().text += event.text;
      else
        joined.push_back(std::move(event));
    }
  };
  while (!text.empty()) {
    const size_t length = std::min(next(), text.size());
    std::vector<OutputEvent> events;
    parser->push(text.substr(0, length), events);
    take(std::move(events));
    text.remove_prefix(length);
  }
  std::vector<OutputEvent> events;
  parser->finish(events);
  take(std::move(events));
  return joined;
}

inline std::vector<OutputEvent> parse_whole(const ParserSetup& setup, std::string_view text) {
  return parse_pieces(setup, text, [&] { return text.size(); });
}

}  // namespace mantou::text
