// A JSON parser for texts from outside: it counts depth and values, watches for repeated keys, and
// takes time in proportion to the text (nlohmann's callbacks and ordered objects do not). Any
// thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

namespace mantou {

struct JsonBounds {
  int depth = 64;  // nested objects and arrays
  size_t values = SIZE_MAX;
  bool refuse_duplicate_keys = false;  // otherwise the last one counts, as in Python
};

// What is wrong with a text; callers say it in their protocol's words.
struct JsonDefect {
  enum Kind { kSyntax, kDepth, kValues, kDuplicateKey } kind;
  size_t position = 0;  // kSyntax: bytes read
  std::string detail;   // kSyntax: the reason; kDuplicateKey: the key
};

template <class Json>
class JsonBuilder final : public nlohmann::json_sax<Json> {
  using Sax = nlohmann::json_sax<Json>;

 public:
  explicit JsonBuilder(const JsonBounds& bounds) : bounds_(bounds) {}
  Json take() { return std::move(root_); }

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(typename Sax::number_integer_t value) override { return add(value); }
  bool number_unsigned(typename Sax::number_unsigned_t value) override { return add(value); }
  bool number_float(typename Sax::number_float_t value, const typename Sax::string_t&) override {
    return add(value);
  }
  bool string(typename Sax::string_t& value) override { return add(std::move(value)); }
  bool binary(typename Sax::binary_t& value) override { return add(std::move(value)); }
  bool start_object(size_t) override { return open(Json::object()); }
  bool start_array(size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(typename Sax::string_t& name) override {
    const auto [at, fresh] = stack_.back().keys.emplace(name, stack_.back().keys.size());
    if (!fresh && bounds_.refuse_duplicate_keys)
      throw JsonDefect{JsonDefect::kDuplicateKey, 0, std::move(name)};
    number_ = at->second;
    key_ = std::move(name);
    return true;
  }
  bool parse_error(size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    std::string_view what = error.what();  // "[json.exception.…] parse error at …: reason"
    if (const size_t at = what.find("] "); at != what.npos) what.remove_prefix(at + 2);
    // The parser quotes all that it read of a broken value.
    constexpr size_t kLongest = 200;
    size_t end = std::min(what.size(), kLongest);
    while (end < what.size() && (what[end] & 0xC0) == 0x80) end--;  // inside a character
    std::string reason(what.substr(0, end));
    if (end < what.size()) reason += "…";
    throw JsonDefect{JsonDefect::kSyntax, position, std::move(reason)};
  }

 private:
  // An object or array that is not closed yet. A parent does not grow while its child does.
  struct Open {
    Json* json;
    std::unordered_map<std::string, size_t> keys;  // to their places
  };

  Json* place(Json&& value) {
    if (++values_ > bounds_.values) throw JsonDefect{JsonDefect::kValues, 0, {}};
    if (stack_.empty()) return &(root_ = std::move(value));
    Json& parent = *stack_.back().json;
    if (!parent.is_object()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    auto& members = parent.template get_ref<typename Json::object_t&>();
    if constexpr (std::is_same_v<Json, nlohmann::ordered_json>) {
      // Not operator[], which looks for the key once more, one after another.
      if (number_ == members.size())
        return &members.emplace_back(std::move(key_), std::move(value)).second;
      return &((members.begin() + ptrdiff_t(number_))->second = std::move(value));
    } else {
      return &members.insert_or_assign(std::move(key_), std::move(value)).first->second;
    }
  }
  bool add(Json&& value) {
    place(std::move(value));
    return true;
  }
  bool open(Json&& value) {
    if (int(stack_.size()) >= bounds_.depth) throw JsonDefect{JsonDefect::kDepth, 0, {}};
    stack_.push_back({place(std::move(value)), {}});
    return true;
  }
  bool close() {
    stack_.pop_back();
    return true;
  }

  const JsonBounds bounds_;
  Json root_;
  std::vector<Open> stack_;
  std::string key_;    // of the value that comes next
  size_t number_ = 0;  // its place in the object
  size_t values_ = 0;
};

// Throws JsonDefect.
template <class Json>
Json build_json(std::string_view text, const JsonBounds& bounds = {}) {
  JsonBuilder<Json> builder(bounds);
  Json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

}  // namespace mantou
