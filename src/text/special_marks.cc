#include "text/special_marks.h"

#include <algorithm>

#include "base/error.h"

namespace mantou::text {
namespace {

constexpr unsigned kFirstMark = 0xE000, kLastMark = 0xF8FF;  // private use

std::string utf8_of(unsigned c) {
  return {char(0xE0 | c >> 12), char(0x80 | (c >> 6 & 0x3F)), char(0x80 | (c & 0x3F))};
}

// The mark as json.dumps with ensure_ascii writes it.
std::string escaped(std::string_view mark) {
  const auto bits = [&](size_t i, unsigned mask) { return uint8_t(mark[i]) & mask; };
  return fmt::format("\\u{:04x}", bits(0, 0x0F) << 12 | bits(1, 0x3F) << 6 | bits(2, 0x3F));
}

size_t character_length(std::string_view text) {
  size_t length = 1;
  while (length < text.size() && (uint8_t(text[length]) & 0xC0) == 0x80) ++length;
  return length;
}

// Where the last character of `text` begins.
size_t last_character(std::string_view text) {
  if (text.empty()) return 0;
  size_t at = text.size() - 1;
  while (at > 0 && (uint8_t(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

}  // namespace

SpecialMarks::SpecialMarks(const Tokenizer& tokenizer) {
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    if (!tokenizer.is_special(id)) continue;
    const std::string_view text = tokenizer.piece_of(id);
    if (text.empty()) continue;
    texts_.insert(text);
    lengths_.push_back(text.size());
    first_bytes_[uint8_t(text[0])] = true;
  }
  std::sort(lengths_.begin(), lengths_.end(), std::greater<>());
  lengths_.erase(std::unique(lengths_.begin(), lengths_.end()), lengths_.end());
}

std::string SpecialMarks::choose(std::string_view text) {
  for (unsigned c = kLastMark; c >= kFirstMark; --c) {
    std::string mark = utf8_of(c);
    if (text.find(mark) == std::string_view::npos &&
        text.find(escaped(mark)) == std::string_view::npos)
      return mark;
  }
  fail_param(ErrorCode::kInvalidArgument, "messages",
             "messages: they use up every private-use character");
}

size_t SpecialMarks::match(std::string_view text) const {
  if (text.empty() || !first_bytes_[uint8_t(text[0])]) return 0;
  for (const size_t length : lengths_)
    if (length <= text.size() && texts_.contains(text.substr(0, length))) return length;
  return 0;
}

std::string SpecialMarks::marked(std::string_view content, std::string_view mark) const {
  std::string out;
  for (size_t at = 0; at < content.size();) {
    const size_t length = match(content.substr(at));
    if (length == 0) {
      out += content[at++];
      continue;
    }
    const size_t head = character_length(content.substr(at, length));
    out += content.substr(at, head);
    out += mark;
    out += content.substr(at + head, length - head);
    at += length;
  }
  return out;
}

SpecialMarks::Unmarked SpecialMarks::unmarked(std::string_view rendered,
                                              std::string_view mark) const {
  const std::string escape = escaped(mark);
  Unmarked out;
  out.text.reserve(rendered.size());
  for (size_t at = 0; at < rendered.size();) {
    const std::string_view rest = rendered.substr(at);
    const size_t length = rest.starts_with(mark)     ? mark.size()
                          : rest.starts_with(escape) ? escape.size()
                                                     : 0;
    if (length == 0) {
      out.text += rendered[at++];
      continue;
    }
    at += length;
    const size_t begin = last_character(out.text);
    if (out.literal.empty() || out.literal.back().begin != begin)
      out.literal.push_back({begin, out.text.size()});
  }
  for (ByteRange& range : out.literal)
    range.end =
        std::max(range.end, range.begin + match(std::string_view(out.text).substr(range.begin)));
  return out;
}

}  // namespace mantou::text
