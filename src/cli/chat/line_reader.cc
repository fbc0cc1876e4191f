#include "cli/chat/line_reader.h"

#include <ostream>

#include "base/error.h"
#include "text/strip.h"

namespace mantou::cli {
namespace {

constexpr std::string_view kPrompt = "> ", kMore = "… ", kQuotes = "\"\"\"";

}  // namespace

Line StreamLines::read(std::string_view prompt) {
  if (prompts_ != nullptr) *prompts_ << prompt << std::flush;
  std::string text;
  if (!std::getline(in_, text)) return {Line::Kind::kEnd};
  if (text.ends_with('\r')) text.pop_back();
  return {Line::Kind::kText, std::move(text)};
}

Input MessageReader::next() {
  Line line = lines_.read(kPrompt);
  if (line.kind != Line::Kind::kText) return {line.kind};
  std::string text = std::move(line.text);
  if (text.find('\n') != std::string::npos) return {Line::Kind::kText, std::move(text), true};
  const std::string_view stripped = text::strip(text);
  if (stripped.starts_with(kQuotes)) return block(std::string(stripped.substr(kQuotes.size())));
  while (text.ends_with('\\')) {
    line = lines_.read(kMore);
    if (line.kind == Line::Kind::kInterrupt) return {Line::Kind::kText};
    text.back() = '\n';
    if (line.kind == Line::Kind::kEnd) break;
    text += line.text;
  }
  return {Line::Kind::kText, std::move(text)};
}

Input MessageReader::block(std::string text) {
  while (!text::strip_right(text).ends_with(kQuotes)) {
    const Line line = lines_.read(kMore);
    if (line.kind == Line::Kind::kInterrupt) return {Line::Kind::kText};
    if (line.kind == Line::Kind::kEnd)
      fail(ErrorCode::kInvalidArgument, "the message that {} begins has no {} at its end", kQuotes,
           kQuotes);
    if (!text.empty()) text += '\n';
    text += line.text;
  }
  text.resize(text::strip_right(text).size() - kQuotes.size());
  if (text.ends_with('\n')) text.pop_back();
  return {Line::Kind::kText, std::move(text), true};
}

}  // namespace mantou::cli
