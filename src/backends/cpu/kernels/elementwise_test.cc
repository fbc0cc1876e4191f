// The elementwise kernels against float64 and, bit for bit, against their scalar form.
#include "backends/cpu/kernels/elementwise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <vector>

namespace mantou::cpu {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<const KernelTable*> tables() {
  std::vector<const KernelTable*> tables;
  for (Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512})
    if (const KernelTable* table = kernels_for(isa)) tables.push_back(table);
  return tables;
}

std::vector<float> normal_values(size_t n, float deviation, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0, deviation);
  std::vector<float> values(n);
  for (float& value : values) value = normal(random);
  return values;
}

// Every 1009th float from −inf to inf, and the special ones.
std::vector<float> all_magnitudes() {
  std::vector<float> values = {0.0f,      -0.0f,    kInfinity,  -kInfinity,  0x1p-149f,
                               88.72284f, 88.7229f, -87.33655f, -103.97208f, -103.9721f,
                               0.625f,    -0.625f,  1e30f,      -1e30f};
  for (uint64_t bits = 0; bits < 0x7f800000u; bits += 1009) {
    for (uint32_t sign : {0u, 0x80000000u}) {
      const uint32_t word = uint32_t(bits) | sign;
      float value;
      std::memcpy(&value, &word, 4);
      values.push_back(value);
    }
  }
  return values;
}

// Distance of `value` from `exact` in units of the last place of the f32 next to it.
double ulps(float value, double exact) {
  const float nearest = float(exact);
  if (value == nearest) return 0;
  if (!std::isfinite(value) || !std::isfinite(nearest)) return 1e9;
  const double unit =
      std::max(std::ldexp(1.0, std::ilogb(std::fabs(exact) + 1e-300) - 23), 0x1p-149);
  return std::fabs(double(value) - exact) / unit;
}

// Checks one map over all magnitudes: ulps on the scalar table, bits on the others.
void check_map(void (*KernelTable::*kernel)(const float*, int64_t, float*), double (*exact)(double),
               double limit) {
  const std::vector<float> x = all_magnitudes();
  std::vector<float> scalar(x.size()), y(x.size());
  (kernels_for(Isa::kScalar)->*kernel)(x.data(), int64_t(x.size()), scalar.data());
  double worst = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    const double distance = ulps(scalar[i], exact(x[i]));
    if (distance > worst) worst = distance;
    ASSERT_LE(distance, limit) << "x = " << x[i] << " gives " << scalar[i];
  }
  testing::Test::RecordProperty("worst_ulps", std::to_string(worst));
  for (const KernelTable* table : tables()) {
    (table->*kernel)(x.data(), int64_t(x.size()), y.data());
    EXPECT_EQ(std::memcmp(y.data(), scalar.data(), y.size() * sizeof(float)), 0) << table->name;
    float nan = kNan;
    (table->*kernel)(&nan, 1, &nan);
    EXPECT_TRUE(std::isnan(nan)) << table->name;
  }
}

TEST(Elementwise, ExpWithinTwoUlps) {
  check_map(&KernelTable::exp, [](double x) { return std::exp(x); }, 2);
}

TEST(Elementwise, TanhWithinTwoUlps) {
  check_map(&KernelTable::tanh, [](double x) { return std::tanh(x); }, 2);
}

const std::vector<int> kLengths = {1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 100, 576, 2048};

using Binary = void (*KernelTable::*)(const float*, const float*, int64_t, float*);

// A map of two rows: within `relative` of float64 (or subnormal), equal bits on all tables, in
// place too.
void check_binary(Binary kernel, const std::function<double(double, double)>& exact,
                  double relative) {
  for (int n : kLengths) {
    const std::vector<float> a = normal_values(size_t(n), 5, unsigned(n));
    const std::vector<float> b = normal_values(size_t(n), 1, unsigned(n) + 1);
    std::vector<float> scalar(a.size());
    (kernels_for(Isa::kScalar)->*kernel)(a.data(), b.data(), n, scalar.data());
    for (size_t i = 0; i < a.size(); ++i) {
      const double expected = exact(a[i], b[i]);
      ASSERT_NEAR(scalar[i], expected, relative * std::fabs(expected) + 1e-37)
          << a[i] << " " << b[i];
    }
    for (const KernelTable* table : tables()) {
      std::vector<float> y = a;
      y.push_back(77);
      (table->*kernel)(y.data(), b.data(), n, y.data());
      ASSERT_EQ(std::memcmp(y.data(), scalar.data(), size_t(n) * sizeof(float)), 0)
          << table->name << " " << n;
      ASSERT_EQ(y.back(), 77);
    }
  }
}

