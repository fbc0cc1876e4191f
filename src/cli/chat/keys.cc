#include "cli/chat/keys.h"

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "base/utf8.h"

namespace mantou::cli {
namespace {

constexpr size_t kLongestSequence = 32;
constexpr std::string_view kPasteBegin = "\x1b[200~", kPasteEnd = "\x1b[201~";

struct Sequence {
  std::string_view bytes;
  Key::Kind kind;
};

using enum Key::Kind;

// Of xterm and those that follow it, rxvt and the Linux console; Emacs' letters as in every shell.
constexpr Sequence kSequences[] = {
    {"\r", kEnter},
    {"\n", kNewLine},
    {"\t", kTab},
    {"\x1b\r", kNewLine},
    {"\x1b\n", kNewLine},
    {"\x7f", kBackspace},
    {"\x08", kBackspace},
    {"\x01", kLineStart},
    {"\x02", kLeft},
    {"\x03", kInterrupt},
    {"\x04", kEndOrDelete},
    {"\x05", kLineEnd},
    {"\x06", kRight},
    {"\x0b", kCutBehind},
    {"\x0c", kClearScreen},
    {"\x0e", kLater},
    {"\x10", kEarlier},
    {"\x15", kCutBefore},
    {"\x17", kCutWord},
    {"\x1a", kSuspend},
    {"\x1b[A", kUp},
    {"\x1b[B", kDown},
    {"\x1b[C", kRight},
    {"\x1b[D", kLeft},
    {"\x1bOA", kUp},
    {"\x1bOB", kDown},
    {"\x1bOC", kRight},
    {"\x1bOD", kLeft},
    {"\x1b[H", kLineStart},
    {"\x1b[F", kLineEnd},
    {"\x1bOH", kLineStart},
    {"\x1bOF", kLineEnd},
    {"\x1b[1~", kLineStart},
    {"\x1b[4~", kLineEnd},
    {"\x1b[7~", kLineStart},
    {"\x1b[8~", kLineEnd},
    {"\x1b[3~", kDelete},
    {"\x1b[1;5C", kWordRight},
    {"\x1b[1;5D", kWordLeft},
    {"\x1b[1;3C", kWordRight},
    {"\x1b[1;3D", kWordLeft},
    {"\x1b[1;5A", kEarlier},
    {"\x1b[1;5B", kLater},
    {"\x1b"
     "b",
     kWordLeft},
    {"\x1b"
     "f",
     kWordRight},
    {"\x1b"
     "d",
     kCutNextWord},
    {"\x1b\x7f", kCutWord},
};

bool is_control(char c) { return uint8_t(c) < 0x20 || c == 0x7f; }

// Lines end in "\r", "\n" or both; other control characters do not belong into a message.
std::string pasted(std::string_view bytes) {
  std::string text;
  for (size_t i = 0; i < bytes.size(); i++) {
    if (bytes[i] == '\r') {
      text += '\n';
      if (i + 1 < bytes.size() && bytes[i + 1] == '\n') i++;
    } else if (bytes[i] == '\n' || bytes[i] == '\t' || !is_control(bytes[i])) {
      text += bytes[i];
    }
  }
  return take_characters(text);
}

// Whether no more bytes belong to the sequence that begins with an escape.
bool is_complete(std::string_view bytes) {
  if (bytes.size() < 2) return false;
  if (bytes[1] == 'O') return bytes.size() == 3;
  if (bytes[1] != '[') return true;
  return bytes.size() > 2 && bytes.back() >= 0x40 && bytes.back() <= 0x7e;
}

}  // namespace

std::optional<Key> KeyDecoder::push(char byte) {
  pending_ += byte;
  if (pasting_) {
    if (!pending_.ends_with(kPasteEnd)) return std::nullopt;
    pending_.resize(pending_.size() - kPasteEnd.size());
    pasting_ = false;
    return Key{kPaste, pasted(std::exchange(pending_, {}))};
  }
  if (pending_[0] == '\x1b') {
    if (is_complete(pending_)) return end_sequence();
    if (pending_.size() > kLongestSequence) pending_.clear();
    return std::nullopt;
  }
  if (is_control(byte)) {
    pending_ = byte;  // a character that was cut off is dropped
    return end_sequence();
  }
  std::string text = take_characters(pending_);
  if (text.empty()) return std::nullopt;
  return Key{kText, std::move(text)};
}

std::optional<Key> KeyDecoder::end_sequence() {
  const std::string bytes = std::exchange(pending_, {});
  if (bytes == kPasteBegin) pasting_ = true;
  for (const Sequence& sequence : kSequences)
    if (sequence.bytes == bytes) return Key{sequence.kind};
  return std::nullopt;
}

}  // namespace mantou::cli
