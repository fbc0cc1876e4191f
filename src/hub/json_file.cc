#include "hub/json_file.h"

#include "base/error.h"
#include "base/file.h"
#include "base/json_builder.h"
#include "base/utf8.h"

namespace mantou::hub {
using nlohmann::json;

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
  try {
    return build_json<json>(text, {limits.depth, SIZE_MAX, limits.refuse_duplicate_keys});
  } catch (const JsonDefect& defect) {
    switch (defect.kind) {
      case JsonDefect::kDepth:
        fail_param(ErrorCode::kCorruptData, origin, "{}: JSON nested more than {} deep", origin,
                   limits.depth);
      case JsonDefect::kDuplicateKey:
        fail_param(ErrorCode::kCorruptData, origin, "{}: \"{}\" appears twice", origin,
                   printable(defect.detail));
      default:
        fail_param(ErrorCode::kCorruptData, origin, "{}: not valid JSON: {}", origin,
                   printable(defect.detail));
    }
  }
}

json read_json_file(const std::filesystem::path& path, const JsonLimits& limits) {
  return parse_json(read_file(path, limits.bytes), path.string(), limits);
}

}  // namespace mantou::hub
