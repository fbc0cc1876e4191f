// Lines typed at a terminal: the cursor moves, earlier ones come back, what is pasted is one text
// of many lines. Drawn with the few control sequences that every terminal of today knows.
//
// The terminal is in raw mode only while read() waits. Main thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "cli/chat/edit_buffer.h"
#include "cli/chat/keys.h"
#include "cli/chat/line_history.h"
#include "cli/chat/line_reader.h"

namespace mantou::cli {

class LineEditor final : public LineReader {
 public:
  // Both are terminals, in truth the same one.
  LineEditor(int in, int out, LineHistory history)
      : in_(in), out_(out), history_(std::move(history)) {}

  Line read(std::string_view prompt) override;

 private:
  enum class Done { kNo, kEnter, kEnd, kInterrupt };

  std::optional<Key> next_key();
  Done apply(const Key& key);
  void edit(const Key& key);
  void recall(bool earlier);
  void drop();
  void paint(bool whole = false);  // `whole`: also what the screen cannot hold
  void leave();
  void write(std::string_view text) const;
  bool waits(int milliseconds) const;

  const int in_, out_;
  LineHistory history_;
  KeyDecoder keys_;
  std::string prompt_;
  EditBuffer buffer_;
  size_t place_ = 0;  // in the history; entries().size(): what is being typed
  std::string draft_;
  size_t painted_row_ = 0;  // where the cursor stands, from the first row that is drawn
};

}  // namespace mantou::cli
