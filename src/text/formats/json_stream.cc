#include "text/formats/json_stream.h"

#include <nlohmann/json.hpp>

#include "text/formats/markup.h"
#include "text/messages.h"

namespace mantou::text {
namespace {

constexpr std::string_view kReplacementEscape = "\\ufffd";

bool is_scalar(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' ||
         c == '+' || c == '.';
}

bool is_hex(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

}  // namespace

void append_json_char(char c, std::string& out) {
  constexpr std::string_view kEscaped = "\"\\\b\f\n\r\t", kLetters = "\"\\bfnrt";
  if (const size_t i = kEscaped.find(c); i != std::string_view::npos) {
    out += '\\';
    out += kLetters[i];
  } else if (const auto byte = static_cast<unsigned char>(c); byte < 0x20) {
    constexpr std::string_view kHex = "0123456789abcdef";
    out += "\\u00";
    out += kHex[byte >> 4];
    out += kHex[byte & 15];
  } else {
    out += c;
  }
}

std::string json_quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) append_json_char(c, out);
  return out + '"';
}

std::optional<std::string> json_unquoted(std::string_view json) {
  const auto value = nlohmann::json::parse(json, nullptr, false);
  if (!value.is_string()) return std::nullopt;
  return value.get<std::string>();
}

JsonScanner::Step JsonScanner::feed(char c, std::string& out) {
  if (in_string_) {
    string_byte(c, out);
    return in_string_ || !open_.empty() ? Step::kMore : Step::kDone;
  }
  const bool bare = in_scalar_ && open_.empty();
  if (bare && !is_scalar(c)) return Step::kDoneBefore;
  if (is_space(c)) {
    gap_ = in_scalar_;
    return Step::kMore;
  }
  if (is_scalar(c)) {
    if (in_scalar_ && gap_) out += ' ';
    in_scalar_ = true;
    gap_ = false;
    out += c;
    return Step::kMore;
  }
  in_scalar_ = false;
  switch (c) {
    case '"':
      in_string_ = true;
      break;
    case '{':
    case '[':
      if (open_.size() >= kMaxJsonDepth) return Step::kBroken;
      open_ += c;
      break;
    case '}':
    case ']':
      if (open_.empty() || open_.back() != (c == '}' ? '{' : '[')) return Step::kBroken;
      open_.pop_back();
      out += c;
      return open_.empty() ? Step::kDone : Step::kMore;
    case ',':
    case ':':
      if (open_.empty()) return Step::kBroken;
      break;
    default:
      return Step::kBroken;
  }
  out += c;
  return Step::kMore;
}

void JsonScanner::string_byte(char c, std::string& out) {
  if (!escape_.empty()) return escape_byte(c, out);
  if (c == '\\') {
    escape_ = c;
    return;
  }
  drop_half_pair(out);
  if (c == '"') {
    in_string_ = false;
    out += c;
  } else {
    append_json_char(c, out);
  }
}

void JsonScanner::escape_byte(char c, std::string& out) {
  constexpr size_t kUnicode = 6;  // \uXXXX
  const bool first = escape_.size() == 1;
  const bool valid =
      first ? std::string_view("\"\\/bfnrtu").find(c) != std::string_view::npos : is_hex(c);
  if (!valid) {
    drop_half_pair(out);
    out += '\\' + std::exchange(escape_, {});
    return string_byte(c, out);
  }
  escape_ += c;
  if (escape_[1] == 'u' && escape_.size() < kUnicode) return;
  const std::string whole = std::exchange(escape_, {});
  const int code = whole[1] == 'u' ? std::stoi(whole.substr(2), nullptr, 16) : 0;
  if (code >= 0xDC00 && code <= 0xDFFF) {
    out += high_.empty() ? std::string(kReplacementEscape) : high_ + whole;
    high_.clear();
    return;
  }
  drop_half_pair(out);
  if (code >= 0xD800 && code <= 0xDBFF)
    high_ = whole;
  else
    out += whole;
}

void JsonScanner::drop_half_pair(std::string& out) {
  if (!high_.empty()) out += kReplacementEscape;
  high_.clear();
}

std::optional<std::string> json_compact(std::string_view text) {
  if (!nlohmann::json::accept(text)) return std::nullopt;
  JsonScanner scanner;
  std::string out;
  for (const char c : text)
    if (scanner.feed(c, out) == JsonScanner::Step::kBroken) return std::nullopt;
  return out;
}

}  // namespace mantou::text
