// Server-sent events, read as they come: the rules of the HTML standard (section 9.2.6), for what
// arrives cut anywhere. One stream, one thread.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace mantou::cli {

struct SseEvent {
  std::string name;  // empty: a "message"
  std::string data;  // its lines joined by '\n'
};

class SseReader {
 public:
  explicit SseReader(std::function<void(const SseEvent&)> on_event)
      : on_event_(std::move(on_event)) {}

  // Calls for each event that is complete; one without data is none. kCorruptData for an event
  // that is larger than any honest one.
  void push(std::string_view bytes);

 private:
  void end_line();
  void check_size() const;

  const std::function<void(const SseEvent&)> on_event_;
  SseEvent event_;
  std::string line_;
  bool has_data_ = false;
  bool after_cr_ = false;   // a '\n' now belongs to the end of the line before
  bool first_line_ = true;  // may begin with a byte order mark
};

}  // namespace mantou::cli
