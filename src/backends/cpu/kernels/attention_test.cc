// Attention against float64 over the cache's own cells, and bit for bit against itself in every way
// of computing it that must not matter. Blocks start full of NaN in all tests.

#include "backends/cpu/kernels/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>

#include "backends/cpu/kernels/attention_fixture.h"
#include "base/error.h"

namespace mantou::cpu {
namespace {

using test::available_isas;
using test::kKeys;
using test::kNan;
using test::kQueries;
using test::kValues;
using test::same_bits;
using test::TestLayer;
using test::Threads;

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
    TestLayer layer({kv_heads, head_dim,
                     variant % 3 == 0   ? 70
                     : variant % 3 == 1 ? 5
                                        : 0,
                     type},
                    kv_heads * group);
    layer.query_size = 2;
    if (variant % 4 == 1) layer.params.softcap = 3;
    if (variant % 5 < 2) layer.add_sinks();
    layer.state->add_row();
    if (before > 0) {
      const StepLayout layout = layer.layout({before});
      layer.state->begin_step(layout);
      layer.append(threads.three, layout);
      layer.state->commit_step();
    }
    const StepLayout layout = layer.layout({chunk});
    layer.state->begin_step(layout);
    layer.append(threads.three, layout);
    std::vector<float> first;
    for (const mantou::Isa isa : available_isas()) {
      for (ThreadPool* pool : threads.all) {
        if (isa == mantou::Isa::kScalar && pool != threads.all[variant % 3]) continue;  // slow
        const auto out = layer.query(*pool, threads.workspace, layout, isa);
        if (first.empty()) first = out;
        ASSERT_TRUE(same_bits(out, first))
            << isa_name(isa) << ", " << pool->threads() << " threads, group " << group;
      }
    }
    EXPECT_LT(layer.error(layout, first, 12), 2e-5) << "group " << group;
    layer.state->commit_step();
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, AttentionShapes,
    testing::Combine(testing::Values(KvType::kF16, KvType::kBF16, KvType::kF32),
                     testing::Values(1, 5, 16, 40, 64, 80, 96, 128, 200, 256, 512)));

// Codes of both widths and all groups, against float64 over what they stand for.
TEST(QuantizedAttentionShapes, MatchesFloat64AndItselfOnAllSetsAndThreads) {
  Threads threads;
  int variant = 0;
  for (const int head_dim : {32, 64, 96, 128, 256})
    for (const int bits : {8, 4})
      for (const int group : {32, 64, 128})
        for (const int heads : {1, 3, 7, 16}) {
          if (head_dim % group != 0) continue;
          variant++;
          StateSpec spec{1 + variant % 2, head_dim, variant % 3 == 0 ? 70 : 0};
          spec.quant = {bits, group, 0};
          TestLayer layer(spec, spec.kv_heads * heads);
          if (variant % 4 == 1) layer.params.softcap = 3;
          if (variant % 5 < 2) layer.add_sinks();
          layer.state->add_row();
          const std::vector<int> steps = {variant % 2 ? 600 : 63, 1 + variant % 40};
          for (const int count : steps) {
            const StepLayout layout = layer.layout({count});
            layer.state->begin_step(layout);
            layer.append(threads.three, layout);
            std::vector<float> first;
            for (const mantou::Isa isa : available_isas())
              for (ThreadPool* pool : threads.all) {
                const bool slow =
                    isa == mantou::Isa::kScalar && (pool != threads.all[1] || count > 63);
                if (slow) continue;
                const auto out = layer.query(*pool, threads.workspace, layout, isa);
                if (first.empty()) first = out;
                ASSERT_TRUE(same_bits(out, first)) << isa_name(isa) << ", " << spec.signature();
              }
            EXPECT_LT(layer.error(layout, first, 12), 3e-5) << spec.signature();
            layer.state->commit_step();
          }
        }
}

TEST(Attention, GroupsLargerThanATile) {
  Threads threads;
  for (int heads : {71, 48, 49, 128}) {
    TestLayer layer({1, 24, 0, KvType::kF32}, heads);
    layer.add_sinks();
    layer.state->add_row();
    const StepLayout layout = layer.layout({70});
    layer.state->begin_step(layout);
    layer.append(threads.one, layout);
    const auto out = layer.query(threads.three, threads.workspace, layout, mantou::detected_isa());
    EXPECT_LT(layer.error(layout, out, 100), 1e-5) << heads;
    layer.state->commit_step();
  }
}

TEST(Attention, ExtremeLogits) {
  Threads threads;
  for (float size : {0.0f, 1e3f, 1e6f, 1e36f}) {
    TestLayer layer({2, 64, 0, KvType::kF32}, 6);
    layer.query_size = size;
    layer.state->add_row();
    const StepLayout layout = layer.layout({600});
    layer.state->begin_step(layout);
    layer.append(threads.one, layout);
    std::vector<float> first;
    for (const mantou::Isa isa : available_isas()) {
      const auto out = layer.query(threads.two, threads.workspace, layout, isa);
      if (first.empty()) first = out;
      EXPECT_TRUE(same_bits(out, first)) << isa_name(isa);
    }
    // Beyond 1e30 all logits are equal to f32's eyes; there the weights of ties may differ.
    if (size < 1e30f) {
      EXPECT_LT(layer.error(layout, first, 50), 1e-4) << size;
    }
    for (float x : first) ASSERT_TRUE(std::isfinite(x)) << size;
    layer.state->commit_step();
  }
}

// The outputs of a row's tokens 0 … n − 1, computed in chunks of so many.
std::vector<float> in_chunks(const StateSpec& spec, const AttentionParams& params, int n, int chunk,
                             ThreadPool& pool, AttentionWorkspace& workspace, mantou::Isa isa) {
  TestLayer layer(spec, params.heads);
  layer.params = params;
  layer.state->add_row();
  std::vector<float> all;
  for (int done = 0; done < n; done += chunk) {
    const auto out = layer.step(pool, workspace, {std::min(chunk, n - done)}, isa);
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
  TestLayer together(spec, 6);
  std::vector<std::unique_ptr<TestLayer>> alone;
  for (int row = 0; row < 5; row++) {
    together.state->add_row();
    alone.push_back(std::make_unique<TestLayer>(spec, 6));
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
  TestLayer layer(spec, 4);
  layer.state->add_row();
  layer.state->add_row();
  layer.step(threads.three, threads.workspace, {3000, 1200}, mantou::detected_isa());
  const StepLayout layout = layer.layout({9, 1});
  layer.state->begin_step(layout);
  layer.append(threads.one, layout);
  const auto expected = layer.query(threads.one, threads.workspace, layout, mantou::detected_isa());
  for (const size_t budget : {size_t{1}, size_t{20000}, size_t{60000}, size_t{1} << 30}) {
    AttentionWorkspace workspace(budget);
    for (ThreadPool* pool : threads.all) {
      EXPECT_TRUE(
          same_bits(expected, layer.query(*pool, workspace, layout, mantou::detected_isa())))
          << budget << " bytes, " << pool->threads() << " threads";
    }
  }
  EXPECT_LT(layer.error(layout, expected, 30), 1e-5);
  layer.state->commit_step();
}

// A layer without keys of its own reads another layer's state, inside the step or after it.
TEST(Attention, ReadsADonorWithoutAppending) {
  Threads threads;
  TestLayer donor({1, 32, 0, KvType::kF16}, 4);
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
      TestLayer layer({1, 20, 0, KvType::kF16}, 2);
      for (int row = 0; row < 2; row++) layer.state->add_row();
      const StepLayout layout = layer.layout({10, 10});
      std::vector<float> k = layer.values(layout, kKeys, 20), v = layer.values(layout, kValues, 20);
      std::vector<float> q = layer.values(layout, kQueries, 40);
      const auto clean = [&] {
        TestLayer other({1, 20, 0, KvType::kF16}, 2);
        for (int row = 0; row < 2; row++) other.state->add_row();
        return other.step(threads.one, threads.workspace, {10, 10}, isa);
      }();
      (poisoned == 0 ? q[12 * 40 + 3] : poisoned == 1 ? k[12 * 20 + 3] : v[12 * 20 + 3]) = kNan;
      layer.state->begin_step(layout);
      append_kv(threads.one, *layer.state, layout, k, v, isa);
      std::vector<float> out(q.size());
      attend(threads.two, threads.workspace, *layer.state, layer.params, layout, q, out, isa);
      EXPECT_TRUE(std::equal(out.begin(), out.begin() + 10 * 40, clean.begin()));
      for (int token = 12; token < (poisoned == 0 ? 13 : 20); token++) {
        EXPECT_TRUE(std::isnan(out[token * 40 + 3])) << poisoned << " " << token;
      }
      layer.state->commit_step();
    }
  }
}

TEST(Attention, RefusesWhatDoesNotFit) {
  Threads threads;
  const mantou::Isa isa = mantou::detected_isa();
  TestLayer layer({2, 8, 70, KvType::kF32}, 4);
  layer.state->add_row();
  StepLayout layout = layer.layout({4});
  std::vector<float> q(4 * 4 * 8), kv(4 * 2 * 8), out(q.size());
  const auto attend_with = [&](const AttentionParams& params) {
    attend(threads.one, threads.workspace, *layer.state, params, layout, q, out, isa);
  };
  // No step, then no append.
  EXPECT_THROW(append_kv(threads.one, *layer.state, layout, kv, kv, isa), Error);
  layer.state->begin_step(layout);
  EXPECT_THROW(attend_with(layer.params), Error);
  const std::span<const float> short_keys(kv.data(), kv.size() - 1);
  EXPECT_THROW(append_kv(threads.one, *layer.state, layout, short_keys, kv, isa), Error);
  append_kv(threads.one, *layer.state, layout, kv, kv, isa);
  EXPECT_THROW(append_kv(threads.one, *layer.state, layout, kv, kv, isa), Error);  // twice
  EXPECT_NO_THROW(attend_with(layer.params));
  AttentionParams params = layer.params;
  params.heads = 3;
  EXPECT_THROW(attend_with(params), Error);
  params = layer.params;
  params.window = 71;
  EXPECT_THROW(attend_with(params), Error);
  params.window = 0;
  EXPECT_THROW(attend_with(params), Error);
  params = layer.params;
  const float sink = 0;
  params.sinks = {&sink, 1};
  EXPECT_THROW(attend_with(params), Error);
  layer.state->commit_step();
  // Positions that the row has not, and ones whose keys were dropped.
  layout.rows[0].position = 1;
  EXPECT_THROW(attend_with(layer.params), Error);
  for (int i = 0; i < 3; i++) layer.step(threads.one, threads.workspace, {100}, isa);
  EXPECT_THROW(attend_with(layer.params), Error);
}

}  // namespace
}  // namespace mantou::cpu
