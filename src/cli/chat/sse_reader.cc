#include "cli/chat/sse_reader.h"

#include <utility>

#include "base/error.h"

namespace mantou::cli {
namespace {

constexpr size_t kLargestEvent = size_t{16} << 20;
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

}  // namespace

void SseReader::push(std::string_view bytes) {
  while (!bytes.empty()) {
    if (std::exchange(after_cr_, false) && bytes.front() == '\n') {
      bytes.remove_prefix(1);
      continue;
    }
    const size_t end = bytes.find_first_of("\r\n");
    line_ += bytes.substr(0, end);
    check_size();
    if (end == std::string_view::npos) return;
    after_cr_ = bytes[end] == '\r';
    bytes.remove_prefix(end + 1);
    end_line();
  }
}

void SseReader::check_size() const {
  if (line_.size() + event_.data.size() > kLargestEvent)
    fail(ErrorCode::kCorruptData, "an event of the stream has more than {} bytes", kLargestEvent);
}

void SseReader::end_line() {
  const std::string whole = std::exchange(line_, {});
  std::string_view line = whole;
  if (std::exchange(first_line_, false) && line.starts_with(kByteOrderMark))
    line.remove_prefix(kByteOrderMark.size());
  if (line.empty()) {
    const SseEvent event = std::exchange(event_, {});
    if (std::exchange(has_data_, false)) on_event_(event);
    return;
  }
  const size_t colon = line.find(':');
  const std::string_view field = line.substr(0, colon);
  std::string_view value = colon == std::string_view::npos ? "" : line.substr(colon + 1);
  if (value.starts_with(' ')) value.remove_prefix(1);
  if (field == "event") event_.name = value;
  if (field != "data") return;  // an id, a delay or a comment, which begins with the colon
  if (std::exchange(has_data_, true)) event_.data += '\n';
  event_.data += value;
}

}  // namespace mantou::cli
