// The matrix kernels: every instruction set, row count and thread count gives the bits of the
// scalar specification, and that stays within a derived bound of float64 arithmetic on decoded
// weights.
#include "backends/cpu/kernels/matmul.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "backends/cpu/kernels/quantize.h"
#include "backends/cpu/kernels/test_weights.h"
#include "base/error.h"

namespace mantou::cpu {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<const KernelTable*> fast_tables() {
  std::vector<const KernelTable*> tables;
  for (Isa isa : {Isa::kAvx2, Isa::kAvx512})
    if (const KernelTable* table = kernels_for(isa)) tables.push_back(table);
  return tables;
}

// Rows of very different sizes, with zeros and lone peaks.
std::vector<float> random_rows(int rows, int cols, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> x(size_t(rows) * size_t(cols));
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = normal(random) * std::exp2(float(i / size_t(cols) % 5) * 4 - 8);
    if (random() % 64 == 0) x[i] *= 100;
    if (random() % 16 == 0) x[i] = 0;
  }
  return x;
}

// x in both forms for a table.
struct Prepared {
  std::vector<QuantizedBlock> quantized;
  std::vector<float> panels;
  MatmulInput input;

  Prepared(const KernelTable& table, const float* x, int rows, int cols)
      : quantized(quantized_blocks(table, rows, cols), QuantizedBlock{{}, kNan, kNan, 7, {7, 7}}),
        panels(panel_floats(table, rows, cols), kNan) {
    for (int m = 0; m < rows; ++m) {
      quantize_row(table, x + size_t(m) * size_t(cols), cols, m, rows, quantized.data());
      panel_row(table, x + size_t(m) * size_t(cols), cols, m, rows, panels.data());
    }
    input = {rows, cols, quantized.data(), panels.data()};
  }
};

// y [rows, w.rows] in a buffer with a wider stride; what lies between must stay as it was.
std::vector<float> product(const KernelTable& table, ThreadPool& pool, const PackedMatrix& w,
                           const float* x, int rows) {
  const Prepared prepared(table, x, rows, w.cols);
  const size_t ldy = size_t(w.rows) + 3;
  std::vector<float> wide(ldy * size_t(rows), 12345.0f);
  matmul(table, pool, w, prepared.input, wide.data(), ldy);
  std::vector<float> y(size_t(rows) * size_t(w.rows));
  for (int m = 0; m < rows; ++m) {
    std::memcpy(y.data() + size_t(m) * size_t(w.rows), wide.data() + size_t(m) * ldy,
                size_t(w.rows) * sizeof(float));
    for (size_t n = size_t(w.rows); n < ldy; ++n)
      EXPECT_EQ(wide[size_t(m) * ldy + n], 12345.0f) << "written past the row";
  }
  return y;
}

bool same_bits(const float* a, const float* b, size_t n) {
  return std::memcmp(a, b, n * sizeof(float)) == 0;
}

// All fast tables against the scalar one for each row count.
void expect_scalar_bits(const RawWeight& weight, const std::vector<int>& row_counts) {
  ThreadPool pools[] = {ThreadPool(1), ThreadPool(2), ThreadPool(3)};
  Arena arena;
  const PackedMatrix w = pack(weight, arena, pools[0]);
  const int most = *std::max_element(row_counts.begin(), row_counts.end());
  const std::vector<float> x = random_rows(most, w.cols, 99);
  const KernelTable& scalar = *kernels_for(Isa::kScalar);
  const std::vector<float> expected = product(scalar, pools[1], w, x.data(), most);
  for (const KernelTable* table : fast_tables()) {
    for (int rows : row_counts) {
      SCOPED_TRACE(fmt::format("{} {} rows", table->name, rows));
      const std::vector<float> y = product(*table, pools[rows % 3], w, x.data(), rows);
      ASSERT_TRUE(same_bits(y.data(), expected.data(), y.size()));
    }
  }
}

std::vector<int> up_to(int most) {
  std::vector<int> counts;
  for (int m = 1; m <= most; ++m) counts.push_back(m);
  return counts;
}

const std::vector<int> kSelected = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 16, 17, 31, 33, 70};

