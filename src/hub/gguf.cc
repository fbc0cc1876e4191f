#include "hub/gguf.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "hub/json_file.h"

namespace mantou::hub {
namespace {

template <class T>
T load(std::span<const std::byte> bytes, size_t index = 0) {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
  return value;
}

// The `index`-th element as an integer; empty when the type is no integer or it exceeds int64.
std::optional<int64_t> integer_at(const GgufValue& value, size_t index) {
  switch (value.type) {
    case GgufType::kU8:
      return load<uint8_t>(value.bytes, index);
    case GgufType::kI8:
      return load<int8_t>(value.bytes, index);
    case GgufType::kU16:
      return load<uint16_t>(value.bytes, index);
    case GgufType::kI16:
      return load<int16_t>(value.bytes, index);
    case GgufType::kU32:
      return load<uint32_t>(value.bytes, index);
    case GgufType::kI32:
      return load<int32_t>(value.bytes, index);
    case GgufType::kI64:
      return load<int64_t>(value.bytes, index);
    case GgufType::kU64: {
      const uint64_t v = load<uint64_t>(value.bytes, index);
      if (v > uint64_t(std::numeric_limits<int64_t>::max())) return std::nullopt;
      return int64_t(v);
    }
    default:
      return std::nullopt;
  }
}

std::optional<double> number_at(const GgufValue& value, size_t index) {
  if (value.type == GgufType::kF32) return load<float>(value.bytes, index);
  if (value.type == GgufType::kF64) return load<double>(value.bytes, index);
  if (const auto integer = integer_at(value, index)) return double(*integer);
  return std::nullopt;
}

[[noreturn]] void wrong_kind(const GgufFile& file, std::string_view key, std::string_view wanted) {
  fail_param(ErrorCode::kCorruptData, std::string(key), "{}: metadata key \"{}\" is not {}",
             file.origin(), printable(key), wanted);
}

// `value`'s strings; its bounds were checked by the parser.
std::vector<std::string> strings_of(const GgufValue& value) {
  std::vector<std::string> out;
  out.reserve(size_t(value.count));
  std::span<const std::byte> rest = value.bytes;
  for (uint64_t i = 0; i < value.count; ++i) {
    const size_t length = size_t(load<uint64_t>(rest));
    out.emplace_back(reinterpret_cast<const char*>(rest.data()) + sizeof(uint64_t), length);
    rest = rest.subspan(sizeof(uint64_t) + length);
  }
  return out;
}

}  // namespace

const RawTensor* GgufFile::find_tensor(std::string_view name) const {
  const auto found = std::find_if(tensors_.begin(), tensors_.end(),
                                  [&](const RawTensor& tensor) { return tensor.name == name; });
  return found == tensors_.end() ? nullptr : &*found;
}

const GgufValue* GgufFile::find(std::string_view key) const {
  const auto found = index_.find(std::string(key));
  return found == index_.end() ? nullptr : &metadata_[found->second];
}

std::optional<int64_t> GgufFile::get_int(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  const auto number = value->array ? std::nullopt : integer_at(*value, 0);
  if (!number) wrong_kind(*this, key, "an integer");
  return number;
}

std::optional<double> GgufFile::get_double(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  const auto number = value->array ? std::nullopt : number_at(*value, 0);
  if (!number || !std::isfinite(*number)) wrong_kind(*this, key, "a finite number");
  return number;
}

std::optional<bool> GgufFile::get_bool(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->array || value->type != GgufType::kBool) wrong_kind(*this, key, "true or false");
  return load<uint8_t>(value->bytes) != 0;
}

std::optional<std::string> GgufFile::get_string(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->array || value->type != GgufType::kString) wrong_kind(*this, key, "a string");
  return std::move(strings_of(*value).front());
}

std::vector<std::string> GgufFile::get_strings(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return {};
  if (!value->array || value->type != GgufType::kString)
    wrong_kind(*this, key, "an array of strings");
  return strings_of(*value);
}

std::vector<int64_t> GgufFile::get_ints(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return {};
  std::vector<int64_t> out;
  for (size_t i = 0; i < value->count; ++i) {
    const auto number = value->type == GgufType::kBool
                            ? std::optional<int64_t>(load<uint8_t>(value->bytes, i) != 0)
                            : integer_at(*value, i);
    if (!number) wrong_kind(*this, key, "an array of integers");
    out.push_back(*number);
  }
  return out;
}

std::vector<float> GgufFile::get_floats(std::string_view key) const {
  const GgufValue* value = find(key);
  if (value == nullptr) return {};
  if (!value->array) wrong_kind(*this, key, "an array of numbers");
  std::vector<float> out;
  for (size_t i = 0; i < value->count; ++i) {
    const auto number = number_at(*value, i);
    if (!number) wrong_kind(*this, key, "an array of numbers");
    out.push_back(float(*number));
  }
  return out;
}

}  // namespace mantou::hub
