#include "cli/chat/screen.h"

#include <algorithm>
#include <cstdint>

#include "base/error.h"

namespace mantou::cli {
namespace {

constexpr std::string_view kDim = "\x1b[2m", kPlain = "\x1b[0m";

}  // namespace

std::string without_controls(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); i++) {
    const uint8_t c = uint8_t(text[i]);
    // U+0080 to U+009F are C2 80 to C2 9F.
    const bool c1 = c == 0xC2 && i + 1 < text.size() && uint8_t(text[i + 1]) < 0xA0;
    if (c1) i++;
    if (!c1 && (c >= 0x20 || c == '\n' || c == '\t') && c != 0x7F) out += char(c);
  }
  return out;
}

void Screen::print(std::string_view text) {
  const std::string shown = options_.terminal ? without_controls(text) : std::string(text);
  if (shown.empty()) return;
  last_ = shown.back();
  out_ << shown << std::flush;
  if (!out_.good()) fail(ErrorCode::kIo, "cannot write the answer: nobody reads it, or no room");
}

void Screen::leave_reasoning() {
  if (!in_reasoning_) return;
  in_reasoning_ = false;
  if (last_ != '\n') out_ << '\n';
  out_ << (options_.colour ? kPlain : "[answer]") << '\n';
}

void Screen::piece(Piece piece, std::string_view text) {
  if (piece == Piece::kReasoning) {
    if (!options_.terminal) return;
    if (!in_reasoning_) out_ << (options_.colour ? kDim : "[thinking]\n");
    in_reasoning_ = true;
    return print(text);
  }
  if (in_reasoning_) at_start_ = true;
  leave_reasoning();
  if (at_start_ && options_.terminal) {
    text.remove_prefix(std::min(text.find_first_not_of('\n'), text.size()));
    if (text.empty()) return;
  }
  at_start_ = false;
  print(text);
}

void Screen::end_answer(bool cut_off) {
  if (in_reasoning_ && options_.colour) out_ << kPlain;
  out_ << (cut_off && options_.terminal ? " …\n" : "\n") << std::flush;
  in_reasoning_ = false;
  at_start_ = true;
  last_ = '\n';
}

void Screen::note(std::string_view text) {
  notes_ << without_controls(text) << (text.ends_with('\n') ? "" : "\n") << std::flush;
}

}  // namespace mantou::cli
