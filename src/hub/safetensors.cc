#include "hub/safetensors.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <optional>
#include <set>
#include <unordered_set>

#include "base/error.h"
#include "base/file.h"
#include "hub/json_file.h"

namespace mantou::hub {
namespace {

using nlohmann::json;

constexpr uint64_t kMaxHeaderBytes = 100'000'000;  // as the reference implementation
constexpr size_t kMaxDims = 8;
constexpr char kIndexName[] = "model.safetensors.index.json";

// safetensors has the plain types, under the names they have here.
std::optional<DType> dtype_named(std::string_view name) {
  for (DType dtype = DType::kF64; !is_block_type(dtype); dtype = DType(int(dtype) + 1))
    if (dtype_info(dtype).name == name) return dtype;
  return std::nullopt;
}

// One file while it is parsed.
class Parser {
 public:
  Parser(std::span<const std::byte> bytes, const std::string& origin) : origin_(origin) {
    uint64_t header_bytes = 0;
    if (bytes.size() < sizeof(header_bytes)) corrupt("too short for a safetensors file");
    std::memcpy(&header_bytes, bytes.data(), sizeof(header_bytes));
    bytes = bytes.subspan(sizeof(header_bytes));
    if (header_bytes > kMaxHeaderBytes)
      corrupt("a header of {} bytes, more than {}; is it a safetensors file?", header_bytes,
              kMaxHeaderBytes);
    if (header_bytes > bytes.size())
      corrupt("the file ends inside its header; is the download complete?");
    header_ = {reinterpret_cast<const char*>(bytes.data()), size_t(header_bytes)};
    data_ = bytes.subspan(size_t(header_bytes));
  }

  std::vector<RawTensor> run() const {
    if (!header_.starts_with('{'))
      corrupt("the header is no JSON object; is it a safetensors file?");
    const JsonLimits limits{.bytes = kMaxHeaderBytes, .depth = 8, .refuse_duplicate_keys = true};
    const json header = parse_json(header_, origin_, limits);
    std::vector<RawTensor> tensors;
    for (const auto& [name, entry] : header.items())
      if (name != "__metadata__") tensors.push_back(read_tensor(name, entry));
    std::sort(tensors.begin(), tensors.end(), [](const RawTensor& a, const RawTensor& b) {
      return a.bytes.data() < b.bytes.data();
    });
    for (size_t i = 1; i < tensors.size(); ++i)
      if (tensors[i - 1].bytes.data() + tensors[i - 1].bytes.size() > tensors[i].bytes.data())
        corrupt("tensors \"{}\" and \"{}\" overlap", printable(tensors[i - 1].name),
                printable(tensors[i].name));
    return tensors;
  }

 private:
  template <class... Args>
  [[noreturn]] void corrupt(fmt::format_string<Args...> format, Args&&... args) const {
    fail_param(ErrorCode::kCorruptData, origin_, "{}: {}", origin_,
               fmt::format(format, std::forward<Args>(args)...));
  }

  DType read_dtype(const std::string& name, const json& entry) const {
    const auto field = entry.find("dtype");
    if (field == entry.end() || !field->is_string())
      corrupt("tensor \"{}\" has no dtype", printable(name));
    const auto& text = field->get_ref<const std::string&>();
    const std::optional<DType> dtype = dtype_named(text);
    if (!dtype)
      fail_param(ErrorCode::kUnsupported, name,
                 "{}: tensor \"{}\" is of type {}, which is not supported", origin_,
                 printable(name), printable(text));
    return *dtype;
  }

  // An array of unsigned numbers.
  std::vector<uint64_t> read_numbers(const std::string& name, const json& entry,
                                     const char* field) const {
    const auto found = entry.find(field);
    const bool valid = found != entry.end() && found->is_array() && found->size() <= kMaxDims &&
                       std::all_of(found->begin(), found->end(),
                                   [](const json& n) { return n.is_number_unsigned(); });
    if (!valid) corrupt("tensor \"{}\" has no usable {}", printable(name), field);
    return found->get<std::vector<uint64_t>>();
  }

