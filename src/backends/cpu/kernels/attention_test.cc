// Attention against float64 over the cache's own cells, and bit for bit against itself in every way
// of computing it that must not matter. Blocks start full of NaN in all tests.

#include "backends/cpu/kernels/attention.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <random>

#include "backends/cpu/kernels/attention_kernels.h"
#include "backends/cpu/kv_test_util.h"
#include "base/error.h"

namespace mantou::cpu {
namespace {

using test::available_isas;
using test::kKeys;
using test::kQueries;
using test::kValues;
using test::noise;
using test::same_bits;
using test::stream;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// A layer's state with rows of noise, and the step that queries them.
struct Bench {
  StateSpec spec;
  AttentionParams params;
  std::shared_ptr<KvBlockPool> pool = KvBlockPool::create();
  std::unique_ptr<KvRows> state;
  std::vector<float> sinks;
  mantou::Isa append_isa = mantou::detected_isa();
  float query_size = 1;

  Bench(const StateSpec& state_spec, int heads) : spec(state_spec) {
    params.heads = heads;
    params.scale = 1 / std::sqrt(float(spec.head_dim));
    params.window = spec.window;
    state = std::make_unique<KvRows>(spec, pool);
    test::poison(*pool, state->layout().block_bytes, 40);
  }

  void add_sinks() {
    for (int i = 0; i < params.heads; i++) sinks.push_back(noise(99, 0, i));
    params.sinks = sinks;
  }

  // Rows of a step: `counts[i]` more tokens for row i, 0 for none.
  StepLayout layout(const std::vector<int>& counts) const {
    StepLayout layout;
    for (int row = 0; row < int(counts.size()); row++) {
      if (counts[row] == 0) continue;
      layout.rows.push_back({row, layout.total_tokens, counts[row], state->tokens(row)});
      layout.total_tokens += counts[row];
    }
    return layout;
  }

  std::vector<float> values(const StepLayout& layout, test::Stream what, int width) const {
    std::vector<float> all;
    for (const StepRow& row : layout.rows) {
      test::append_noise(stream(row.state_row, what), row.position, row.count, width, all);
    }
    if (what == kQueries) {
      for (float& x : all) x *= query_size;
    }
    return all;
  }

  void append(ThreadPool& threads, const StepLayout& layout) {
    const int width = spec.kv_heads * spec.head_dim;
    append_kv(threads, *state, layout, values(layout, kKeys, width), values(layout, kValues, width),
              append_isa);
  }

  std::vector<float> query(ThreadPool& threads, AttentionWorkspace& workspace,
                           const StepLayout& layout, mantou::Isa isa) const {
    const std::vector<float> q = values(layout, kQueries, params.heads * spec.head_dim);
    std::vector<float> out(q.size(), kNan);
    attend(threads, workspace, *state, params, layout, q, out, isa);
    return out;
  }

  // Appends, attends, commits.
  std::vector<float> step(ThreadPool& threads, AttentionWorkspace& workspace,
                          const std::vector<int>& counts, mantou::Isa isa) {
    const StepLayout plan = layout(counts);
    state->begin_step(plan);
    append(threads, plan);
    std::vector<float> out = query(threads, workspace, plan, isa);
    state->commit_step();
    return out;
  }

