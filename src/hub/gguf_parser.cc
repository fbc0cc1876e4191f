// The structure of a GGUF file: everything that GgufFile::parse checks.
#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <unordered_set>

#include "base/error.h"
#include "hub/gguf.h"
#include "hub/json_file.h"

static_assert(std::endian::native == std::endian::little, "GGUF values are read in place");

namespace mantou::hub {
namespace {

constexpr size_t kMaxKeyBytes = 65535;
constexpr size_t kMaxTensorNameBytes = 1024;
constexpr uint32_t kMaxDims = 4;
constexpr uint64_t kDefaultAlignment = 32;
constexpr uint64_t kMaxAlignment = uint64_t{1} << 20;

// ggml's tensor types by number; the ones that were removed again keep their names for messages.
struct TensorType {
  uint32_t id;
  std::string_view name;
  std::optional<DType> dtype;  // empty: not readable here
};
constexpr std::array kTensorTypes = {
    TensorType{0, "F32", DType::kF32},
    TensorType{1, "F16", DType::kF16},
    TensorType{2, "Q4_0", DType::kQ4_0},
    TensorType{3, "Q4_1", DType::kQ4_1},
    TensorType{4, "Q4_2", {}},
    TensorType{5, "Q4_3", {}},
    TensorType{6, "Q5_0", DType::kQ5_0},
    TensorType{7, "Q5_1", DType::kQ5_1},
    TensorType{8, "Q8_0", DType::kQ8_0},
    TensorType{9, "Q8_1", {}},
    TensorType{10, "Q2_K", DType::kQ2_K},
    TensorType{11, "Q3_K", DType::kQ3_K},
    TensorType{12, "Q4_K", DType::kQ4_K},
    TensorType{13, "Q5_K", DType::kQ5_K},
    TensorType{14, "Q6_K", DType::kQ6_K},
    TensorType{15, "Q8_K", {}},
    TensorType{16, "IQ2_XXS", {}},
    TensorType{17, "IQ2_XS", {}},
    TensorType{18, "IQ3_XXS", {}},
    TensorType{19, "IQ1_S", {}},
    TensorType{20, "IQ4_NL", DType::kIQ4_NL},
    TensorType{21, "IQ3_S", {}},
    TensorType{22, "IQ2_S", {}},
    TensorType{23, "IQ4_XS", DType::kIQ4_XS},
    TensorType{24, "I8", {}},
    TensorType{25, "I16", {}},
    TensorType{26, "I32", {}},
    TensorType{27, "I64", {}},
    TensorType{28, "F64", {}},
    TensorType{29, "IQ1_M", {}},
    TensorType{30, "BF16", DType::kBF16},
    TensorType{31, "Q4_0_4_4", {}},
    TensorType{32, "Q4_0_4_8", {}},
    TensorType{33, "Q4_0_8_8", {}},
    TensorType{34, "TQ1_0", {}},
    TensorType{35, "TQ2_0", {}},
    TensorType{36, "IQ4_NL_4_4", {}},
    TensorType{37, "IQ4_NL_4_8", {}},
    TensorType{38, "IQ4_NL_8_8", {}},
    TensorType{39, "MXFP4", DType::kMXFP4},
    TensorType{40, "NVFP4", {}},
    TensorType{41, "Q1_0", {}},
};

std::string readable_types() {
  std::string names;
  for (const TensorType& type : kTensorTypes)
    if (type.dtype) names += fmt::format("{}{}", names.empty() ? "" : ", ", type.name);
  return names;
}

// Bytes of one value; 0 for strings and arrays.
constexpr std::array<uint8_t, 13> kValueBytes = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};

// Reads forward through the file; every read is checked against what is left.
class Cursor {
 public:
  Cursor(std::span<const std::byte> bytes, const std::string& origin)
      : bytes_(bytes), origin_(origin) {}

  size_t position() const { return at_; }
  size_t left() const { return bytes_.size() - at_; }

  std::span<const std::byte> take(uint64_t n, std::string_view what) {
    if (n > left())
      fail_param(
          ErrorCode::kCorruptData, origin_,
          "{}: the file ends inside {} ({} bytes wanted at byte {}, {} left); is the download "
          "complete?",
          origin_, what, n, at_, left());
    const auto taken = bytes_.subspan(at_, size_t(n));
    at_ += size_t(n);
    return taken;
  }
  template <class T>
  T read(std::string_view what) {
    T value;
    std::memcpy(&value, take(sizeof(T), what).data(), sizeof(T));
    return value;
  }
  std::string_view read_string(std::string_view what,
                               size_t limit = std::numeric_limits<size_t>::max()) {
    const uint64_t length = read<uint64_t>(what);
    if (length > limit)
      fail_param(ErrorCode::kCorruptData, origin_, "{}: {} is {} bytes long, more than {}", origin_,
                 what, length, limit);
    const auto taken = take(length, what);
    return {reinterpret_cast<const char*>(taken.data()), taken.size()};
  }