double gelu_tanh(double g) {
  const double z = std::sqrt(2 / M_PI) * (g + 0.044715 * g * g * g);
  return g / (1 + std::exp(-2 * z));
}

TEST(Elementwise, BinaryMaps) {
  check_binary(&KernelTable::add, [](double a, double b) { return a + b; }, 0x1p-24);
  check_binary(&KernelTable::multiply, [](double a, double b) { return a * b; }, 0x1p-24);
  // exp, sum, quotient and product: 5 roundings; the argument of exp is exact.
  check_binary(
      &KernelTable::silu_mul, [](double g, double u) { return g / (1 + std::exp(-g)) * u; },
      5 * 0x1p-23);
  // The argument of exp, up to |z| = 80 where the result is not tiny, is off by 4 roundings: e^z is
  // by 80 · 4 of them.
  check_binary(
      &KernelTable::gelu_tanh_mul, [](double g, double u) { return gelu_tanh(g) * u; },
      1000 * 0x1p-24);
}

TEST(Elementwise, GeluNearZeroIsAccurate) {
  for (int i = -400; i <= 400; ++i) {
    const float g = float(i) / 100, one = 1;
    float y;
    kernels_for(Isa::kScalar)->gelu_tanh_mul(&g, &one, 1, &y);
    EXPECT_NEAR(y, gelu_tanh(g), std::fabs(gelu_tanh(g)) * 60 * 0x1p-24);
    gelu_erf_mul(&g, &one, 1, &y);
    EXPECT_NEAR(y, g / 2.0 * std::erfc(-g / std::sqrt(2.0)), 4e-7);
  }
}

TEST(Elementwise, GatesAtTheEnds) {
  const float gate[] = {-200, 200, -1e20f, 1e20f}, up[] = {3, 3, 3, 3};
  for (const KernelTable* table : tables()) {
    for (auto kernel : {table->silu_mul, table->gelu_tanh_mul}) {
      float y[4];
      kernel(gate, up, 4, y);
      EXPECT_NEAR(y[0], 0, 1e-30);
      EXPECT_EQ(y[1], 600);
      EXPECT_NEAR(y[2], 0, 1e-30);
      EXPECT_EQ(y[3], 3e20f);
    }
  }
}

TEST(Elementwise, ScaleAndSoftcap) {
  for (int n : kLengths) {
    const std::vector<float> x = normal_values(size_t(n), 40, unsigned(n));
    std::vector<float> scalar(x.size()), y(x.size());
    for (const KernelTable* table : tables()) {
      scale(*table, x.data(), 0.3f, n, y.data());
      for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(y[i], x[i] * 0.3f);
    }
    softcap(*kernels_for(Isa::kScalar), x.data(), 30, n, scalar.data());
    for (size_t i = 0; i < x.size(); ++i)
      ASSERT_NEAR(scalar[i], 30 * std::tanh(double(x[i]) / 30), 30 * 4 * 0x1p-24);
    for (const KernelTable* table : tables()) {
      softcap(*table, x.data(), 30, n, y.data());
      ASSERT_EQ(y, scalar) << table->name;
    }
  }
}