  // Largest difference from float64 over `samples` of the step's queries × heads.
  double error(const StepLayout& layout, const std::vector<float>& out, int samples) const {
    const int head_dim = spec.head_dim;
    const std::vector<float> q = values(layout, kQueries, params.heads * head_dim);
    std::mt19937 random(7);
    double worst = 0;
    for (int i = 0; i < samples; i++) {
      const StepRow& row = layout.rows[random() % layout.rows.size()];
      const int token = random() % row.count, head = random() % params.heads;
      const size_t at = (size_t(row.first + token) * params.heads + head) * head_dim;
      const std::vector<double> expected = test::reference_attention(
          state->layout(), state->view(row.state_row), params, row.position + token, head, &q[at]);
      for (int d = 0; d < head_dim; d++) {
        const double difference = std::fabs(expected[d] - out[at + d]);
        if (!(difference <= worst)) worst = difference;  // NaN stays
      }
    }
    return worst;
  }
};

struct Threads {
  ThreadPool one{1}, two{2}, three{3};
  AttentionWorkspace workspace;
  std::vector<ThreadPool*> all = {&one, &two, &three};
};

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
      Bench bench({1, 512, 0, type}, 1);
      bench.state->add_row();
      const StepLayout layout = bench.layout({64});
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
      bench.state->begin_step(layout);
      append_kv(threads, *bench.state, layout, k, v, isa);
      for (size_t i = 0; i < k.size(); i++) {
        for (const bool value : {false, true}) {
          const double x = value ? v[i] : k[i];
          double expected = x;
          if (type == KvType::kF16) expected = rounded(std::clamp(x, -65504.0, 65504.0), 10, -14);
          if (type == KvType::kBF16) expected = double(float(rounded(x, 7, -126)));
          const float got =
              test::stored(bench.state->layout(), bench.state->view(0), i / 512, 0, i % 512, value);
          ASSERT_EQ(std::bit_cast<uint32_t>(got), std::bit_cast<uint32_t>(float(expected)))
              << x << " as type " << int(type) << " by " << isa_name(isa);
        }
      }
      bench.state->commit_step();
    }
  }
}

TEST(AttentionAppend, NanStaysNan) {
  ThreadPool threads(1);
  for (const KvType type : {KvType::kF16, KvType::kBF16, KvType::kF32}) {
    for (const mantou::Isa isa : available_isas()) {
      Bench bench({1, 16, 0, type}, 1);
      bench.state->add_row();
      const StepLayout layout = bench.layout({1});
      std::vector<float> k(16, kNan), v(16, std::bit_cast<float>(0xffffffffu));
      v[3] = std::bit_cast<float>(0x7f800001u);  // its payload lies in the bits that are cut off
      bench.state->begin_step(layout);
      append_kv(threads, *bench.state, layout, k, v, isa);
      for (int d = 0; d < 16; d++) {
        const KvView view = bench.state->view(0);
        EXPECT_TRUE(std::isnan(test::stored(bench.state->layout(), view, 0, 0, d, false)));
        EXPECT_TRUE(std::isnan(test::stored(bench.state->layout(), view, 0, 0, d, true)))
            << d << " as type " << int(type) << " by " << isa_name(isa);
      }
      bench.state->commit_step();
    }
  }
}

class AttentionShapes : public testing::TestWithParam<std::tuple<KvType, int>> {};

