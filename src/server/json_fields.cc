#include "server/json_fields.h"

#include <unordered_set>
#include <utility>

#include "base/error.h"
#include "base/json.h"

namespace mantou::server {
namespace {

// Builds a Json while it counts depth and values and watches for repeated keys.
class Builder final : public nlohmann::json_sax<Json> {
 public:
  explicit Builder(const JsonLimits& limits) : limits_(limits) {}
  Json take() { return std::move(root_); }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t& value) override { return add(std::move(value)); }
  bool start_object(size_t) override { return open(Json::object()); }
  bool start_array(size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    if (!stack_.back().keys.insert(name).second)
      fail(ErrorCode::kInvalidArgument, "invalid JSON: the key {} occurs twice in one object",
           shortened(name));
    key_ = std::move(name);
    return true;
  }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    std::string_view what = error.what();  // "[json.exception.…] parse error at …: reason"
    if (const size_t at = what.find("] "); at != what.npos) what.remove_prefix(at + 2);
    fail(ErrorCode::kInvalidArgument, "invalid JSON at byte {}: {}", position, what);
  }

 private:
  // An object or array that is not closed yet. A parent does not grow while its child does.
  struct Open {
    Json* json;
    std::unordered_set<std::string> keys;
  };

  Json* place(Json&& value) {
    if (++values_ > limits_.values)
      fail(ErrorCode::kInvalidArgument, "the JSON holds more than {} values", limits_.values);
    if (stack_.empty()) return &(root_ = std::move(value));
    Json& parent = *stack_.back().json;
    if (parent.is_object()) {
      // Not operator[], which looks for the key once more, one after another.
      auto& members = parent.get_ref<Json::object_t&>();
      return &members.emplace_back(std::move(key_), std::move(value)).second;
    }
    parent.push_back(std::move(value));
    return &parent.back();
  }
  bool add(Json&& value) {
    place(std::move(value));
    return true;
  }
  bool open(Json&& value) {
    if (int(stack_.size()) >= limits_.depth)
      fail(ErrorCode::kInvalidArgument, "the JSON is nested deeper than {} levels", limits_.depth);
    stack_.push_back({place(std::move(value)), {}});
    return true;
  }
  bool close() {
    stack_.pop_back();
    return true;
  }

  const JsonLimits limits_;
  Json root_;
  std::vector<Open> stack_;
  std::string key_;
  size_t values_ = 0;
};

template <class T>
std::string range_text(std::string_view kind, T low, T high) {
  const bool no_low = low == std::numeric_limits<T>::lowest();
  const bool no_high = high == std::numeric_limits<T>::max();
  if (no_low && no_high) return std::string(kind);
  if (no_high) return fmt::format("{} of at least {}", kind, low);
  return fmt::format("{} from {} to {}", kind, low, high);
}

// The integer a JSON number stands for, when it stands for one that fits.
std::optional<int64_t> integer_of(const Json& value) {
  if (value.is_number_unsigned()) {
    const uint64_t number = value.get<uint64_t>();
    if (number > uint64_t(Fields::kMaxInt)) return std::nullopt;
    return int64_t(number);
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  return std::nullopt;
}

}  // namespace

Json parse_json(std::string_view text, const JsonLimits& limits) {
  Builder builder(limits);
  Json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
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