  RawTensor read_tensor(const std::string& name, const json& entry) const {
    if (!entry.is_object()) corrupt("tensor \"{}\" is no JSON object", printable(name));
    RawTensor tensor;
    tensor.name = name;
    tensor.dtype = read_dtype(name, entry);
    uint64_t bytes = uint64_t(dtype_info(tensor.dtype).block_bytes);
    for (const uint64_t extent : read_numbers(name, entry, "shape")) {
      if (extent == 0 || __builtin_mul_overflow(bytes, extent, &bytes) || bytes > data_.size())
        corrupt("tensor \"{}\" has an impossible extent of {}", printable(name), extent);
      tensor.shape.push_back(int64_t(extent));
    }
    const std::vector<uint64_t> range = read_numbers(name, entry, "data_offsets");
    if (range.size() != 2 || range[0] > range[1] || range[1] > data_.size())
      corrupt("tensor \"{}\" lies outside the {} bytes of tensor data; is the download complete?",
              printable(name), data_.size());
    if (range[1] - range[0] != bytes)
      corrupt("tensor \"{}\" has {} bytes where its shape needs {}", printable(name),
              range[1] - range[0], bytes);
    tensor.bytes = data_.subspan(size_t(range[0]), size_t(bytes));
    return tensor;
  }

  const std::string& origin_;
  std::string_view header_;
  std::span<const std::byte> data_;
};

// A file's name inside the directory: an index must not lead elsewhere.
bool plain_file_name(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos;
}

std::vector<RawTensor> open_indexed(const std::filesystem::path& directory) {
  const std::string origin = (directory / kIndexName).string();
  const json index = read_json_file(origin);
  const auto map = index.is_object() ? index.find("weight_map") : index.end();
  if (map == index.end() || !map->is_object())
    fail_param(ErrorCode::kCorruptData, origin, "{}: there is no \"weight_map\"", origin);
  std::map<std::string, std::vector<std::string>> shards;  // file → tensors
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string() || !plain_file_name(file.get_ref<const std::string&>()))
      fail_param(ErrorCode::kCorruptData, origin, "{}: \"{}\" names no file of the directory",
                 origin, printable(tensor));
    shards[file.get<std::string>()].push_back(tensor);
  }
  std::vector<RawTensor> all;
  for (const auto& [file, names] : shards) {
    const auto path = directory / file;
    if (!std::filesystem::exists(path))
      fail_param(ErrorCode::kNotFound, file,
                 "{}: the shard is missing (named by {}); is the download complete?", path.string(),
                 kIndexName);
    std::vector<RawTensor> tensors = open_safetensors(path);
    std::unordered_set<std::string_view> present;
    for (const RawTensor& tensor : tensors) present.insert(tensor.name);
    for (const std::string& name : names)
      if (!present.contains(name))
        fail_param(ErrorCode::kCorruptData, name, "{}: tensor \"{}\" is missing (named by {})",
                   path.string(), printable(name), kIndexName);
    std::move(tensors.begin(), tensors.end(), std::back_inserter(all));
  }
  return all;
}

}  // namespace

std::vector<RawTensor> parse_safetensors(std::span<const std::byte> bytes,
                                         const std::string& origin,
                                         const std::shared_ptr<const void>& keep_alive) {
  std::vector<RawTensor> tensors = Parser(bytes, origin).run();
  for (RawTensor& tensor : tensors) tensor.keep_alive = keep_alive;
  return tensors;
}

std::vector<RawTensor> open_safetensors(const std::filesystem::path& path) {
  auto file = MappedFile::open(path);
  const auto bytes = file->bytes();
  return parse_safetensors(bytes, path.string(), file);
}

std::vector<RawTensor> open_shards(const std::filesystem::path& directory) {
  if (std::filesystem::exists(directory / kIndexName)) return open_indexed(directory);
  std::set<std::filesystem::path> models, others;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    if (entry.path().extension() != ".safetensors") continue;
    const bool model = entry.path().filename().string().starts_with("model");
    (model ? models : others).insert(entry.path());
  }
  const auto& files = models.empty() ? others : models;
  if (files.empty())
    fail_param(ErrorCode::kNotFound, directory.string(), "{}: there are no *.safetensors files",
               directory.string());
  std::vector<RawTensor> all;
  for (const auto& file : files) {
    std::vector<RawTensor> tensors = open_safetensors(file);
    std::move(tensors.begin(), tensors.end(), std::back_inserter(all));
  }
  return all;
}

}  // namespace mantou::hub