 private:
  std::span<const std::byte> bytes_;
  const std::string& origin_;
  size_t at_ = 0;
};

}  // namespace

// Builds a GgufFile; lives only during parse().
class GgufParser {
 public:
  GgufParser(std::span<const std::byte> bytes, std::string origin,
             std::shared_ptr<const void> keep_alive)
      : file_(new GgufFile), bytes_(bytes) {
    file_->origin_ = std::move(origin);
    file_->keep_alive_ = std::move(keep_alive);
  }

  std::shared_ptr<const GgufFile> run() {
    Cursor cursor(bytes_, file_->origin_);
    read_magic_and_version(cursor);
    const auto tensors = cursor.read<uint64_t>("the tensor count");
    const auto values = cursor.read<uint64_t>("the metadata count");
    // The smallest entries: 8 + 1 + 4 + 1 bytes of metadata, 8 + 1 + 4 + 8 + 4 + 8 of a tensor.
    if (values > cursor.left() / 13 || tensors > cursor.left() / 32)
      corrupt("{} metadata entries and {} tensors cannot lie in a file of {} bytes", values,
              tensors, bytes_.size());
    for (uint64_t i = 0; i < values; ++i) read_value(cursor);
    std::vector<uint64_t> offsets;
    for (uint64_t i = 0; i < tensors; ++i) offsets.push_back(read_tensor(cursor));
    place_tensors(cursor.position(), offsets);
    return file_;
  }

 private:
  template <class... Args>
  [[noreturn]] void corrupt(fmt::format_string<Args...> format, Args&&... args) const {
    fail_param(ErrorCode::kCorruptData, file_->origin_, "{}: {}", file_->origin_,
               fmt::format(format, std::forward<Args>(args)...));
  }
  template <class... Args>
  [[noreturn]] void unsupported(fmt::format_string<Args...> format, Args&&... args) const {
    fail_param(ErrorCode::kUnsupported, file_->origin_, "{}: {}", file_->origin_,
               fmt::format(format, std::forward<Args>(args)...));
  }

  void read_magic_and_version(Cursor& cursor) const {
    if (bytes_.size() < 8 || std::memcmp(bytes_.data(), "GGUF", 4) != 0)
      corrupt("not a GGUF file (it does not begin with \"GGUF\")");
    cursor.read<uint32_t>("the magic number");
    const auto version = cursor.read<uint32_t>("the version");
    if ((version & 0xffffu) == 0)
      unsupported("a big-endian GGUF file; convert it to little-endian");
    if (version != 2 && version != 3)
      unsupported("GGUF version {}; versions 2 and 3 can be read", version);
  }

  GgufType read_type(Cursor& cursor, std::string_view key) const {
    const auto type = cursor.read<uint32_t>("a metadata type");
    if (type >= kValueBytes.size())
      corrupt("metadata key \"{}\" has the unknown type {}", printable(key), type);
    return GgufType(type);
  }

  void read_value(Cursor& cursor) {
    GgufValue value;
    value.key = cursor.read_string("a metadata key", kMaxKeyBytes);
    value.type = read_type(cursor, value.key);
    if (value.type == GgufType::kArray) {
      value.array = true;
      value.type = read_type(cursor, value.key);
      if (value.type == GgufType::kArray)
        unsupported("metadata key \"{}\" is an array of arrays", printable(value.key));
      value.count = cursor.read<uint64_t>("an array's length");
    }
    const std::string what = fmt::format("the value of \"{}\"", printable(value.key));
    const size_t size = kValueBytes[size_t(value.type)];
    const size_t smallest = value.type == GgufType::kString ? sizeof(uint64_t) : size;
    if (value.count > cursor.left() / smallest)
      corrupt("{} has {} elements, more than the rest of the file holds", what, value.count);
    if (value.type != GgufType::kString) {
      value.bytes = cursor.take(value.count * size, what);
    } else {
      const size_t begin = cursor.position();
      for (uint64_t i = 0; i < value.count; ++i) cursor.read_string(what);
      value.bytes = bytes_.subspan(begin, cursor.position() - begin);
    }
    if (!file_->index_.emplace(value.key, file_->metadata_.size()).second)
      corrupt("metadata key \"{}\" appears twice", printable(value.key));
    file_->metadata_.push_back(std::move(value));
  }

