#include "hub/json_file.h"

#include <set>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "base/utf8.h"

namespace mantou::hub {
namespace {

using nlohmann::json;

// Counts depth and looks for repeated keys while nlohmann's parser builds the document.
class Guard {
 public:
  Guard(const std::string& origin, const JsonLimits& limits) : origin_(origin), limits_(limits) {}

  bool operator()(int depth, json::parse_event_t event, const json& value) {
    switch (event) {
      case json::parse_event_t::object_start:
      case json::parse_event_t::array_start:
        if (depth >= limits_.depth)
          fail_param(ErrorCode::kCorruptData, origin_, "{}: JSON nested more than {} deep", origin_,
                     limits_.depth);
        keys_.emplace_back();
        break;
      case json::parse_event_t::object_end:
      case json::parse_event_t::array_end:
        keys_.pop_back();
        break;
      case json::parse_event_t::key:
        if (limits_.refuse_duplicate_keys && !keys_.back().insert(value.get<std::string>()).second)
          fail_param(ErrorCode::kCorruptData, origin_, "{}: \"{}\" appears twice", origin_,
                     printable(value.get_ref<const std::string&>()));
        break;
      case json::parse_event_t::value:
        break;
    }
    return true;
  }

 private:
  const std::string& origin_;
  const JsonLimits& limits_;
  std::vector<std::set<std::string>> keys_;  // of the open objects, outermost first
};

}  // namespace

std::string printable(std::string_view text) {
  constexpr size_t kLongest = 120;
  std::string out;
  while (!text.empty() && out.size() < kLongest) {
    const size_t length = character_length(text);
    const bool control = static_cast<unsigned char>(text[0]) < 0x20 || text[0] == 0x7f;
    if (length == 0 || control) {
      out += '?';
      text.remove_prefix(1);
    } else {
      out += text.substr(0, length);
      text.remove_prefix(length);
    }
  }
  if (!text.empty()) out += "…";
  return out;
}

json parse_json(std::string_view text, const std::string& origin, const JsonLimits& limits) {
  if (text.size() > limits.bytes)
    fail_param(ErrorCode::kResourceExhausted, origin, "{}: {} bytes of JSON, more than {}", origin,
               text.size(), limits.bytes);
  Guard guard(origin, limits);
  try {
    return json::parse(text, [&](int depth, json::parse_event_t event, json& value) {
      return guard(depth, event, value);
    });
  } catch (const json::exception& error) {
    fail_param(ErrorCode::kCorruptData, origin, "{}: not valid JSON: {}", origin,
               printable(error.what()));
  }
}

json read_json_file(const std::filesystem::path& path, const JsonLimits& limits) {
  return parse_json(read_file(path, limits.bytes), path.string(), limits);
}

}  // namespace mantou::hub