TEST(Elementwise, RmsNorm) {
  for (int n : kLengths) {
    const std::vector<float> x = normal_values(size_t(n), 3, unsigned(n));
    const std::vector<float> w = normal_values(size_t(n), 1, unsigned(n) + 1);
    double squares = 0;
    for (float value : x) squares += double(value) * value;
    const double factor = 1 / std::sqrt(squares / n + 1e-6);
    for (const float* weight : {w.data(), static_cast<const float*>(nullptr)}) {
      for (bool plus_one : {false, true}) {
        std::vector<float> scalar(x.size());
        rms_norm(*kernels_for(Isa::kScalar), x.data(), weight, 1e-6f, plus_one, n, scalar.data());
        for (size_t i = 0; i < x.size(); ++i) {
          const double weighted = weight == nullptr ? 1 : double(w[i]) + (plus_one ? 1 : 0);
          // n / 32 + 5 roundings in the sum (halved by the root), then about 5.
          ASSERT_NEAR(
              scalar[i], x[i] * factor * weighted,
              std::fabs(x[i] * factor) * (std::fabs(weighted) + 1e-7) * (n / 64.0 + 8) * 0x1p-24 +
                  std::fabs(x[i] * factor) * 0x1p-24);
        }
        for (const KernelTable* table : tables()) {
          std::vector<float> y = x;  // in place
          rms_norm(*table, y.data(), weight, 1e-6f, plus_one, n, y.data());
          ASSERT_EQ(std::memcmp(y.data(), scalar.data(), y.size() * sizeof(float)), 0)
              << table->name << " " << n;
        }
      }
    }
  }
}

TEST(Elementwise, LayerNorm) {
  for (int n : kLengths) {
    std::vector<float> x = normal_values(size_t(n), 3, unsigned(n));
    for (float& value : x) value += 10;  // what subtracting the mean is for
    const std::vector<float> w = normal_values(size_t(n), 1, unsigned(n) + 1);
    const std::vector<float> b = normal_values(size_t(n), 1, unsigned(n) + 2);
    double mean = 0, squares = 0;
    for (float value : x) mean += double(value) / n;
    for (float value : x) squares += (value - mean) * (value - mean);
    const double factor = 1 / std::sqrt(squares / n + 1e-5);
    for (bool weighted : {false, true}) {
      const float* const weight = weighted ? w.data() : nullptr;
      const float* const bias = weighted ? b.data() : nullptr;
      std::vector<float> scalar(x.size());
      layer_norm(*kernels_for(Isa::kScalar), x.data(), weight, bias, 1e-5f, n, scalar.data());
      for (size_t i = 0; i < x.size(); ++i) {
        const double scale = weighted ? w[i] : 1;
        const double expected = (x[i] - mean) * factor * scale + (weighted ? b[i] : 0);
        // The mean is off by n / 32 + 5 roundings of about 13 at most, the rest as in RmsNorm.
        const double tolerance =
            (13 * factor + std::fabs((x[i] - mean) * factor)) * std::fabs(scale) * (n / 32.0 + 10) +
            std::fabs(expected);
        ASSERT_NEAR(scalar[i], expected, tolerance * 0x1p-24) << n;
      }
      for (const KernelTable* table : tables()) {
        std::vector<float> y = x;  // in place
        layer_norm(*table, y.data(), weight, bias, 1e-5f, n, y.data());
        ASSERT_EQ(std::memcmp(y.data(), scalar.data(), y.size() * sizeof(float)), 0)
            << table->name << " " << n;
      }
    }
  }
}

// gpt-oss's published activation: the gate is clipped from above, the other side on both.
TEST(Elementwise, SwigluOai) {
  const std::vector<float> gate = normal_values(100, 5, 1), up = normal_values(100, 8, 2);
  std::vector<float> scalar(gate.size());
  swiglu_oai(*kernels_for(Isa::kScalar), gate.data(), up.data(), 100, scalar.data());
  for (size_t i = 0; i < gate.size(); ++i) {
    const double g = std::fmin(gate[i], 7), u = std::fmin(std::fmax(up[i], -7), 7);
    const double expected = (u + 1) * g / (1 + std::exp(-1.702 * g));
    ASSERT_NEAR(scalar[i], expected, std::fabs(expected) * 24 * 0x1p-24 + 1e-30) << i;
  }
  for (const KernelTable* table : tables()) {
    std::vector<float> y(gate.size());
    swiglu_oai(*table, gate.data(), up.data(), 100, y.data());
    ASSERT_EQ(std::memcmp(y.data(), scalar.data(), y.size() * sizeof(float)), 0) << table->name;
  }
}