  // Reads one description into tensors_, without its data; returns the data's offset.
  uint64_t read_tensor(Cursor& cursor) {
    RawTensor tensor;
    tensor.name = cursor.read_string("a tensor's name", kMaxTensorNameBytes);
    if (!names_.insert(tensor.name).second)
      corrupt("tensor \"{}\" appears twice", printable(tensor.name));
    const auto dims = cursor.read<uint32_t>("a tensor's dimensions");
    if (dims < 1 || dims > kMaxDims)
      corrupt("tensor \"{}\" has {} dimensions, must be 1 … {}", printable(tensor.name), dims,
              kMaxDims);
    uint64_t elements = 1;
    for (uint32_t i = 0; i < dims; ++i) {
      const auto extent = cursor.read<uint64_t>("a tensor's dimensions");
      if (extent == 0 || extent > uint64_t(std::numeric_limits<int64_t>::max()) ||
          __builtin_mul_overflow(elements, extent, &elements))
        corrupt("tensor \"{}\" has an impossible extent of {}", printable(tensor.name), extent);
      tensor.shape.insert(tensor.shape.begin(), int64_t(extent));  // stored innermost first
    }
    tensor.dtype = read_tensor_type(cursor, tensor.name);
    const DTypeInfo& info = dtype_info(tensor.dtype);
    if (tensor.shape.back() % info.block_size != 0)
      corrupt("tensor \"{}\": rows of {} elements are no whole number of {} blocks of {}",
              printable(tensor.name), tensor.shape.back(), info.name, info.block_size);
    const uint64_t blocks = elements / uint64_t(info.block_size);
    if (blocks > bytes_.size() / uint64_t(info.block_bytes))
      corrupt("tensor \"{}\" of {} elements is larger than the file", printable(tensor.name),
              elements);
    const auto offset = cursor.read<uint64_t>("a tensor's offset");
    tensor.keep_alive = file_->keep_alive_;
    file_->tensors_.push_back(std::move(tensor));
    return offset;
  }

  DType read_tensor_type(Cursor& cursor, const std::string& name) const {
    const auto id = cursor.read<uint32_t>("a tensor's type");
    const auto type = std::find_if(kTensorTypes.begin(), kTensorTypes.end(),
                                   [&](const TensorType& t) { return t.id == id; });
    if (type == kTensorTypes.end())
      unsupported("tensor \"{}\" has the unknown type {}", printable(name), id);
    if (!type->dtype)
      unsupported("tensor \"{}\" is of type {}, which is not supported; these are: {}",
                  printable(name), type->name, readable_types());
    return *type->dtype;
  }

  uint64_t alignment() const {
    const int64_t alignment =
        file_->get_int("general.alignment").value_or(int64_t(kDefaultAlignment));
    if (alignment < 1 || uint64_t(alignment) > kMaxAlignment ||
        !std::has_single_bit(uint64_t(alignment)))
      corrupt("general.alignment is {}, must be a power of two up to {}", alignment, kMaxAlignment);
    return uint64_t(alignment);
  }

  void place_tensors(size_t header_bytes, const std::vector<uint64_t>& offsets) {
    if (offsets.empty()) return;
    const uint64_t step = alignment();
    const uint64_t data = (header_bytes + step - 1) / step * step;
    if (data > bytes_.size())
      corrupt("the file ends before its tensor data; is the download complete?");
    const uint64_t size = bytes_.size() - data;
    std::vector<std::pair<uint64_t, size_t>> order;  // offset, tensor
    for (size_t i = 0; i < offsets.size(); ++i) {
      RawTensor& tensor = file_->tensors_[i];
      const size_t bytes = dtype_bytes(tensor.dtype, size_t(tensor.elements()));
      if (offsets[i] % step != 0)
        corrupt("tensor \"{}\" begins at {}, not a multiple of the alignment {}",
                printable(tensor.name), offsets[i], step);
      if (offsets[i] > size || bytes > size - offsets[i])
        corrupt(
            "tensor \"{}\" ({} bytes at {}) lies outside the {} bytes of tensor data; is the "
            "download complete?",
            printable(tensor.name), bytes, offsets[i], size);
      tensor.bytes = bytes_.subspan(size_t(data + offsets[i]), bytes);
      order.emplace_back(offsets[i], i);
    }
    std::sort(order.begin(), order.end());
    for (size_t i = 1; i < order.size(); ++i) {
      const RawTensor& before = file_->tensors_[order[i - 1].second];
      if (order[i - 1].first + before.bytes.size() > order[i].first)
        corrupt("tensors \"{}\" and \"{}\" overlap", printable(before.name),
                printable(file_->tensors_[order[i].second].name));
    }
  }

  std::shared_ptr<GgufFile> file_;
  std::span<const std::byte> bytes_;
  std::unordered_set<std::string> names_;
};

std::shared_ptr<const GgufFile> GgufFile::parse(std::span<const std::byte> bytes,
                                                std::string origin,
                                                std::shared_ptr<const void> keep_alive) {
  return GgufParser(bytes, std::move(origin), std::move(keep_alive)).run();
}

}  // namespace mantou::hub
