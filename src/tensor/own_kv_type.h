// The type of keys and values on a backend that computes in the stored types (MLX), from the
// weights that it packs: that of the embeddings, or f32 where norms are f32 and so their results.
#pragma once

#include <optional>
#include <string_view>

#include "base/raw_tensor.h"
#include "tensor/layer_state.h"
#include "tensor/weight.h"

namespace mantou {

class OwnKvType {
 public:
  // A weight that is packed. The first table is that of the tokens.
  void see(const RawWeight& weight, WeightUse use) {
    if (use == WeightUse::kTable && !table_) table_ = looked_up_as(weight);
    const bool is_norm = weight.data.name.find("norm") != std::string_view::npos;
    if (use == WeightUse::kVector && is_norm && weight.data.dtype == DType::kF32) promoted_ = true;
  }
  // Nothing before a table was seen.
  std::optional<KvType> type() const { return table_ && promoted_ ? KvType::kF32 : table_; }

 private:
  // GGUF blocks are decoded to f32; of codes with scales it is the scales' type, of MX formats
  // bf16.
  static KvType looked_up_as(const RawWeight& table) {
    const DType type = table.scales ? table.scales->dtype : table.data.dtype;
    if (type == DType::kF16) return KvType::kF16;
    const bool bf16 = type == DType::kBF16 || (table.scales && type == DType::kU8);
    return bf16 ? KvType::kBF16 : KvType::kF32;
  }

  std::optional<KvType> table_;
  bool promoted_ = false;
};

}  // namespace mantou
