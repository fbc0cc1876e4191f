// Lines typed at a terminal: the cursor moves, earlier ones come back, what is pasted is one text
// of many lines. Drawn with the few control sequences that every terminal of today knows. Of the
// libraries for it, libedit takes each pasted line for an entry of its own, and GNU readline's
// licence would become the program's.
//
// The terminal is in raw mode only while read() waits. Main thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "cli/chat/edit_buffer.h"
#include "cli/chat/keys.h"
#include "cli/chat/line_history.h"
#include "cli/chat/line_reader.h"

namespace mantou::cli {

class LineEditor final : public LineReader {
 public:
  // Both are terminals, in truth the same one. `words` are what Tab completes at the start of a
  // line.
  LineEditor(int in, int out, LineHistory history, std::vector<std::string> words = {})
      : in_(in), out_(out), history_(std::move(history)), words_(std::move(words)) {}

  Line read(std::string_view prompt) override;

 private:
  enum class Done { kNo, kEnter, kEnd, kInterrupt };

  std::optional<Key> next_key();
  Done apply(const Key& key);
  void edit(const Key& key);
  void recall(bool earlier);
  void complete();
  void drop();
  void paint(bool whole = false);  // `whole`: also what the screen cannot hold
  void leave();
  void write(std::string_view text) const;
  bool waits(int milliseconds) const;

  const int in_, out_;
  LineHistory history_;
  const std::vector<std::string> words_;
  KeyDecoder keys_;
  std::string prompt_;
  EditBuffer buffer_;
  size_t place_ = 0;  // in the history; entries().size(): what is being typed
  std::string draft_;
  size_t painted_row_ = 0;  // where the cursor stands, from the first row that is drawn
};

}  // namespace mantou::cli
