// The one exception type of the project.
//
// An Error says what went wrong in one line a user can act on: `message` names the file, field or
// limit, `param` holds that name alone so that a protocol can report it in its own shape. Errors
// are caught where their request, step or program ends: around an HTTP endpoint, in the engine's
// step and in main. Outcomes that are expected are return values, not errors.
#pragma once

#include <fmt/format.h>

#include <exception>
#include <string>
#include <utility>

namespace mantou {

enum class ErrorCode {
  kInvalidArgument,    // the caller passed something wrong: HTTP 400, exit code 2
  kNotFound,           // a model, file, route or id does not exist: 404
  kUnsupported,        // well-formed, but nothing here can do it: 400 or 501
  kCorruptData,        // bytes from outside break their format
  kResourceExhausted,  // memory, context, queue, disk: 429 or 400 with the limit
  kCancelled,          // somebody asked for it to stop
  kUnavailable,        // shutting down, or not ready yet: 503
  kNumerical,          // NaN or infinity where a number was needed
  kIo,                 // the operating system refused
  kInternal,           // a broken invariant of ours
};

class Error : public std::exception {
 public:
  Error(ErrorCode code, std::string message, std::string param = {})
      : code_(code), message_(std::move(message)), param_(std::move(param)) {}

  ErrorCode code() const { return code_; }
  const std::string& message() const { return message_; }
  const std::string& param() const { return param_; }  // field, flag or file; may be empty
  const char* what() const noexcept override { return message_.c_str(); }

 private:
  ErrorCode code_;
  std::string message_;
  std::string param_;
};

// Formats and throws: fail(ErrorCode::kNotFound, "no model named {}", name).
template <class... Args>
[[noreturn]] void fail(ErrorCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

// The same with the name of the field or file in `param`.
template <class... Args>
[[noreturn]] void fail_param(ErrorCode code, std::string param, fmt::format_string<Args...> format,
                             Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...), std::move(param));
}

}  // namespace mantou
