// ModelArtifact over one GGUF file.
#include <cstring>
#include <limits>

#include "base/error.h"
#include "hub/artifact_base.h"
#include "hub/gguf_names.h"
#include "hub/gguf_tokenizer.h"
#include "hub/json_file.h"

namespace mantou::hub {
namespace {

// Stored row of each logical row when the halves of every head are interleaved: row j of the first
// half lies at 2j, row j of the second at 2j + 1 (docs/gguf.md).
std::vector<uint32_t> interleaved_order(int64_t rows, int64_t heads) {
  const int64_t half = rows / heads / 2;
  std::vector<uint32_t> order;
  order.reserve(size_t(rows));
  for (int64_t head = 0; head < heads; ++head)
    for (int64_t second = 0; second < 2; ++second)
      for (int64_t j = 0; j < half; ++j) order.push_back(uint32_t((head * half + j) * 2 + second));
  return order;
}

// A copy of `tensor` with its rows (of a vector: its elements) in logical order.
RawTensor reordered(const RawTensor& tensor, const std::vector<uint32_t>& order) {
  const size_t stride = tensor.bytes.size() / order.size();
  auto buffer = std::make_shared<std::vector<std::byte>>(tensor.bytes.size());
  for (size_t i = 0; i < order.size(); ++i)
    std::memcpy(buffer->data() + i * stride, tensor.bytes.data() + order[i] * stride, stride);
  RawTensor out = tensor;
  out.bytes = *buffer;
  out.keep_alive = std::move(buffer);
  return out;
}

class GgufArtifact : public ArtifactBase {
 public:
  GgufArtifact(const GgufFile& file, const std::filesystem::path& path)
      : ArtifactBase(path), architecture_(gguf_architecture(file)) {
    config_ = gguf_config(file, architecture_);
    generation_config_ = gguf_generation_config(file);
    tokenizer_ = gguf_tokenizer(file);
    for (const RawTensor& tensor : file.tensors())
      tensors_.add(hf_tensor_name(architecture_, tensor.name), tensor);
  }

  Format format() const override { return Format::kGguf; }
  bool norm_plus_one_baked() const override { return architecture_.norm_plus_one; }

  RawWeight weight(std::string_view module) override {
    const std::string name = std::string(module) + ".weight";
    RawWeight weight = plain_weight(tensors_.take(name));
    weight.row_order = row_order(name, weight.data);
    return weight;
  }

  RawTensor tensor(std::string_view name) override {
    const RawTensor& stored = tensors_.take(name);
    const std::vector<uint32_t> order = row_order(name, stored);
    return order.empty() ? stored : reordered(stored, order);
  }

 private:
  // Empty when the rows of `tensor` lie in logical order.
  std::vector<uint32_t> row_order(std::string_view name, const RawTensor& tensor) const {
    if (!architecture_.interleaved_qk) return {};
    const bool query = name.find(".self_attn.q_proj.") != std::string_view::npos;
    if (!query && name.find(".self_attn.k_proj.") == std::string_view::npos) return {};
    const int64_t rows = tensor.shape.front();
    const auto heads =
        config_[query ? "num_attention_heads" : "num_key_value_heads"].get<int64_t>();
    if (rows % (heads * 2) != 0 || rows > int64_t(std::numeric_limits<uint32_t>::max()))
      fail_param(ErrorCode::kCorruptData, tensor.name, "{}: tensor \"{}\" has {} rows for {} heads",
                 path_.string(), printable(tensor.name), rows, heads);
    return interleaved_order(rows, heads);
  }

  const GgufArchitecture& architecture_;
};

}  // namespace

std::unique_ptr<ModelArtifact> make_gguf_artifact(const GgufFile& file,
                                                  const std::filesystem::path& path) {
  return std::make_unique<GgufArtifact>(file, path);
}

}  // namespace mantou::hub
