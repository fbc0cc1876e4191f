#include "backends/cpu/kv_rows.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <thread>

#include "backends/cpu/kv_test_util.h"
#include "backends/cpu/layer_state_suite.h"
#include "base/error.h"

namespace mantou::cpu {
namespace {

// --- The property suite ---

struct KvRowsKind {
  StateSpec spec;
  int heads = 1;
  bool may_run_out = false;
  std::shared_ptr<KvBlockPool> pool;
  ThreadPool threads{1};
  AttentionWorkspace workspace;
  mantou::Isa isa = mantou::Isa::kScalar;
  int shakes = 0;

  std::unique_ptr<LayerState> make() { return std::make_unique<KvRows>(spec, pool); }
  void append(LayerState& state, const StepLayout& layout, const std::vector<float>& k,
              const std::vector<float>& v) {
    append_kv(threads, dynamic_cast<KvRows&>(state), layout, k, v, isa);
  }
  float stored(LayerState& state, int row, int64_t token, int head, int dim, bool value) {
    auto& rows = dynamic_cast<KvRows&>(state);
    return test::stored(rows.layout(), rows.view(row), token, head, dim, value);
  }
  std::vector<float> attend(LayerState& state, const StepLayout& layout,
                            const std::vector<float>& q) {
    std::vector<float> out(q.size());
    const AttentionParams params{
        .heads = heads, .scale = 1, .softcap = 0, .window = spec.window, .sinks = {}};
    cpu::attend(threads, workspace, dynamic_cast<KvRows&>(state), params, layout, q, out, isa);
    return out;
  }
  std::vector<float> expected(std::vector<float> head, bool plain, bool quantized) const {
    if (plain)
      for (float& x : head) x = test::rounded(spec.type, x);
    return quantized ? test::quantized(spec.quant, head) : head;
  }
  void shake() {
    if (may_run_out || shakes++ % 8 != 0) return;
    test::poison(*pool, kv_block_layout(spec).block_bytes, 6);
    if (spec.quant.bits > 0) test::poison(*pool, kv_quantized_layout(spec).block_bytes, 6);
  }
};

class KvRowsProperties : public testing::TestWithParam<std::tuple<KvType, int>> {};

TEST_P(KvRowsProperties, EqualAListOfRows) {
  const auto [type, window] = GetParam();
  const bool full = std::getenv("MANTOU_TEST_FULL") != nullptr;
  const int sequences = !full ? 60 : window == 0 ? 10000 : 1300;  // of eight windows: 10,400
  const std::vector<mantou::Isa> isas = test::available_isas();
  for (int i = 0; i < sequences && !HasFailure(); i++) {
    KvRowsKind kind;
    kind.spec = {1 + i % 2, i % 3 == 0 ? 3 : 1, window, type};
    kind.heads = kind.spec.kv_heads * (1 + i % 3);
    kind.isa = isas[i % isas.size()];
    kind.may_run_out = i % 4 == 0;
    const size_t block = kv_block_layout(kind.spec).block_bytes;
    kind.pool =
        kind.may_run_out ? KvBlockPool::create(block * (3 + i % 29)) : KvBlockPool::create();
    {
      test::LayerStateSuite suite(kind, uint64_t(i) * 1000 + window * 4 + int(type));
      suite.run(40);
    }
    EXPECT_EQ(kind.pool->used_bytes(), 0u);
    if (HasFailure()) ADD_FAILURE() << kind.spec.signature() << ", sequence " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(All, KvRowsProperties,
                         testing::Combine(testing::Values(KvType::kF16, KvType::kBF16,
                                                          KvType::kF32),
                                          testing::Values(0, 1, 2, 63, 64, 65, 66, 100, 130)));

class QuantizedKvRowsProperties : public testing::TestWithParam<int> {};

TEST_P(QuantizedKvRowsProperties, EqualAListOfRows) {
  const int sequences = std::getenv("MANTOU_TEST_FULL") != nullptr ? 10000 : 60;
  const std::vector<mantou::Isa> isas = test::available_isas();
  std::mt19937 random(3);
  for (int i = 0; i < sequences && !HasFailure(); i++) {
    KvRowsKind kind;
    const KvType types[] = {KvType::kF16, KvType::kBF16, KvType::kF32};
    const int64_t starts[] = {0, 1, 5, 63, 64, 65, 130};
    kind.spec = {1 + i % 2, i % 3 == 0 ? 64 : 32, GetParam(), types[random() % 3]};
    kind.spec.quant = {random() % 2 ? 8 : 4, 32, random() % 2 ? starts[random() % 7] : 0};
    kind.heads = kind.spec.kv_heads * (1 + i % 3);
    kind.isa = isas[i % isas.size()];
    kind.may_run_out = i % 4 == 0;
    const size_t block = kv_block_layout(kind.spec).block_bytes;
    kind.pool =
        kind.may_run_out ? KvBlockPool::create(block * (3 + i % 29)) : KvBlockPool::create();
    test::LayerStateSuite(kind, uint64_t(i) * 1000 + uint64_t(GetParam())).run(20);
    EXPECT_EQ(kind.pool->used_bytes(), 0u);
    if (HasFailure()) ADD_FAILURE() << kind.spec.signature() << ", sequence " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Windows, QuantizedKvRowsProperties, testing::Values(0, 1, 64, 100));

// --- What the suite leaves open: sharing, sizes, errors ---

constexpr int kHeads = 2;
constexpr int kDim = 8;

struct Layer {
  std::shared_ptr<KvBlockPool> pool;
  KvRows rows;
  ThreadPool threads{1};

  explicit Layer(int64_t window = 0, size_t limit_blocks = 1000)
      : pool(KvBlockPool::create(limit_blocks * block_bytes())),
        rows({kHeads, kDim, window, KvType::kF32}, pool) {}

  static size_t block_bytes() {
    return kv_block_layout({kHeads, kDim, 0, KvType::kF32}).block_bytes;
  }

  static StepLayout layout(const KvRows& state, int row, int count) {
    return {{StepRow{row, 0, count, state.tokens(row)}}, count};
  }
  void append(KvRows& state, const StepLayout& layout) {
    std::vector<float> values(size_t(layout.total_tokens) * kHeads * kDim, 1.5f);
    append_kv(threads, state, layout, values, values, mantou::Isa::kScalar);
  }
  void step(KvRows& state, int row, int count) {
    const StepLayout plan = layout(state, row, count);
    state.begin_step(plan);
    append(state, plan);
    state.commit_step();
  }
  size_t used_blocks() const { return pool->used_bytes() / block_bytes(); }
};

ErrorCode code_of(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    return error.code();
  }
  ADD_FAILURE() << "no error";
  return ErrorCode::kIo;
}

TEST(KvBlockLayout, CountsPaddingAndRefusesWhatKernelsCannotDo) {
  // [64][40] keys and [64][48] values of two bytes.
  EXPECT_EQ(kv_block_layout({3, 40, 0, KvType::kF16}).block_bytes, 3u * 64 * (40 + 48) * 2);
  EXPECT_EQ(kv_block_layout({1, 64, 0, KvType::kF32}).block_bytes, 64u * (64 + 64) * 4);
  for (const StateSpec& spec : {StateSpec{1, 0}, StateSpec{1, 513}, StateSpec{1, -1}}) {
    EXPECT_EQ(code_of([&] { kv_block_layout(spec); }), ErrorCode::kUnsupported);
  }
  EXPECT_EQ(code_of([&] { kv_block_layout({0, 64}); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { kv_block_layout({1, 64, -1}); }), ErrorCode::kInvalidArgument);
}

TEST(KvRows, ForkSharesBlocksUntilTheTailIsWritten) {
  Layer layer;
  layer.rows.add_row();
  layer.step(layer.rows, 0, 130);
  EXPECT_EQ(layer.used_blocks(), 3u);
  auto fork = layer.rows.fork(0);
  EXPECT_EQ(layer.used_blocks(), 3u);
  auto& forked = dynamic_cast<KvRows&>(*fork);
  layer.step(forked, 0, 1);
  EXPECT_EQ(layer.used_blocks(), 4u);  // its own tail
  EXPECT_EQ(forked.view(0).blocks[1], layer.rows.view(0).blocks[1]);
  EXPECT_NE(forked.view(0).blocks[2], layer.rows.view(0).blocks[2]);
  layer.step(layer.rows, 0, 1);
  EXPECT_EQ(layer.used_blocks(), 4u);  // the other one is now alone with its tail
  fork.reset();
  EXPECT_EQ(layer.used_blocks(), 3u);
}

TEST(KvRows, AFullTailIsNeverCopied) {
  Layer layer;
  layer.rows.add_row();
  layer.step(layer.rows, 0, 128);
  const auto fork = layer.rows.fork(0);
  layer.step(layer.rows, 0, 1);
  EXPECT_EQ(layer.used_blocks(), 3u);
}

TEST(KvRows, TrimIntoASharedBlockLeavesTheOtherRowAlone) {
  Layer layer;
  layer.rows.add_row();
  layer.step(layer.rows, 0, 128);
  const auto fork = layer.rows.fork(0);
  ASSERT_TRUE(layer.rows.trim(0, 100));
  EXPECT_EQ(layer.rows.bytes(0), layer.block_bytes());
  layer.step(layer.rows, 0, 1);
  auto& forked = dynamic_cast<KvRows&>(*fork);
  EXPECT_NE(forked.view(0).blocks[0], layer.rows.view(0).blocks[0]);
}

TEST(KvRows, SlidingRowsKeepWhatTheNextQuerySees) {
  for (const int64_t window : {1, 2, 64, 65, 66, 100, 128, 129, 512}) {
    Layer layer(window);
    layer.rows.add_row();
    for (int64_t tokens = 1; tokens <= 2 * window + 300; tokens++) {
      layer.step(layer.rows, 0, 1);
      const KvView view = layer.rows.view(0);
      // Whole blocks below the first token that the query at `tokens` sees are gone.
      ASSERT_EQ(view.first_block, std::max<int64_t>(0, tokens - window + 1) / 64) << tokens;
      ASSERT_EQ(int64_t(view.blocks.size()), (tokens + 63) / 64 - view.first_block);
      ASSERT_LE(layer.rows.bytes(0), layer.rows.projected_bytes(tokens));
    }
    EXPECT_LE(layer.rows.projected_bytes(1 << 20), layer.block_bytes() * (window / 64 + 2));
  }
}

TEST(KvRows, SlidingRowsTrimAsFarAsBlocksReach) {
  Layer layer(65);
  layer.rows.add_row();
  layer.step(layer.rows, 0, 300);  // the query at 300 sees 236 …: blocks 0 … 2 are gone
  EXPECT_EQ(layer.rows.view(0).first_block, 3);
  EXPECT_FALSE(layer.rows.trim(0, 45));  // the query at 255 would see 191
  EXPECT_EQ(layer.rows.tokens(0), 300);
  EXPECT_TRUE(layer.rows.trim(0, 44));  // the query at 256 sees 192
  EXPECT_EQ(layer.rows.tokens(0), 256);
  EXPECT_TRUE(layer.rows.trim(0, 0));
  layer.step(layer.rows, 0, 10);
  EXPECT_EQ(layer.rows.tokens(0), 266);
}

TEST(KvRows, FullRowsProjectExactlyWhatTheyHold) {
  Layer layer;
  layer.rows.add_row();
  EXPECT_EQ(layer.rows.projected_bytes(0), 0u);
  for (int count : {1, 62, 1, 1, 63, 200}) {
    layer.step(layer.rows, 0, count);
    EXPECT_EQ(layer.rows.bytes(0), layer.rows.projected_bytes(layer.rows.tokens(0)));
  }
}

TEST(KvRows, AStepThatFindsNoMemoryChangesNothing) {
  Layer layer(0, 5);
  layer.rows.add_row();
  layer.rows.add_row();
  layer.step(layer.rows, 0, 100);
  layer.step(layer.rows, 1, 64);
  StepLayout layout{{{0, 0, 64, 100}, {1, 64, 65, 64}}, 129};  // three blocks; two are left
  EXPECT_EQ(code_of([&] { layer.rows.begin_step(layout); }), ErrorCode::kResourceExhausted);
  EXPECT_EQ(layer.used_blocks(), 3u);
  EXPECT_EQ(layer.rows.tokens(0), 100);
  layout.rows[1].count = 64;
  layout.total_tokens = 128;
  layer.rows.begin_step(layout);  // still not in a step
  EXPECT_EQ(layer.used_blocks(), 5u);
  layer.rows.abort_step();
  EXPECT_EQ(layer.used_blocks(), 3u);
}

TEST(KvRows, TokensOfAStepCountAfterCommit) {
  Layer layer;
  layer.rows.add_row();
  layer.step(layer.rows, 0, 10);
  const StepLayout layout = Layer::layout(layer.rows, 0, 5);
  layer.rows.begin_step(layout);
  EXPECT_EQ(layer.rows.view(0).tokens, 10);
  layer.append(layer.rows, layout);
  EXPECT_EQ(layer.rows.view(0).tokens, 15);
  EXPECT_EQ(layer.rows.tokens(0), 10);
  layer.rows.abort_step();
  EXPECT_EQ(layer.rows.view(0).tokens, 10);
}

TEST(KvRows, ATokenTakesWhatTheMathsSays) {
  const auto pool = KvBlockPool::create();
  ThreadPool threads{1};
  for (const auto& [quant, element] : {std::pair(KvQuant{}, 2.0),
                                       {KvQuant{8, 64, 0}, 1 + 4.0 / 64},
                                       {KvQuant{4, 32, 0}, 0.5 + 4.0 / 32}}) {
    KvRows rows({kHeads, 128, 0, KvType::kF16, quant}, pool);
    rows.add_row();
    const StepLayout step = Layer::layout(rows, 0, 640);
    rows.begin_step(step);
    const std::vector<float> values(size_t(640) * kHeads * 128, 1.5f);
    append_kv(threads, rows, step, values, values, mantou::Isa::kScalar);
    rows.commit_step();
    EXPECT_EQ(double(pool->used_bytes()), 2 * kHeads * 128 * element * 640);
  }
}

// One layer at a time: a pool with room for all plain layers and one quantized one is enough.
TEST(KvRows, QuantizingRowsTakesNoMoreThanOneLayerMore) {
  constexpr int kLayers = 6, kTokens = 640;
  const StateSpec spec{kHeads, 64, 0, KvType::kF16, {8, 64, kTokens}};
  const size_t plain = kv_block_layout(spec).block_bytes;
  const size_t quantized = kv_quantized_layout(spec).block_bytes;
  const size_t blocks = kTokens / kBlockTokens;
  const auto pool = KvBlockPool::create(blocks * (kLayers * plain + quantized) + quantized);
  std::vector<KvRows> layers;
  for (int i = 0; i < kLayers; i++) layers.emplace_back(spec, pool).add_row();
  ThreadPool threads{1};
  for (const int count : {kTokens, 1}) {
    for (KvRows& layer : layers) {
      const StepLayout step = Layer::layout(layer, 0, count);
      layer.begin_step(step);
      const std::vector<float> values(size_t(count) * kHeads * 64, 1.5f);
      append_kv(threads, layer, step, values, values, mantou::Isa::kScalar);
    }
    for (KvRows& layer : layers) layer.commit_step();
  }
  EXPECT_EQ(pool->used_bytes(), (blocks + 1) * kLayers * quantized);
}

TEST(KvRows, RefusesSavedStatesThatDoNotFit) {
  Layer layer(100);
  layer.rows.add_row();
  layer.step(layer.rows, 0, 300);
  const Snapshot good = layer.rows.snapshot(0);
  const auto refuses = [&](const std::function<void(Snapshot&)>& spoil) {
    Snapshot bad = good;
    spoil(bad);
    EXPECT_EQ(code_of([&] { layer.rows.restore(0, bad); }), ErrorCode::kInvalidArgument);
    EXPECT_EQ(layer.rows.tokens(0), 300);
  };
  refuses([](Snapshot& s) { s.layout = "mlx-planes-1"; });
  refuses([](Snapshot& s) { s.signature = "kv:full:f16:2x8"; });
  refuses([](Snapshot& s) { s.numbers.erase("tokens"); });
  refuses([](Snapshot& s) { s.numbers["tokens"] = -1; });
  refuses([](Snapshot& s) { s.numbers["tokens"] = 400; });
  refuses([](Snapshot& s) { s.numbers["first_block"] = 4; });  // needs tokens of block 3
  refuses([](Snapshot& s) { s.numbers["quantized"] = 1; });
  refuses([](Snapshot& s) { s.numbers["minimum"] = 1; });
  refuses([](Snapshot& s) { s.ranges.pop_back(); });
  refuses([](Snapshot& s) { s.ranges[0].bytes = s.ranges[0].bytes.first(10); });
  layer.rows.restore(0, good);
}

TEST(KvRows, RefusesWhatTheContractForbids) {
  Layer layer;
  KvRows& rows = layer.rows;
  rows.add_row();
  rows.add_row();
  layer.step(rows, 0, 10);
  const auto fails = [&](const std::function<void()>& act) {
    EXPECT_EQ(code_of(act), ErrorCode::kInternal);
    EXPECT_EQ(rows.rows(), 2);
    EXPECT_EQ(rows.tokens(0), 10);
  };
  const std::vector<int> twice = {0, 0}, beyond = {2}, negative = {-1};
  fails([&] { rows.keep(twice); });
  fails([&] { rows.keep(beyond); });
  fails([&] { rows.keep(negative); });
  fails([&] { rows.tokens(2); });
  fails([&] { rows.fork(2); });
  fails([&] { rows.trim(0, 11); });
  fails([&] { rows.trim(0, -1); });
  fails([&] { rows.join(std::move(rows)); });
  fails([&] { rows.commit_step(); });
  fails([&] { rows.abort_step(); });
  KvRows other({kHeads, kDim, 9, KvType::kF32}, layer.pool);
  fails([&] { rows.join(std::move(other)); });
  fails([&] { rows.begin_step({{{0, 0, 1, 9}}, 1}); });                  // not the row's position
  fails([&] { rows.begin_step({{{0, 0, 1, 10}, {0, 1, 1, 10}}, 2}); });  // a row twice
  fails([&] { rows.begin_step({{{0, 0, -1, 10}}, 0}); });
  const StepLayout layout = Layer::layout(rows, 0, 1);
  rows.begin_step(layout);
  const std::vector<int> both = {0, 1};
  KvRows same(rows.spec(), layer.pool);
  fails([&] { rows.begin_step(layout); });
  fails([&] { rows.add_row(); });
  fails([&] { rows.keep(both); });
  fails([&] { rows.fork(0); });
  fails([&] { rows.trim(0, 1); });
  fails([&] { rows.join(std::move(same)); });
  fails([&] { same.join(std::move(rows)); });
  fails([&] { rows.commit_step(); });  // nothing was appended
  rows.abort_step();
  const std::vector<int64_t> none = {0, 0}, more = {1, 0}, fewer = {0};
  fails([&] { rows.end_round(none); });
  rows.begin_round();
  fails([&] { rows.end_round(more); });
  fails([&] { rows.end_round(fewer); });
  fails([&] { rows.begin_round(); });
  fails([&] { rows.keep(both); });
  fails([&] { rows.snapshot(0); });
  rows.end_round(none);
}

TEST(KvBlockPool, ReusesMemoryAndReturnsEmptySlabs) {
  constexpr size_t kSlab = 2 << 20;
  const auto pool = KvBlockPool::create(size_t{1} << 30, kSlab);
  const size_t bytes = 100 << 10;  // twenty in a slab
  std::vector<KvBlockPtr> blocks;
  for (int i = 0; i < 100; i++) blocks.push_back(pool->allocate(bytes));
  EXPECT_EQ(pool->used_bytes(), 100 * bytes);
  EXPECT_EQ(pool->held_bytes(), 5 * kSlab);
  for (const KvBlockPtr& block : blocks) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(block->data()) % 64, 0u);
    std::memset(block->data(), 1, bytes);
  }
  std::byte* last = blocks.back()->data();
  blocks.pop_back();
  blocks.push_back(pool->allocate(bytes));
  EXPECT_EQ(blocks.back()->data(), last);
  blocks.resize(30);
  EXPECT_EQ(pool->held_bytes(), 3 * kSlab);  // two in use, one in reserve
  blocks.clear();
  EXPECT_EQ(pool->used_bytes(), 0u);
  EXPECT_EQ(pool->held_bytes(), kSlab);
  const KvBlockPtr other_size = pool->allocate(2 * bytes);
  EXPECT_EQ(pool->held_bytes(), 2 * kSlab);
}

TEST(KvBlockPool, BlocksOutliveTheirOwnersAndMayDieOnAnyThread) {
  auto pool = KvBlockPool::create();
  std::vector<KvBlockPtr> blocks[2];
  for (auto& part : blocks) {
    for (int i = 0; i < 200; i++) part.push_back(pool->allocate(64 << 10));
  }
  pool.reset();
  std::thread other([&] { blocks[1].clear(); });
  blocks[0].clear();
  other.join();
}

TEST(KvBlockPool, SaysWhichLimitWasReached) {
  const auto pool = KvBlockPool::create(size_t{3} << 20);
  const auto block = pool->allocate(size_t{2} << 20);
  try {
    pool->allocate(size_t{2} << 20);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted);
    EXPECT_NE(error.message().find("2 of 3 MiB"), std::string::npos) << error.message();
  }
}

}  // namespace
}  // namespace mantou::cpu
