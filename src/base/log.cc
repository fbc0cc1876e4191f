#include "base/log.h"

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include <array>
#include <memory>
#include <string>

#include "base/json.h"

namespace mantou {
namespace {

LogFormat log_format = LogFormat::kText;

constexpr auto kTextPattern = "%Y-%m-%dT%H:%M:%S.%eZ %l %v";
constexpr auto kJsonPattern = R"({"time":"%Y-%m-%dT%H:%M:%S.%eZ","level":"%l",%v})";

// In the order of LogLevel.
constexpr std::array<spdlog::level::level_enum, 5> kLevels = {
    spdlog::level::err, spdlog::level::warn, spdlog::level::info, spdlog::level::debug,
    spdlog::level::trace};

spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    auto made = std::make_shared<spdlog::logger>("mantou",
                                                 std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern(kTextPattern, spdlog::pattern_time_type::utc);
    made->set_level(spdlog::level::warn);
    made->flush_on(spdlog::level::trace);
    return made;
  }();
  return *instance;
}

bool is_plain(std::string_view value) {
  if (value.empty()) return false;
  for (const unsigned char c : value) {
    if (c <= ' ' || c == '"' || c == '\\' || c == '=' || c == 0x7f) return false;
  }
  return true;
}

void append_quoted(std::string& out, std::string_view value) {
  out += '"';
  for (const unsigned char c : value) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += char(c);
    } else if (c < ' ' || c == 0x7f) {
      out += fmt::format("\\x{:02x}", c);
    } else {
      out += char(c);
    }
  }
  out += '"';
}

void write(spdlog::level::level_enum level, std::string_view event, LogFields fields) {
  if (!logger().should_log(level)) return;
  const std::string line = log_format == LogFormat::kText ? format_log_line(event, fields)
                                                          : format_log_members(event, fields);
  logger().log(level, spdlog::string_view_t(line.data(), line.size()));
}

}  // namespace

void set_log_level(LogLevel level) { logger().set_level(kLevels[size_t(level)]); }

void set_log_format(LogFormat format) {
  log_format = format;
  logger().set_pattern(format == LogFormat::kText ? kTextPattern : kJsonPattern,
                       spdlog::pattern_time_type::utc);
}

bool is_logged(LogLevel level) { return logger().should_log(kLevels[size_t(level)]); }

std::string format_log_line(std::string_view event, LogFields fields) {
  std::string line(event);
  for (const LogField& field : fields) {
    line += ' ';
    line += field.key;
    line += '=';
    if (is_plain(field.value)) {
      line += field.value;
    } else {
      append_quoted(line, field.value);
    }
  }
  return line;
}

std::string format_log_members(std::string_view event, LogFields fields) {
  const auto quoted = [](std::string_view text) { return to_text(nlohmann::json(text)); };
  std::string line = "\"event\":" + quoted(event);
  for (const LogField& field : fields) {
    // "true" is JSON, too; "nan" and "inf" are not.
    const bool bare = field.number && field.value.find_first_of("ni") == std::string::npos;
    line += fmt::format(",{}:{}", quoted(field.key), bare ? field.value : quoted(field.value));
  }
  return line;
}

void log_error(std::string_view event, LogFields fields) {
  write(spdlog::level::err, event, fields);
}
void log_warn(std::string_view event, LogFields fields) {
  write(spdlog::level::warn, event, fields);
}
void log_info(std::string_view event, LogFields fields) {
  write(spdlog::level::info, event, fields);
}
void log_debug(std::string_view event, LogFields fields) {
  write(spdlog::level::debug, event, fields);
}
void log_trace(std::string_view event, LogFields fields) {
  write(spdlog::level::trace, event, fields);
}

}  // namespace mantou
