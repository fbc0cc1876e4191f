// Log lines for people and for grep: one event a line, `key=value` fields, to standard error; or as
// JSON, for programs that gather logs.
//
//   log_info("request", {{"id", id}, {"status", 200}});
//   2026-03-01T12:00:00.123Z info request id=req_1f… status=200
//   {"time":"2026-03-01T12:00:00.123Z","level":"info","event":"request","id":"req_1f…","status":200}
//
// Values with spaces, quotes or control characters are quoted and escaped, so text from outside can
// neither break a line nor forge one. Any thread. The logger is process-wide.
#pragma once

#include <fmt/format.h>

#include <initializer_list>
#include <string>
#include <string_view>
#include <type_traits>

namespace mantou {

// The chosen level and everything left of it is written; kWarn at the start.
enum class LogLevel { kError, kWarn, kInfo, kDebug, kTrace };

enum class LogFormat { kText, kJson };

struct LogField {
  template <class T>
  LogField(std::string_view name, const T& v)
      : key(name), value(fmt::to_string(v)), number(std::is_arithmetic_v<T>) {}
  std::string_view key;
  std::string value;
  bool number;
};

using LogFields = std::initializer_list<LogField>;

void set_log_level(LogLevel level);
void set_log_format(LogFormat format);  // kText at the start; before there are other threads
// True when events of this level are written: ask before building costly fields.
bool is_logged(LogLevel level);

void log_error(std::string_view event, LogFields fields = {});
void log_warn(std::string_view event, LogFields fields = {});
void log_info(std::string_view event, LogFields fields = {});
void log_debug(std::string_view event, LogFields fields = {});
void log_trace(std::string_view event, LogFields fields = {});

// The text after time and level: `event key=value …`.
std::string format_log_line(std::string_view event, LogFields fields);
// The same as members of a JSON object: `"event":"request","id":…`. Of bytes that are no UTF-8,
// U+FFFD is left.
std::string format_log_members(std::string_view event, LogFields fields);

}  // namespace mantou
