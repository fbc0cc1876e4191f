#include "server/json_fields.h"

#include <utility>

#include "base/error.h"
#include "base/json.h"
#include "base/json_builder.h"

namespace mantou::server {
namespace {

template <class T>
std::string range_text(std::string_view kind, T low, T high) {
  const bool no_low = low == std::numeric_limits<T>::lowest();
  const bool no_high = high == std::numeric_limits<T>::max();
  if (no_low && no_high) return std::string(kind);
  if (no_high) return fmt::format("{} of at least {}", kind, low);
  return fmt::format("{} from {} to {}", kind, low, high);
}

}  // namespace

Json parse_json(std::string_view text, const JsonLimits& limits) {
  try {
    return build_json<Json>(text, {limits.depth, limits.values, true});
  } catch (const JsonDefect& defect) {
    switch (defect.kind) {
      case JsonDefect::kDepth:
        fail(ErrorCode::kInvalidArgument, "the JSON is nested deeper than {} levels", limits.depth);
      case JsonDefect::kValues:
        fail(ErrorCode::kInvalidArgument, "the JSON holds more than {} values", limits.values);
      case JsonDefect::kDuplicateKey:
        fail(ErrorCode::kInvalidArgument, "invalid JSON: the key {} occurs twice in one object",
             shortened(defect.detail));
      case JsonDefect::kSyntax:
        break;
    }
    fail(ErrorCode::kInvalidArgument, "invalid JSON at byte {}: {}", defect.position,
         defect.detail);
  }
}

std::optional<int64_t> integer_of(const Json& value) {
  if (value.is_number_unsigned()) {
    const uint64_t number = value.get<uint64_t>();
    if (number > uint64_t(Fields::kMaxInt)) return std::nullopt;
    return int64_t(number);
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  return std::nullopt;
}

std::string shortened(const Json& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return fmt::format("an array of {}", value.size());
  constexpr size_t kLongest = 60;
  std::string text = to_text(value, -1, /*ascii=*/true);
  if (text.size() > kLongest) text = text.substr(0, kLongest) + "…";
  return text;
}

Fields::Fields(const Json& object, std::string path) : object_(object), path_(std::move(path)) {
  if (!object.is_object()) wrong(path_, "an object", object);
}

void Fields::wrong(std::string path, std::string_view expected, const Json& value) {
  std::string message =
      path.empty() ? fmt::format("the request body must be {}, not {}", expected, shortened(value))
                   : fmt::format("'{}' must be {}, not {}", path, expected, shortened(value));
  throw Error(ErrorCode::kInvalidArgument, std::move(message), std::move(path));
}

std::string Fields::path_of(std::string_view name) const {
  return path_.empty() ? std::string(name) : fmt::format("{}.{}", path_, name);
}

const Json* Fields::find(std::string_view name) const {
  const auto at = object_.find(name);
  return at == object_.end() || at->is_null() ? nullptr : &*at;
}

bool Fields::read(std::string_view name, bool& out) const {
  const Json* value = find(name);
  if (value == nullptr) return false;
  if (!value->is_boolean()) wrong(path_of(name), "true or false", *value);
  out = value->get<bool>();
  return true;
}

bool Fields::read(std::string_view name, std::string& out) const {
  const Json* value = find(name);
  if (value == nullptr) return false;
  if (!value->is_string()) wrong(path_of(name), "a string", *value);
  out = value->get_ref<const std::string&>();
  return true;
}

bool Fields::read(std::string_view name, double& out, double low, double high) const {
  const Json* value = find(name);
  if (value == nullptr) return false;
  const double number = value->is_number() ? value->get<double>() : 0;
  if (!value->is_number() || !(number >= low && number <= high))
    wrong(path_of(name), range_text("a number", low, high), *value);
  out = number;
  return true;
}

bool Fields::read(std::string_view name, int64_t& out, int64_t low, int64_t high) const {
  const Json* value = find(name);
  if (value == nullptr) return false;
  const std::optional<int64_t> number = integer_of(*value);
  if (!number || *number < low || *number > high)
    wrong(path_of(name), range_text("an integer", low, high), *value);
  out = *number;
  return true;
}

bool Fields::read(std::string_view name, int& out, int low, int high) const {
  int64_t wide = out;
  const int64_t top = high == std::numeric_limits<int>::max() ? kMaxInt : high;
  if (!read(name, wide, int64_t(low), top)) return false;
  out = int(
      std::min<int64_t>(wide, high));  // "as many as possible" is often spelled as a huge number
  return true;
}

bool Fields::read_strings(std::string_view name, std::vector<std::string>& out,
                          size_t limit) const {
  const Json* value = find(name);
  if (value == nullptr) return false;
  const std::string path = path_of(name);
  const auto text = [](const Json& item, std::string where) {
    if (!item.is_string() || item.get_ref<const std::string&>().empty())
      wrong(std::move(where), "a string that is not empty", item);
    return item.get<std::string>();
  };
  std::vector<std::string> strings;
  if (value->is_array()) {
    if (value->size() > limit)
      wrong(path, fmt::format("a string or an array of at most {} strings", limit), *value);
    for (size_t i = 0; i < value->size(); ++i)
      strings.push_back(text((*value)[i], fmt::format("{}[{}]", path, i)));
  } else {
    strings.push_back(text(*value, path));
  }
  out = std::move(strings);
  return true;
}

bool Fields::read_integers(std::string_view name, std::vector<int32_t>& out, size_t limit,
                           int32_t low, int32_t high) const {
  const Json* value = find(name);
  if (value == nullptr) return false;
  const std::string path = path_of(name);
  if (!value->is_array() || value->size() > limit)
    wrong(path, fmt::format("an array of at most {} integers", limit), *value);
  std::vector<int32_t> integers;
  for (size_t i = 0; i < value->size(); ++i) {
    const std::optional<int64_t> number = integer_of((*value)[i]);
    if (!number || *number < low || *number > high)
      wrong(fmt::format("{}[{}]", path, i), fmt::format("an integer from {} to {}", low, high),
            (*value)[i]);
    integers.push_back(int32_t(*number));
  }
  out = std::move(integers);
  return true;
}

}  // namespace mantou::server