TEST(Matmul, EveryRowCountGivesTheScalarBits) {
  for (const WeightFormat& format :
       {WeightFormat{"Q8_0", DType::kQ8_0}, WeightFormat{"Q4_K", DType::kQ4_K},
        WeightFormat{"Q6_K", DType::kQ6_K}, WeightFormat{"Q2_K", DType::kQ2_K},
        WeightFormat{"Q3_K", DType::kQ3_K}, WeightFormat{"IQ4_NL", DType::kIQ4_NL},
        WeightFormat{"IQ4_XS", DType::kIQ4_XS}, WeightFormat{"MXFP4", DType::kMXFP4},
        WeightFormat{"F16", DType::kF16}}) {
    SCOPED_TRACE(format.name);
    expect_scalar_bits(random_weight(format, 35, 512, 1), up_to(70));
  }
}

TEST(Matmul, EveryFormatGivesTheScalarBits) {
  for (const WeightFormat& format : integer_formats()) {
    SCOPED_TRACE(format.name);
    const int unit = format.column_unit();
    for (const auto& [rows, units] : {std::pair{1, 1}, {50, 3}, {160, 2}, {16, 5}})
      expect_scalar_bits(random_weight(format, rows, units * unit, unsigned(rows)), kSelected);
  }
  for (const WeightFormat& format : widened_formats()) {
    SCOPED_TRACE(format.name);
    expect_scalar_bits(random_weight(format, 50, 96, 7), kSelected);
  }
  for (const WeightFormat& format : dense_formats()) {
    SCOPED_TRACE(format.name);
    for (const auto& [rows, cols] :
         {std::pair{1, 1}, {7, 255}, {31, 256}, {32, 257}, {77, 700}, {130, 64}})
      expect_scalar_bits(random_weight(format, rows, cols, unsigned(rows)), kSelected);
  }
}

TEST(Matmul, ManyRowsGiveTheScalarBits) {
  // More activations than stay resident, so that they pass in several runs.
  expect_scalar_bits(random_weight({"Q4_0", DType::kQ4_0}, 48, 4096, 1), {301});
  expect_scalar_bits(random_weight({"BF16", DType::kBF16}, 64, 600, 1), {301});
}

TEST(Matmul, ExtremeScalesGiveTheScalarBits) {
  for (const WeightFormat& format : integer_formats()) {
    if (format.bits != 0) continue;
    SCOPED_TRACE(format.name);
    RawWeight weight = random_weight(format, 32, 512, 3);
    std::vector<std::byte> bytes(weight.data.bytes.begin(), weight.data.bytes.end());
    const size_t block = size_t(dtype_info(format.dtype).block_bytes);
    const BlockFields& fields = block_fields(format.dtype);
    const uint16_t extremes[] = {0x7bff, 0xfbff, 0x0001, 0x8001, 0x0000, 0x8000, 0x03ff};
    const uint8_t exponents[] = {0, 1, 2, 127, 200, 251, 252};  // of MXFP4
    for (size_t i = 0; i * block < bytes.size(); ++i) {
      std::byte* at = bytes.data() + i * block;
      if (format.dtype == DType::kMXFP4) at[0] = std::byte(exponents[i % 7]);
      if (fields.scale_at >= 0) std::memcpy(at + fields.scale_at, &extremes[i % 7], 2);
      if (fields.min_at >= 0) std::memcpy(at + fields.min_at, &extremes[i / 7 % 7], 2);
    }
    weight.data = make_tensor("extreme", format.dtype, 32, 512, std::move(bytes));
    expect_scalar_bits(weight, {1, 4, 6, 8, 16});
  }
}