TEST(Elementwise, Rope) {
  for (const auto& [head_dim, rotated] : {std::pair{64, 64}, {128, 64}, {20, 14}, {256, 256}}) {
    const int heads = 3, half = rotated / 2;
    const std::vector<float> x = normal_values(size_t(heads) * size_t(head_dim), 2, 1);
    std::vector<float> cosines(size_t(half), 0.0f), sines(size_t(half), 0.0f);
    for (int i = 0; i < half; ++i) {
      cosines[size_t(i)] = float(std::cos(i * 0.7));
      sines[size_t(i)] = float(std::sin(i * 0.7));
    }
    std::vector<float> first;
    for (const KernelTable* table : tables()) {
      std::vector<float> y = x;
      rope(*table, y.data(), cosines.data(), sines.data(), heads, head_dim, rotated);
      if (first.empty()) first = y;
      EXPECT_EQ(y, first) << table->name;
    }
    for (int h = 0; h < heads; ++h) {
      const float *in = x.data() + h * head_dim, *out = first.data() + h * head_dim;
      for (int i = 0; i < half; ++i) {
        const double c = cosines[size_t(i)], s = sines[size_t(i)];
        EXPECT_NEAR(out[i], in[i] * c - in[i + half] * s, 1e-6);
        EXPECT_NEAR(out[i + half], in[i + half] * c + in[i] * s, 1e-6);
      }
      for (int i = rotated; i < head_dim; ++i) EXPECT_EQ(out[i], in[i]);
    }
  }
}

TEST(Elementwise, InterleavedRopeTurnsNeighbours) {
  const int heads = 2, head_dim = 20, rotated = 14;
  const std::vector<float> x = normal_values(size_t(heads) * head_dim, 2, 1);
  std::vector<float> cosines, sines, y = x;
  for (int i = 0; i < rotated / 2; ++i) {
    cosines.push_back(float(std::cos(i * 0.7)));
    sines.push_back(float(std::sin(i * 0.7)));
  }
  rope_interleaved(y.data(), cosines.data(), sines.data(), heads, head_dim, rotated);
  for (int at = 0; at < heads * head_dim; at += head_dim) {
    const float *in = x.data() + at, *out = y.data() + at;
    for (int i = 0; i < rotated / 2; ++i) {
      const double c = cosines[size_t(i)], s = sines[size_t(i)];
      EXPECT_NEAR(out[2 * i], in[2 * i] * c - in[2 * i + 1] * s, 1e-6);
      EXPECT_NEAR(out[2 * i + 1], in[2 * i + 1] * c + in[2 * i] * s, 1e-6);
    }
    for (int i = rotated; i < head_dim; ++i) EXPECT_EQ(out[i], in[i]);
  }
}

TEST(Elementwise, ArgMaxTakesTheFirstOfTheLargest) {
  std::mt19937 random(5);
  for (const KernelTable* table : tables()) {
    EXPECT_EQ(arg_max(*table, nullptr, 0).index, -1);
    for (int trial = 0; trial < 2000; ++trial) {
      std::vector<float> x(1 + random() % 70);
      const bool negative = random() % 2 == 0;
      for (float& value : x) value = float(random() % 8) - (negative ? 100.0f : 0.0f);
      const auto expected = std::max_element(x.begin(), x.end()) - x.begin();
      const ArgMax result = arg_max(*table, x.data(), int64_t(x.size()));
      ASSERT_EQ(result.index, expected) << table->name;
      ASSERT_EQ(result.value, x[size_t(expected)]);
      ASSERT_FALSE(result.has_nan);
      x[random() % x.size()] = kNan;
      ASSERT_TRUE(arg_max(*table, x.data(), int64_t(x.size())).has_nan);
    }
    const float endless[] = {-kInfinity, -kInfinity, -kInfinity};
    EXPECT_EQ(arg_max(*table, endless, 3).index, 0);
    const float zeros[] = {-1, -0.0f, 0.0f};
    EXPECT_EQ(arg_max(*table, zeros, 3).index, 1);
  }
}

}  // namespace
}  // namespace mantou::cpu
