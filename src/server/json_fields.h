// Reading JSON that came from outside: a parser with limits, and typed access to an object's fields
// whose errors name the field, what it must be and what it was.
//
//   Fields fields(body);
//   fields.read("temperature", sampling.temperature, 0, 2);   // stays as it is when absent or null
//
// Any thread.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace mantou::server {

// Ordered, because templates print tools and arguments in the order they were written in.
using Json = nlohmann::ordered_json;

struct JsonLimits {
  int depth = 64;
  size_t values = 1'000'000;
};

// kInvalidArgument: broken JSON with the byte's position, an object that names a key twice, invalid
// UTF-8, more depth or values than the limits.
Json parse_json(std::string_view text, const JsonLimits& limits = {});

class Fields {
 public:
  static constexpr int64_t kMaxInt = std::numeric_limits<int64_t>::max();

  // `object` must outlive this; an Error names `path` when it is no object.
  explicit Fields(const Json& object, std::string path = {});

  // Nothing when the field is absent or null.
  const Json* find(std::string_view name) const;

  // Each leaves `out` alone when the field is absent or null and returns whether it was there.
  bool read(std::string_view name, bool& out) const;
  bool read(std::string_view name, std::string& out) const;
  bool read(std::string_view name, double& out, double low, double high) const;
  bool read(std::string_view name, int& out, int low, int high) const;
  bool read(std::string_view name, int64_t& out, int64_t low, int64_t high) const;

  // A field that holds a string or an array of at most `limit` strings, none of them empty.
  bool read_strings(std::string_view name, std::vector<std::string>& out, size_t limit) const;
  bool read_integers(std::string_view name, std::vector<int32_t>& out, size_t limit, int32_t low,
                     int32_t high) const;

  std::string path_of(std::string_view name) const;

  // "'stop[2]' must be a string, not 7".
  [[noreturn]] static void wrong(std::string path, std::string_view expected, const Json& value);

 private:
  const Json& object_;
  const std::string path_;  // empty: the body itself
};

// The integer that a JSON number stands for, when it is one that fits. Json's own operators compare
// what is above kMaxInt as if it were negative.
std::optional<int64_t> integer_of(const Json& value);

// The value in a few characters, for messages.
std::string shortened(const Json& value);

}  // namespace mantou::server
