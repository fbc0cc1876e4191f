// The functions inside attention, and what append_kv stores.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "backends/cpu/kernels/attention_fixture.h"
#include "backends/cpu/kernels/attention_kernels.h"

namespace mantou::cpu {
namespace {

using test::available_isas;
using test::kNan;
using test::TestLayer;

TEST(AttentionFunctions, ExponentialMatchesTheLibrary) {
  double worst = 0;
  for (float x = -87.2f; x <= 0; x += 3e-4f) {
    float in[16], expected[16];
    for (int i = 0; i < 16; i++) in[i] = std::min(0.0f, x + float(i) * 1.9e-5f);
    kAttentionScalar.exp16(in, expected);
    for (int i = 0; i < 16; i++) {
      const double exact = std::exp(double(in[i]));
      worst =
          std::max(worst, std::fabs(expected[i] - exact) / std::ldexp(1, std::ilogb(exact) - 23));
    }
    for (mantou::Isa isa : available_isas()) {
      float out[16];
      attention_kernels(isa).exp16(in, out);
      ASSERT_EQ(std::memcmp(out, expected, sizeof out), 0) << isa_name(isa) << " at " << x;
    }
  }
  EXPECT_LT(worst, 1.1);
}

TEST(AttentionFunctions, ExponentialAtItsEdges) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float in[16] = {0, -0.0f, -infinity, -1e30f, -87.31f, -100, kNan};
  for (mantou::Isa isa : available_isas()) {
    float out[16];
    attention_kernels(isa).exp16(in, out);
    EXPECT_EQ(out[0], 1);
    EXPECT_EQ(out[1], 1);
    for (int i = 2; i < 6; i++) EXPECT_EQ(out[i], 0) << in[i];
    EXPECT_TRUE(std::isnan(out[6]));
  }
}

TEST(AttentionFunctions, TanhMatchesTheLibrary) {
  double worst = 0;
  for (float x = -30; x <= 30; x += 1e-3f) {
    float in[16], expected[16];
    for (int i = 0; i < 16; i++) in[i] = x + float(i) * 6e-5f;
    in[15] = -in[14];
    kAttentionScalar.tanh16(in, expected);
    for (int i = 0; i < 16; i++) {
      const double exact = std::tanh(double(in[i]));
      worst = std::max(worst, std::fabs(expected[i] - exact) / std::max(std::fabs(exact), 1e-30));
    }
    for (mantou::Isa isa : available_isas()) {
      float out[16];
      attention_kernels(isa).tanh16(in, out);
      ASSERT_EQ(std::memcmp(out, expected, sizeof out), 0) << isa_name(isa) << " at " << x;
    }
  }
  EXPECT_LT(worst, 2.5e-7);
}

// Rounds to nearest even to so many bits of mantissa, in float64.
double rounded(double x, int mantissa_bits, int smallest_exponent) {
  if (x == 0) return x;
  const int quantum = std::max(std::ilogb(x), smallest_exponent) - mantissa_bits;
  return std::ldexp(std::nearbyint(std::ldexp(x, -quantum)), quantum);
}

TEST(AttentionAppend, RoundsToNearestEven) {
  ThreadPool threads(1);
  std::mt19937 random(3);
  for (const KvType type : {KvType::kF16, KvType::kBF16, KvType::kF32}) {
    for (const mantou::Isa isa : available_isas()) {
      TestLayer layer({1, 512, 0, type}, 1);
      layer.state->add_row();
      const StepLayout layout = layer.layout({64});
      std::vector<float> k(64 * 512), v(64 * 512);
      for (size_t i = 0; i < k.size(); i++) {
        k[i] = std::bit_cast<float>(uint32_t(random()));
        // Close to ties and to the ends of the 16-bit formats' ranges.
        const uint32_t exponent = i % 2 ? random() % 255 : 95 + random() % 50;
        const uint32_t tie = uint32_t(random() & 0x7fe000) | (i % 4 < 2 ? 0x1000 : 0x8000);
        v[i] = std::bit_cast<float>(uint32_t(random() & 0x80000000) | exponent << 23 |
                                    (tie + uint32_t(random() % 3) - 1));
        if (!std::isfinite(k[i])) k[i] = 0;
      }
      layer.state->begin_step(layout);
      append_kv(threads, *layer.state, layout, k, v, isa);
      for (size_t i = 0; i < k.size(); i++) {
        for (const bool value : {false, true}) {
          const double x = value ? v[i] : k[i];
          double expected = x;
          if (type == KvType::kF16) expected = rounded(std::clamp(x, -65504.0, 65504.0), 10, -14);
          if (type == KvType::kBF16) expected = double(float(rounded(x, 7, -126)));
          const float got =
              test::stored(layer.state->layout(), layer.state->view(0), i / 512, 0, i % 512, value);
          ASSERT_EQ(std::bit_cast<uint32_t>(got), std::bit_cast<uint32_t>(float(expected)))
              << x << " as type " << int(type) << " by " << isa_name(isa);
        }
      }
      layer.state->commit_step();
    }
  }
}

TEST(AttentionAppend, NanStaysNan) {
  ThreadPool threads(1);
  for (const KvType type : {KvType::kF16, KvType::kBF16, KvType::kF32}) {
    for (const mantou::Isa isa : available_isas()) {
      TestLayer layer({1, 16, 0, type}, 1);
      layer.state->add_row();
      const StepLayout layout = layer.layout({1});
      std::vector<float> k(16, kNan), v(16, std::bit_cast<float>(0xffffffffu));
      v[3] = std::bit_cast<float>(0x7f800001u);  // its payload lies in the bits that are cut off
      layer.state->begin_step(layout);
      append_kv(threads, *layer.state, layout, k, v, isa);
      for (int d = 0; d < 16; d++) {
        const KvView view = layer.state->view(0);
        EXPECT_TRUE(std::isnan(test::stored(layer.state->layout(), view, 0, 0, d, false)));
        EXPECT_TRUE(std::isnan(test::stored(layer.state->layout(), view, 0, 0, d, true)))
            << d << " as type " << int(type) << " by " << isa_name(isa);
      }
      layer.state->commit_step();
    }
  }
}

}  // namespace
}  // namespace mantou::cpu
