// ModelArtifact over an HF or MLX directory: config.json, safetensors, tokenizer files.
#include "base/error.h"
#include "hub/artifact_base.h"
#include "hub/config_reader.h"
#include "hub/directory_config.h"
#include "hub/json_file.h"
#include "hub/mlx_quantization.h"
#include "hub/safetensors.h"

namespace mantou::hub {
namespace {

// gpt-oss as published: the parts of an expert matrix, "…_blocks" (32 codes in 16 bytes),
// "…_scales" and "…_bias", are those of MLX's mxfp4 under other names.
void rename_published_experts(std::string& name, RawTensor& tensor, const std::string& path) {
  struct Part {
    std::string_view published, mlx;
  };
  constexpr Part kParts[] = {
      {"_proj_blocks", ".weight"}, {"_proj_scales", ".scales"}, {"_proj_bias", ".bias"}};
  if (name.find("mlp.experts.") == name.npos) return;
  for (const Part& part : kParts) {
    if (!name.ends_with(part.published)) continue;
    const size_t stem = name.size() - part.published.size();
    name.replace(stem, name.npos, fmt::format("_proj{}", part.mlx));
    if (part.mlx != ".weight") return;
    if (tensor.dtype != DType::kU8 || tensor.shape.size() != 4 || tensor.shape.back() != 16)
      fail_param(ErrorCode::kCorruptData, name,
                 "{}: \"{}\" must be u8 blocks of 16, of four dimensions", path,
                 printable(tensor.name));
    tensor.dtype = DType::kU32;
    tensor.shape[2] *= 4;
    tensor.shape.pop_back();
    return;
  }
}

class DirectoryArtifact : public ArtifactBase {
 public:
  explicit DirectoryArtifact(const std::filesystem::path& path) : ArtifactBase(path) {
    read_configs();
    for (RawTensor& tensor : open_shards(path_)) {
      std::string name = logical_name(tensor.name);
      rename_published_experts(name, tensor, path_.string());
      tensors_.add(std::move(name), std::move(tensor));
    }
    // A checkpoint that does not say: a head of its own decides, as in mlx-lm.
    if (const auto tied = config_.find("tie_word_embeddings");
        tied == config_.end() || tied->is_null())
      config_["tie_word_embeddings"] = !has("lm_head.weight");
  }

  Format format() const override { return Format::kDirectory; }
  bool norm_plus_one_baked() const override { return false; }

  RawWeight weight(std::string_view module) override {
    const std::string base(module);
    const RawTensor& data = tensors_.take(base + ".weight");
    if (!has(base + ".scales")) {
      if (data.dtype == DType::kU32)
        fail_param(ErrorCode::kCorruptData, base,
                   "{}: \"{}\" holds packed codes but there is no \"{}\"", path_.string(),
                   printable(data.name), printable(base + ".scales"));
      return plain_weight(data);
    }
    if (has(base + ".global_scale"))
      fail_param(ErrorCode::kUnsupported, base,
                 "{}: \"{}\": nvfp4 with a scale of the whole tensor is not supported",
                 path_.string(), printable(base + ".global_scale"));
    const RawTensor& scales = tensors_.take(base + ".scales");
    const RawTensor* biases = has(base + ".biases") ? &tensors_.take(base + ".biases") : nullptr;
    return quantization_.weight(module, data, scales, biases);
  }

  RawTensor tensor(std::string_view name) override { return tensors_.take(name); }

 private:
  // A folder that holds a LoRA adapter alone names the model it belongs to.
  void refuse_adapter() const {
    const auto adapter = path_ / "adapter_config.json";
    if (std::filesystem::exists(path_ / "config.json") || !std::filesystem::exists(adapter)) return;
    const nlohmann::json config = read_json_file(adapter);
    const std::string base =
        ConfigReader(config, adapter.string()).get_string("base_model_name_or_path", "");
    fail_param(ErrorCode::kUnsupported, adapter.string(),
               "{}: this is a LoRA adapter, not a model{}; adapters are not supported",
               path_.string(), base.empty() ? "" : fmt::format(" (of {})", printable(base)));
  }

  void read_configs() {
    const auto config_path = path_ / "config.json";
    refuse_adapter();
    if (!std::filesystem::exists(config_path))
      fail_param(ErrorCode::kNotFound, config_path.string(),
                 "{}: the directory has no config.json; is it a model?", path_.string());
    const std::string origin = config_path.string();
    const nlohmann::json raw = read_json_file(config_path);
    config_ = lift_text_config(raw, origin);
    expand_rope_parameters(config_, origin);
    quantization_ = MlxQuantization::parse(config_, origin);
    tokenizer_ = directory_tokenizer(path_);
    const int64_t vocabulary = vocabulary_size(config_, origin);
    add_end_ids(raw, origin, vocabulary, tokenizer_.end_ids);
    add_end_ids(config_, origin, vocabulary, tokenizer_.end_ids);
    const auto generation_path = path_ / "generation_config.json";
    if (!std::filesystem::exists(generation_path)) return;
    generation_config_ = read_json_file(generation_path);
    add_end_ids(generation_config_, generation_path.string(), vocabulary, tokenizer_.end_ids);
  }

  MlxQuantization quantization_;
};

}  // namespace

std::unique_ptr<ModelArtifact> make_directory_artifact(const std::filesystem::path& path) {
  return std::make_unique<DirectoryArtifact>(path);
}

}  // namespace mantou::hub
