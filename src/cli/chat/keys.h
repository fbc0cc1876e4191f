// Bytes of a terminal in raw mode, taken for keys. Pure; one terminal, one thread.
#pragma once

#include <optional>
#include <string>

namespace mantou::cli {

struct Key {
  enum class Kind {
    kText,   // text: one character
    kPaste,  // text: what was pasted at once, its lines ended by '\n'
    kEnter,
    kTab,
    kNewLine,  // a line within the message: Alt-Enter, Ctrl-J
    kBackspace,
    kDelete,
    kLeft,
    kRight,
    kUp,
    kDown,
    kEarlier,  // in the history, whatever the cursor's line
    kLater,
    kWordLeft,
    kWordRight,
    kLineStart,
    kLineEnd,
    kCutWord,      // before the cursor
    kCutNextWord,  // behind it
    kCutBefore,    // to the line's start
    kCutBehind,    // to its end
    kClearScreen,
    kInterrupt,    // Ctrl-C
    kEndOrDelete,  // Ctrl-D
    kSuspend,      // Ctrl-Z
  };
  Kind kind;
  std::string text = {};
};

class KeyDecoder {
 public:
  // The key that this byte completes. Sequences that are none of a key here are dropped.
  std::optional<Key> push(char byte);
  // Whether an escape has been read that may be the key alone, or may begin a sequence.
  bool escaped() const { return !pasting_ && pending_ == "\x1b"; }
  void forget() { pending_.clear(); }

 private:
  std::optional<Key> end_sequence();

  std::string pending_;  // the beginning of a sequence or of a character; all of a paste
  bool pasting_ = false;
};

}  // namespace mantou::cli
