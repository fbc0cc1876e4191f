#include "tensor/own_kv_type.h"

#include <gtest/gtest.h>

namespace mantou {
namespace {

RawWeight weight(const char* name, DType data, std::optional<DType> scales = {}) {
  RawWeight weight;
  weight.data.name = name;
  weight.data.dtype = data;
  if (scales) weight.scales.emplace().dtype = *scales;
  return weight;
}

// What mlx_lm's caches hold: embeddings, normed, projected.
TEST(OwnKvType, IsThatOfTheTablesElementsOrScales) {
  struct Case {
    DType data;
    std::optional<DType> scales;
    KvType want;
  };
  const Case cases[] = {{DType::kF32, {}, KvType::kF32},
                        {DType::kF16, {}, KvType::kF16},
                        {DType::kBF16, {}, KvType::kBF16},
                        {DType::kQ4_K, {}, KvType::kF32},
                        {DType::kU32, DType::kF32, KvType::kF32},
                        {DType::kU32, DType::kF16, KvType::kF16},
                        {DType::kU32, DType::kBF16, KvType::kBF16},
                        {DType::kU32, DType::kU8, KvType::kBF16}};
  for (const Case& c : cases) {
    OwnKvType own;
    EXPECT_FALSE(own.type());
    own.see(weight("model.norm.weight", DType::kBF16), WeightUse::kVector);
    own.see(weight("embed", c.data, c.scales), WeightUse::kTable);
    own.see(weight("per_layer", DType::kF16), WeightUse::kTable);
    own.see(weight("matrix", DType::kF32), WeightUse::kMatrix);
    EXPECT_EQ(own.type(), c.want);
  }
}

TEST(OwnKvType, NormsOfF32PromoteWhatTheyNorm) {
  OwnKvType own;
  own.see(weight("token_embd.weight", DType::kBF16), WeightUse::kTable);
  own.see(weight("blk.0.exp_probs_b.bias", DType::kF32), WeightUse::kVector);
  EXPECT_EQ(own.type(), KvType::kBF16);
  own.see(weight("blk.0.attn_norm.weight", DType::kF32), WeightUse::kVector);
  EXPECT_EQ(own.type(), KvType::kF32);
}

}  // namespace
}  // namespace mantou