// Blocks of one byte throughout, with activations at both ends of their range: the largest sums,
// which must neither saturate nor lose a bit.
TEST(Matmul, LargestSumsGiveTheScalarBits) {
  ThreadPool pool(1);
  const int cols = 512;
  std::vector<float> x(3 * cols, 1.0f);
  for (int k = 0; k < cols; ++k) {
    x[size_t(cols) + size_t(k)] = -1;
    x[2 * size_t(cols) + size_t(k)] = k % 2 == 0 ? 1 : -1;
  }
  for (const WeightFormat& format : integer_formats()) {
    if (format.bits != 0) continue;
    SCOPED_TRACE(format.name);
    const BlockFields& fields = block_fields(format.dtype);
    const size_t block = size_t(dtype_info(format.dtype).block_bytes);
    for (int byte : {0x00, 0x7f, 0x80, 0xff}) {
      std::vector<std::byte> bytes(dtype_bytes(format.dtype, 16 * cols), std::byte(byte));
      const uint16_t one = f32_to_f16(1);
      for (size_t at = 0; at < bytes.size(); at += block) {
        if (format.dtype == DType::kQ6_K) std::memset(&bytes[at + 192], 0x80, 16);  // scales
        if (format.dtype == DType::kMXFP4) bytes[at] = std::byte{127};
        if (fields.scale_at >= 0) std::memcpy(&bytes[at + size_t(fields.scale_at)], &one, 2);
        if (fields.min_at >= 0) std::memcpy(&bytes[at + size_t(fields.min_at)], &one, 2);
      }
      RawWeight weight;
      weight.data = make_tensor("largest", format.dtype, 16, cols, std::move(bytes));
      weight.rows = 16;
      weight.cols = cols;
      Arena arena;
      const PackedMatrix w = pack(weight, arena, pool);
      const auto expected = product(*kernels_for(Isa::kScalar), pool, w, x.data(), 3);
      std::vector<float> many;  // enough rows for the widest kernels
      for (int i = 0; i < 6; ++i) many.insert(many.end(), x.begin(), x.end());
      for (const KernelTable* table : fast_tables()) {
        const auto few = product(*table, pool, w, x.data(), 3);
        ASSERT_TRUE(same_bits(few.data(), expected.data(), few.size())) << table->name;
        const auto all = product(*table, pool, w, many.data(), 18);
        ASSERT_TRUE(same_bits(all.data(), expected.data(), expected.size())) << table->name;
      }
    }
  }
}

// Error of one output against exact arithmetic on the decoded weights `w`:
//   quantizing x: at most half a step of its scale per column (a little more for rounding the scale
//   and the product), times |w|; f32 sums: no more than 2 roundings a group and some for the
//   scales' products, of terms that are no larger than four times the largest |w| of the group
//   (scale · code and min apart) times Σ|x|.
double error_bound(const std::vector<float>& w, const float* x, bool integer) {
  const size_t cols = w.size();
  if (!integer) {
    double magnitude = 0;
    for (size_t k = 0; k < cols; ++k) magnitude += std::fabs(double(w[k]) * x[k]);
    const size_t additions = std::min<size_t>(cols, 256) + cols / 256 + 2;
    return double(additions) * 0x1p-24 * magnitude + 1e-40;
  }
  double quantizing = 0, magnitude = 0;
  for (size_t k0 = 0; k0 < cols; k0 += 32) {
    const size_t k1 = std::min(cols, k0 + 32);
    double amax = 0, wmax = 0, wsum = 0, xsum = 0;
    for (size_t k = k0; k < k1; ++k) {
      amax = std::max(amax, std::fabs(double(x[k])));
      wmax = std::max(wmax, std::fabs(double(w[k])));
      wsum += std::fabs(double(w[k]));
      xsum += std::fabs(double(x[k]));
    }
    quantizing += wsum * amax / 127 * 0.5001;
    magnitude += 4 * wmax * (xsum + 16 * amax / 127);
  }
  const size_t additions = cols / 32 * 2 + 8;
  return quantizing + double(additions) * 0x1p-24 * magnitude + 1e-30;
}

TEST(Matmul, ScalarStaysWithinTheBoundOfExactArithmetic) {
  ThreadPool pool(1);
  const KernelTable& scalar = *kernels_for(Isa::kScalar);
  std::vector<WeightFormat> formats = integer_formats();
  for (const WeightFormat& format : dense_formats()) formats.push_back(format);
  for (const WeightFormat& format : formats) {
    SCOPED_TRACE(format.name);
    const int rows = 40, cols = 768, m_count = 5;
    const RawWeight weight = random_weight(format, rows, cols, 11);
    Arena arena;
    const PackedMatrix packed = pack(weight, arena, pool);
    const std::vector<float> x = random_rows(m_count, cols, 12);
    const std::vector<float> y = product(scalar, pool, packed, x.data(), m_count);
    std::vector<float> w(cols);
    for (int n = 0; n < rows; ++n) {
      decode_row(weight, n, w);
      for (int m = 0; m < m_count; ++m) {
        const float* row = x.data() + size_t(m) * cols;
        double exact = 0;
        for (size_t k = 0; k < w.size(); ++k) exact += double(w[k]) * row[k];
        ASSERT_NEAR(y[size_t(m * rows + n)], exact, error_bound(w, row, !is_dense(packed.family)))
            << "output " << n << " of row " << m;
      }
    }
  }
}