// Decode rows, verification and prefill chunks, windows, caps and sinks, in turn over the groups.
TEST_P(AttentionShapes, MatchesFloat64AndItselfOnAllSetsAndThreads) {
  const auto [type, head_dim] = GetParam();
  Threads threads;
  int variant = head_dim;
  for (int group : {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16}) {
    variant++;
    if (head_dim > 128 && group % 3 != 0 && std::getenv("MANTOU_TEST_FULL") == nullptr) continue;
    const int kv_heads = head_dim > 128 ? 1 : 1 + variant % 3;
    const int chunk = std::vector<int>{1, 5, 33, 97}[variant % 4];
    const int before = std::vector<int>{600, 130, 64, 0, 63}[variant % 5];
    Bench bench({kv_heads, head_dim,
                 variant % 3 == 0   ? 70
                 : variant % 3 == 1 ? 5
                                    : 0,
                 type},
                kv_heads * group);
    bench.query_size = 2;
    if (variant % 4 == 1) bench.params.softcap = 3;
    if (variant % 5 < 2) bench.add_sinks();
    bench.state->add_row();
    if (before > 0) {
      const StepLayout layout = bench.layout({before});
      bench.state->begin_step(layout);
      bench.append(threads.three, layout);
      bench.state->commit_step();
    }
    const StepLayout layout = bench.layout({chunk});
    bench.state->begin_step(layout);
    bench.append(threads.three, layout);
    std::vector<float> first;
    for (const mantou::Isa isa : available_isas()) {
      for (ThreadPool* pool : threads.all) {
        if (isa == mantou::Isa::kScalar && pool != threads.all[variant % 3]) continue;  // slow
        const auto out = bench.query(*pool, threads.workspace, layout, isa);
        if (first.empty()) first = out;
        ASSERT_TRUE(same_bits(out, first))
            << isa_name(isa) << ", " << pool->threads() << " threads, group " << group;
      }
    }
    EXPECT_LT(bench.error(layout, first, 12), 2e-5) << "group " << group;
    bench.state->commit_step();
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, AttentionShapes,
    testing::Combine(testing::Values(KvType::kF16, KvType::kBF16, KvType::kF32),
                     testing::Values(1, 5, 16, 40, 64, 80, 96, 128, 200, 256, 512)));

TEST(Attention, GroupsLargerThanATile) {
  Threads threads;
  for (int heads : {71, 48, 49, 128}) {
    Bench bench({1, 24, 0, KvType::kF32}, heads);
    bench.add_sinks();
    bench.state->add_row();
    const StepLayout layout = bench.layout({70});
    bench.state->begin_step(layout);
    bench.append(threads.one, layout);
    const auto out = bench.query(threads.three, threads.workspace, layout, mantou::detected_isa());
    EXPECT_LT(bench.error(layout, out, 100), 1e-5) << heads;
    bench.state->commit_step();
  }
}

TEST(Attention, ExtremeLogits) {
  Threads threads;
  for (float size : {0.0f, 1e3f, 1e6f, 1e36f}) {
    Bench bench({2, 64, 0, KvType::kF32}, 6);
    bench.query_size = size;
    bench.state->add_row();
    const StepLayout layout = bench.layout({600});
    bench.state->begin_step(layout);
    bench.append(threads.one, layout);
    std::vector<float> first;
    for (const mantou::Isa isa : available_isas()) {
      const auto out = bench.query(threads.two, threads.workspace, layout, isa);
      if (first.empty()) first = out;
      EXPECT_TRUE(same_bits(out, first)) << isa_name(isa);
    }
    // Beyond 1e30 all logits are equal to f32's eyes; there the weights of ties may differ.
    if (size < 1e30f) {
      EXPECT_LT(bench.error(layout, first, 50), 1e-4) << size;
    }
    for (float x : first) ASSERT_TRUE(std::isfinite(x)) << size;
    bench.state->commit_step();
  }
}

// The outputs of a row's tokens 0 … n − 1, computed in chunks of so many.
std::vector<float> in_chunks(const StateSpec& spec, const AttentionParams& params, int n, int chunk,
                             ThreadPool& pool, AttentionWorkspace& workspace, mantou::Isa isa) {
  Bench bench(spec, params.heads);
  bench.params = params;
  bench.state->add_row();
  std::vector<float> all;
  for (int done = 0; done < n; done += chunk) {
    const auto out = bench.step(pool, workspace, {std::min(chunk, n - done)}, isa);
    all.insert(all.end(), out.begin(), out.end());
  }
  return all;
}

TEST(Attention, ChunksDoNotMatter) {
  Threads threads;
  int variant = 0;
  for (const StateSpec& spec :
       {StateSpec{2, 64, 0, KvType::kF16}, StateSpec{1, 40, 0, KvType::kBF16},
        StateSpec{1, 5, 0, KvType::kF32}, StateSpec{2, 64, 100, KvType::kF16},
        StateSpec{1, 40, 64, KvType::kF16}, StateSpec{1, 16, 513, KvType::kF32},
        StateSpec{1, 16, 1, KvType::kF32}}) {
    AttentionParams params;
    params.heads = spec.kv_heads * (1 + variant++ % 7);
    params.scale = 0.2f;
    params.window = spec.window;
    const int n = 1100;  // three splits
    const std::vector<float> expected =
        in_chunks(spec, params, n, n, threads.one, threads.workspace, mantou::detected_isa());
    for (int chunk : {1, 7, 64, 512}) {
      for (const mantou::Isa isa : available_isas()) {
        if (isa == mantou::Isa::kScalar && variant % 3 != 0) continue;  // slow
        EXPECT_TRUE(same_bits(expected,
                              in_chunks(spec, params, n, chunk, *threads.all[(chunk + variant) % 3],
                                        threads.workspace, isa)))
            << spec.signature() << ", chunks of " << chunk << ", " << isa_name(isa);
      }
    }
  }
}

TEST(Attention, BatchMatesDoNotMatter) {
  Threads threads;
  const StateSpec spec{2, 64, 0, KvType::kF16};
  // Together: long and short rows, decode and prefill in one call.
  const std::vector<std::vector<int>> steps = {
      {1500, 3, 64, 0, 700}, {1, 60, 0, 7, 1}, {5, 1, 1, 1, 90}, {1, 1, 512, 1, 1}};
  Bench together(spec, 6);
  std::vector<std::unique_ptr<Bench>> alone;
  for (int row = 0; row < 5; row++) {
    together.state->add_row();
    alone.push_back(std::make_unique<Bench>(spec, 6));
    for (int i = 0; i < 5; i++) alone.back()->state->add_row();
  }
  for (size_t s = 0; s < steps.size(); s++) {
    const StepLayout layout = together.layout(steps[s]);
    const auto out =
        together.step(*threads.all[s % 3], threads.workspace, steps[s], mantou::detected_isa());
    for (const StepRow& row : layout.rows) {
      std::vector<int> counts(5, 0);
      counts[row.state_row] = row.count;
      const auto expected = alone[row.state_row]->step(threads.one, threads.workspace, counts,
                                                       mantou::detected_isa());
      const size_t width = 6 * 64;
      const std::vector<float> mine(out.begin() + row.first * width,
                                    out.begin() + (row.first + row.count) * width);
      EXPECT_TRUE(same_bits(mine, expected)) << "step " << s << ", row " << row.state_row;
    }
  }
}

TEST(Attention, WavesOfPartsDoNotMatter) {
  Threads threads;
  const StateSpec spec{2, 64, 0, KvType::kF16};
  Bench bench(spec, 4);
  bench.state->add_row();
  bench.state->add_row();
  bench.step(threads.three, threads.workspace, {3000, 1200}, mantou::detected_isa());
  const StepLayout layout = bench.layout({9, 1});
  bench.state->begin_step(layout);
  bench.append(threads.one, layout);
  const auto expected = bench.query(threads.one, threads.workspace, layout, mantou::detected_isa());
  for (const size_t budget : {size_t{1}, size_t{20000}, size_t{60000}, size_t{1} << 30}) {
    AttentionWorkspace workspace(budget);
    for (ThreadPool* pool : threads.all) {
      EXPECT_TRUE(
          same_bits(expected, bench.query(*pool, workspace, layout, mantou::detected_isa())))
          << budget << " bytes, " << pool->threads() << " threads";
    }
  }
  EXPECT_LT(bench.error(layout, expected, 30), 1e-5);
  bench.state->commit_step();
}

// A layer without keys of its own reads another layer's state, inside the step or after it.
TEST(Attention, ReadsADonorWithoutAppending) {
  Threads threads;
  Bench donor({1, 32, 0, KvType::kF16}, 4);
  donor.state->add_row();
  donor.step(threads.one, threads.workspace, {100}, mantou::detected_isa());
  const StepLayout layout = donor.layout({3});
  donor.state->begin_step(layout);
  donor.append(threads.one, layout);
  const auto inside = donor.query(threads.two, threads.workspace, layout, mantou::detected_isa());
  donor.state->commit_step();
  const auto after = donor.query(threads.two, threads.workspace, layout, mantou::detected_isa());
  EXPECT_TRUE(same_bits(inside, after));
  EXPECT_LT(donor.error(layout, after, 12), 1e-5);
}

TEST(Attention, NanReachesItsOwnRowOnly) {
  Threads threads;
  for (const mantou::Isa isa : available_isas()) {
    for (const int poisoned : {0, 1, 2}) {  // in q, k, v
      Bench bench({1, 20, 0, KvType::kF16}, 2);
      for (int row = 0; row < 2; row++) bench.state->add_row();
      const StepLayout layout = bench.layout({10, 10});
      std::vector<float> k = bench.values(layout, kKeys, 20), v = bench.values(layout, kValues, 20);
      std::vector<float> q = bench.values(layout, kQueries, 40);
      const auto clean = [&] {
        Bench other({1, 20, 0, KvType::kF16}, 2);
        for (int row = 0; row < 2; row++) other.state->add_row();
        return other.step(threads.one, threads.workspace, {10, 10}, isa);
      }();
      (poisoned == 0 ? q[12 * 40 + 3] : poisoned == 1 ? k[12 * 20 + 3] : v[12 * 20 + 3]) = kNan;
      bench.state->begin_step(layout);
      append_kv(threads.one, *bench.state, layout, k, v, isa);
      std::vector<float> out(q.size());
      attend(threads.two, threads.workspace, *bench.state, bench.params, layout, q, out, isa);
      EXPECT_TRUE(std::equal(out.begin(), out.begin() + 10 * 40, clean.begin()));
      for (int token = 12; token < (poisoned == 0 ? 13 : 20); token++) {
        EXPECT_TRUE(std::isnan(out[token * 40 + 3])) << poisoned << " " << token;
      }
      bench.state->commit_step();
    }
  }
}

TEST(Attention, RefusesWhatDoesNotFit) {
  Threads threads;
  const mantou::Isa isa = mantou::detected_isa();
  Bench bench({2, 8, 70, KvType::kF32}, 4);
  bench.state->add_row();
  StepLayout layout = bench.layout({4});
  std::vector<float> q(4 * 4 * 8), kv(4 * 2 * 8), out(q.size());
  const auto attend_with = [&](const AttentionParams& params) {
    attend(threads.one, threads.workspace, *bench.state, params, layout, q, out, isa);
  };
  // No step, then no append.
  EXPECT_THROW(append_kv(threads.one, *bench.state, layout, kv, kv, isa), Error);
  bench.state->begin_step(layout);
  EXPECT_THROW(attend_with(bench.params), Error);
  const std::span<const float> short_keys(kv.data(), kv.size() - 1);
  EXPECT_THROW(append_kv(threads.one, *bench.state, layout, short_keys, kv, isa), Error);
  append_kv(threads.one, *bench.state, layout, kv, kv, isa);
  EXPECT_THROW(append_kv(threads.one, *bench.state, layout, kv, kv, isa), Error);  // twice
  EXPECT_NO_THROW(attend_with(bench.params));
  AttentionParams params = bench.params;
  params.heads = 3;
  EXPECT_THROW(attend_with(params), Error);
  params = bench.params;
  params.window = 71;
  EXPECT_THROW(attend_with(params), Error);
  params.window = 0;
  EXPECT_THROW(attend_with(params), Error);
  params = bench.params;
  const float sink = 0;
  params.sinks = {&sink, 1};
  EXPECT_THROW(attend_with(params), Error);
  bench.state->commit_step();
  // Positions that the row has not, and ones whose keys were dropped.
  layout.rows[0].position = 1;
  EXPECT_THROW(attend_with(bench.params), Error);
  for (int i = 0; i < 3; i++) bench.step(threads.one, threads.workspace, {100}, isa);
  EXPECT_THROW(attend_with(bench.params), Error);
}

}  // namespace
}  // namespace mantou::cpu
