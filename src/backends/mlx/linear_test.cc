// A product in parts has the bits of MLX's own product of the whole.
#include "backends/mlx/linear.h"

#include <gtest/gtest.h>

#include <cstring>

namespace mantou::on_mlx {
namespace {

struct Case {
  mx::Dtype type;
  int bits;  // 0: dense
  int rows, cols, tokens;
  bool bias;
};

Weight weight_of(std::shared_ptr<ArrayStorage> storage, const Case& c) {
  return Weight(c.rows, c.cols, std::move(storage));
}

std::shared_ptr<ArrayStorage> matrix_of(const Case& c) {
  const array values = mx::astype(mx::random::normal({c.rows, c.cols}), c.type);
  if (c.bits == 0) return std::make_shared<ArrayStorage>(values);
  const std::vector<array> planes = mx::quantize(values, 64, c.bits);
  auto storage = std::make_shared<ArrayStorage>(planes[0]);
  storage->scales = planes[1];
  storage->biases = planes[2];
  storage->bits = c.bits;
  storage->group = 64;
  storage->mode = "affine";
  return storage;
}

// mlx.nn.Linear and mlx.nn.QuantizedLinear, on one stream.
array whole_product(const array& x, const ArrayStorage& w, const std::optional<array>& bias) {
  if (w.mode.empty()) {
    const array matrix = mx::transpose(w.value);
    return bias ? mx::addmm(*bias, x, matrix) : mx::matmul(x, matrix);
  }
  const array y = mx::quantized_matmul(x, w.value, *w.scales, w.biases, true, w.group, w.bits);
  return bias ? mx::add(y, *bias) : y;
}

bool same_bits(const array& a, const array& b) {
  evaluate({a, b});
  return a.shape() == b.shape() && a.dtype() == b.dtype() &&
         std::memcmp(a.data<char>(), b.data<char>(), a.nbytes()) == 0;
}

TEST(MlxLinear, PartsHaveTheBitsOfTheWhole) {
  mx::random::seed(3);
  const Lanes lanes = make_lanes(3);
  int cases = 0;
  for (const mx::Dtype type : {mx::float32, mx::float16, mx::bfloat16})
    for (const int bits : {0, 3, 4, 8})
      for (const int rows : {96, 131, 333})
        for (const int tokens : {1, 2, 33})
          for (const bool with_bias : {false, true}) {
            const Case c{type, bits, rows, 192, tokens, with_bias};
            const array x = mx::astype(mx::random::normal({1, tokens, c.cols}), type);
            const array shift = mx::astype(mx::random::normal({rows}), type);
            const auto storage = matrix_of(c);
            split(*storage, lanes);
            ASSERT_EQ(storage->parts.size(), 3u);
            Linear layer{weight_of(storage, c), std::nullopt};
            if (with_bias) layer.bias = Weight(1, rows, std::make_shared<ArrayStorage>(shift));
            EXPECT_TRUE(same_bits(
                linear(x, layer),
                whole_product(x, *storage, with_bias ? std::optional(shift) : std::nullopt)))
                << mx::size_of(type) << " bytes, " << bits << " bits, " << rows << " rows, "
                << tokens << " tokens, bias " << with_bias;
            cases++;
          }
  EXPECT_EQ(cases, 3 * 4 * 3 * 3 * 2);
}

TEST(MlxLinear, PartsAreAllRowsInOrderWithoutACopy) {
  const Case c{mx::float32, 4, 131, 64, 1, false};
  const auto storage = matrix_of(c);
  split(*storage, make_lanes(4));
  ASSERT_EQ(storage->parts.size(), 4u);
  int rows = 0;
  for (const ArrayStorage::Part& part : storage->parts) {
    EXPECT_EQ(part.value.data<uint32_t>(), storage->value.data<uint32_t>() + rows * 8);
    EXPECT_EQ(part.scales->shape(0), part.value.shape(0));
    rows += part.value.shape(0);
  }
  EXPECT_EQ(rows, 131);
}

TEST(MlxLinear, FewRowsAndOneThreadAreNotSplit) {
  const auto storage = matrix_of({mx::float32, 0, 63, 64, 1, false});
  split(*storage, make_lanes(4));
  EXPECT_TRUE(storage->parts.empty());
  const auto wide = matrix_of({mx::float32, 0, 512, 64, 1, false});
  split(*wide, make_lanes(1));
  EXPECT_TRUE(wide->parts.empty());
}

}  // namespace
}  // namespace mantou::on_mlx