TEST(Matmul, TypicalErrorOfQuantizedActivationsIsHalfAPercent) {
  // Uniform rounding: a step of amax / 127 has variance step² / 12; of 32 normal values amax is
  // about 2.1 deviations, which gives 4.8e-3 of each product, and as much of the sum.
  ThreadPool pool(1);
  Arena arena;
  const RawWeight weight = random_weight({"Q8_0", DType::kQ8_0}, 256, 2048, 21);
  const PackedMatrix packed = pack(weight, arena, pool);
  std::mt19937 random(22);
  std::normal_distribution<float> normal;
  std::vector<float> x(2048), w(2048);
  for (float& value : x) value = normal(random);
  const std::vector<float> y = product(*kernels_for(Isa::kScalar), pool, packed, x.data(), 1);
  double error = 0, power = 0;
  for (int n = 2; n < 256; ++n) {
    decode_row(weight, n, w);
    double exact = 0;
    for (size_t k = 0; k < w.size(); ++k) exact += double(w[k]) * x[k];
    error += (y[size_t(n)] - exact) * (y[size_t(n)] - exact);
    power += exact * exact;
  }
  EXPECT_LT(std::sqrt(error / power), 7e-3);
  EXPECT_GT(std::sqrt(error / power), 3e-3);
}

TEST(Matmul, ABadValueSpoilsItsOwnRowAlone) {
  std::vector<const KernelTable*> tables = fast_tables();
  tables.push_back(kernels_for(Isa::kScalar));
  ThreadPool pool(2);
  std::vector<WeightFormat> formats = integer_formats();
  for (const WeightFormat& format : dense_formats()) formats.push_back(format);
  for (const WeightFormat& format : formats) {
    Arena arena;
    const PackedMatrix w = pack(random_weight(format, 40, 512, 31), arena, pool);
    for (const KernelTable* table : tables) {
      for (float bad : {kNan, kInfinity, -kInfinity}) {
        for (int rows : {1, 3, 7, 18}) {
          SCOPED_TRACE(fmt::format("{} {} {} {} rows", format.name, table->name, bad, rows));
          std::vector<float> x = random_rows(rows, 512, 32);
          const std::vector<float> clean = product(*table, pool, w, x.data(), rows);
          const int spoilt = rows / 2;
          x[size_t(spoilt) * 512 + 300] = bad;
          const std::vector<float> y = product(*table, pool, w, x.data(), rows);
          for (int m = 0; m < rows; ++m) {
            const float* row = y.data() + size_t(m) * 40;
            if (m != spoilt) {
              ASSERT_TRUE(same_bits(row, clean.data() + size_t(m) * 40, 40));
              continue;
            }
            for (int n = 0; n < 40; ++n)
              ASSERT_TRUE(is_dense(w.family) ? !std::isfinite(row[n]) : std::isnan(row[n]));
          }
        }
      }
    }
  }
}

TEST(Matmul, SeveralMatricesInOneRegion) {
  ThreadPool pool(3);
  Arena arena;
  const PackedMatrix a = pack(random_weight({"a", DType::kQ4_K}, 100, 512, 1), arena, pool);
  const PackedMatrix b = pack(random_weight({"b", DType::kQ6_K}, 36, 512, 2), arena, pool);
  const PackedMatrix c = pack(random_weight({"c", DType::kF16}, 70, 512, 3), arena, pool);
  const std::vector<float> x = random_rows(9, 512, 4);
  for (const KernelTable* table : fast_tables()) {
    const Prepared prepared(*table, x.data(), 9, 512);
    std::vector<float> ya(9 * 100), yb(9 * 36), yc(9 * 70);
    const MatmulJob jobs[] = {{&a, ya.data(), 100}, {&b, yb.data(), 36}, {&c, yc.data(), 70}};
    matmul(*table, pool, jobs, prepared.input);
    EXPECT_EQ(ya, product(*table, pool, a, x.data(), 9));
    EXPECT_EQ(yb, product(*table, pool, b, x.data(), 9));
    EXPECT_EQ(yc, product(*table, pool, c, x.data(), 9));
  }
}

TEST(Matmul, RefusesAMismatch) {
  ThreadPool pool(1);
  Arena arena;
  const PackedMatrix w = pack(random_weight({"w", DType::kQ4_0}, 16, 64, 1), arena, pool);
  const KernelTable& table = *kernels_for(Isa::kScalar);
  const std::vector<float> x(96);
  const Prepared prepared(table, x.data(), 1, 96);
  float y[16];
  EXPECT_THROW(matmul(table, pool, w, prepared.input, y, 16), Error);
  EXPECT_THROW(matmul(table, pool, w, MatmulInput{1, 64, nullptr, x.data()}, y, 16), Error);
}

}  // namespace
}  // namespace mantou::cpu
