#include "tensor/layer_state.h"

#include <gtest/gtest.h>

namespace mantou {
namespace {

TEST(StateSpec, SignatureNamesEveryField) {
  EXPECT_EQ((StateSpec{3, 64, 0, KvType::kF16}.signature()), "kv:full:f16:3x64");
  EXPECT_EQ((StateSpec{1, 256, 512, KvType::kF16}.signature()), "kv:sliding:512:f16:1x256");
  EXPECT_EQ((StateSpec{8, 128, 0, KvType::kBF16}.signature()), "kv:full:bf16:8x128");
  EXPECT_EQ((StateSpec{8, 128, 1, KvType::kF32}.signature()), "kv:sliding:1:f32:8x128");
  EXPECT_EQ((StateSpec{3, 64, 0, KvType::kF16, {8, 64, 0}}.signature()), "kv:full:f16:3x64:q8/64");
  EXPECT_EQ((StateSpec{3, 64, 9, KvType::kF16, {4, 32, 5000}}.signature()),
            "kv:sliding:9:f16:3x64:q4/32@5000");
}

TEST(StateSpec, EqualityComparesEveryField) {
  const StateSpec spec{3, 64, 0, KvType::kF16};
  EXPECT_EQ(spec, spec);
  EXPECT_NE(spec, (StateSpec{2, 64, 0, KvType::kF16}));
  EXPECT_NE(spec, (StateSpec{3, 32, 0, KvType::kF16}));
  EXPECT_NE(spec, (StateSpec{3, 64, 9, KvType::kF16}));
  EXPECT_NE(spec, (StateSpec{3, 64, 0, KvType::kBF16}));
  EXPECT_NE(spec, (StateSpec{3, 64, 0, KvType::kF16, {8, 64, 0}}));
}

}  // namespace
}  // namespace mantou
