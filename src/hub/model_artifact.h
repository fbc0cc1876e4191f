// A checkpoint, whatever its format: what models and backends see of it.
//
// GGUF files and HF/MLX directories both become one ModelArtifact. Names and configuration are
// those of HF checkpoints without the "model." (or "language_model.model.") prefix: "embed_tokens",
// "layers.0.self_attn.q_proj", "norm", "lm_head"; GGUF names and metadata keys are translated by
// the tables in gguf_names.cc and gguf_architectures.cc. Made on one thread; afterwards read-only
// but for the consumption marks, which the loading thread alone sets.
#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/raw_tensor.h"
#include "base/tokenizer_source.h"

namespace mantou::hub {

enum class Format { kGguf, kDirectory };

// Opens a .gguf file or a directory. Every error names the file (and tensor, or key).
class ModelArtifact {
 public:
  static std::unique_ptr<ModelArtifact> open(const std::filesystem::path& path);
  virtual ~ModelArtifact() = default;

  virtual Format format() const = 0;
  virtual const std::filesystem::path& path() const = 0;
  virtual const std::string& name() const = 0;  // for people and for /v1/models

  // config.json with `text_config` lifted to the top, or its equivalent from GGUF metadata:
  // model_type, hidden_size, num_hidden_layers, num_attention_heads, num_key_value_heads, head_dim,
  // intermediate_size, vocab_size, rms_norm_eps, rope_theta, rope_scaling, sliding_window,
  // max_position_embeddings, tie_word_embeddings, … A GGUF file without output.weight is tied.
  virtual const nlohmann::json& config() const = 0;
  virtual const nlohmann::json& generation_config() const = 0;  // {} when there is none
  virtual const TokenizerSource& tokenizer() const = 0;

  // True when norm weights already hold the "+ 1" of (1 + w) norms (GGUF gemma files).
  virtual bool norm_plus_one_baked() const = 0;

  // `module` + ".weight" with its scales and biases where it is quantized. Marks them consumed.
  // A missing tensor is an error that names it; shapes are as stored, checked against the file
  // only.
  virtual RawWeight weight(std::string_view module) = 0;
  virtual bool has(std::string_view tensor) const = 0;  // full name: "lm_head.weight"
  virtual RawTensor tensor(std::string_view name) = 0;  // full name; marks it consumed

  // The weight audit: tensors nobody took, but for those that are known to be redundant
  // ("rotary_emb.inv_freq", a lm_head.weight beside a tied embedding).
  virtual std::vector<std::string> unused() const = 0;

  struct TensorInfo {
    std::string name, type;
    std::vector<int64_t> shape;
    size_t bytes;
  };
  virtual std::vector<TensorInfo> tensors() const = 0;  // in file order, for `inspect`
};

}  // namespace mantou::hub
