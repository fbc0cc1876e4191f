// Writers of small checkpoint files for tests and fuzz seeds: header only, used by *_test.cc and
// *_fuzz.cc alone. They write what they are told, so hostile files are a field away.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/raw_tensor.h"
#include "hub/gguf.h"

namespace mantou::hub::testing {

// A directory that is removed with its contents.
class TempDirectory {
 public:
  TempDirectory() {
    std::string pattern = (std::filesystem::temp_directory_path() / "mantou-hub-XXXXXX").string();
    path_ = ::mkdtemp(pattern.data());
  }
  ~TempDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TempDirectory(const TempDirectory&) = delete;
  TempDirectory& operator=(const TempDirectory&) = delete;

  const std::filesystem::path& path() const { return path_; }
  // Writes `bytes` to `name` (its directories are made) and returns its path.
  std::filesystem::path write(const std::string& name, std::string_view bytes) const {
    const auto path = path_ / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  std::filesystem::path write(const std::string& name, const nlohmann::json& json) const {
    return write(name, std::string_view(json.dump()));
  }

 private:
  std::filesystem::path path_;
};

inline std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

template <class T>
void append(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

// A GGUF file field by field. Every header field can be set to a lie before bytes() is called.
class GgufWriter {
 public:
  std::string magic = "GGUF";
  uint32_t version = 3;
  std::optional<uint64_t> tensor_count, value_count;  // unset: the truth
  uint64_t alignment = 32;                            // of the data as written, not the key

  struct Tensor {
    std::string name;
    std::vector<uint64_t> dims;  // innermost first, as in the file
    uint32_t type = 0;           // ggml's number
    std::string data;
    std::optional<uint64_t> offset;  // unset: after the tensor before it
  };
  std::vector<Tensor> tensors;

  GgufWriter& raw(std::string_view key, uint32_t type, std::string_view payload) {
    string(values_, key);
    append(values_, type);
    values_ += payload;
    ++values_written_;
    return *this;
  }
  template <class T>
  GgufWriter& number(std::string_view key, GgufType type, T value) {
    std::string payload;
    append(payload, value);
    return raw(key, uint32_t(type), payload);
  }
  GgufWriter& u32(std::string_view key, uint32_t value) {
    return number(key, GgufType::kU32, value);
  }
  GgufWriter& f32(std::string_view key, float value) { return number(key, GgufType::kF32, value); }
  GgufWriter& boolean(std::string_view key, bool value) {
    return number(key, GgufType::kBool, uint8_t(value));
  }
  GgufWriter& text(std::string_view key, std::string_view value) {
    std::string payload;
    string(payload, value);
    return raw(key, uint32_t(GgufType::kString), payload);
  }
  GgufWriter& strings(std::string_view key, const std::vector<std::string>& values) {
    std::string payload;
    append(payload, uint32_t(GgufType::kString));
    append(payload, uint64_t(values.size()));
    for (const std::string& value : values) string(payload, value);
    return raw(key, uint32_t(GgufType::kArray), payload);
  }
  template <class T>
  GgufWriter& array(std::string_view key, GgufType type, const std::vector<T>& values) {
    std::string payload;
    append(payload, uint32_t(type));
    append(payload, uint64_t(values.size()));
    for (const T value : values) append(payload, value);
    return raw(key, uint32_t(GgufType::kArray), payload);
  }
  // An F32 tensor counting up from `first`.
  GgufWriter& floats(std::string_view name, const std::vector<uint64_t>& dims, float first = 0) {
    Tensor tensor{std::string(name), dims, 0, {}, {}};
    uint64_t count = 1;
    for (const uint64_t extent : dims) count *= extent;
    for (uint64_t i = 0; i < count; ++i) append(tensor.data, first + float(i));
    tensors.push_back(std::move(tensor));
    return *this;
  }

  std::string bytes() const {
    std::string out = magic;
    append(out, version);
    append(out, tensor_count.value_or(tensors.size()));
    append(out, value_count.value_or(values_written_));
    out += values_;
    std::string data;
    for (const Tensor& tensor : tensors) {
      string(out, tensor.name);
      append(out, uint32_t(tensor.dims.size()));
      for (const uint64_t extent : tensor.dims) append(out, extent);
      append(out, tensor.type);
      append(out, tensor.offset.value_or(data.size()));
      data += tensor.data;
      pad(data);
    }
    pad(out);
    return out + data;
  }

  static void string(std::string& out, std::string_view value) {
    append(out, uint64_t(value.size()));
    out += value;
  }

 private:
  void pad(std::string& out) const {
    if (alignment > 0) out.resize((out.size() + alignment - 1) / alignment * alignment, '\0');
  }
  std::string values_;
  uint64_t values_written_ = 0;
};

// A safetensors file; `header` is dumped as it stands before `data`.
inline std::string safetensors_bytes(std::string_view header, std::string_view data) {
  std::string out;
  append(out, uint64_t(header.size()));
  out += header;
  out += data;
  return out;
}

// Tensors one after the other with a truthful header.
class SafetensorsWriter {
 public:
  template <class T>
  SafetensorsWriter& add(const std::string& name, const char* dtype,
                         const std::vector<int64_t>& shape, const std::vector<T>& values) {
    const size_t begin = data_.size();
    for (const T value : values) append(data_, value);
    header_[name] = {{"dtype", dtype}, {"shape", shape}, {"data_offsets", {begin, data_.size()}}};
    return *this;
  }
  // The first bytes of little-endian `words`, as many as a tensor of `shape` takes.
  SafetensorsWriter& words(const std::string& name, const char* dtype,
                           const std::vector<int64_t>& shape, const std::vector<uint32_t>& words) {
    size_t bytes = dtype[1] == '8' ? 1 : dtype[1] == '3' ? 4 : 2;
    for (const int64_t extent : shape) bytes *= size_t(extent);
    std::vector<char> values(bytes);
    std::memcpy(values.data(), words.data(), std::min(bytes, words.size() * sizeof(uint32_t)));
    return add(name, dtype, shape, values);
  }
  SafetensorsWriter& floats(const std::string& name, const std::vector<int64_t>& shape,
                            float first = 0) {
    size_t count = 1;
    for (const int64_t extent : shape) count *= size_t(extent);
    std::vector<float> values(count);
    for (size_t i = 0; i < count; ++i) values[i] = first + float(i);
    return add(name, "F32", shape, values);
  }
  std::string bytes() const { return safetensors_bytes(header_.dump(), data_); }

 private:
  nlohmann::json header_ = nlohmann::json::object();
  std::string data_;
};

}  // namespace mantou::hub::testing
