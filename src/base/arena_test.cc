#include "base/arena.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "base/error.h"

namespace mantou {
namespace {

bool aligned(const void* p) { return reinterpret_cast<uintptr_t>(p) % Arena::kAlignment == 0; }

TEST(Arena, HandsOutAlignedDisjointZeroMemory) {
  Arena arena(1 << 20);
  EXPECT_EQ(arena.reserved(), 0u);
  std::vector<std::pair<std::byte*, size_t>> blocks;
  for (size_t size : {1, 63, 64, 65, 1000, 0, 5 << 20, 3}) {
    std::byte* p = arena.allocate(size);
    ASSERT_TRUE(aligned(p));
    for (size_t i = 0; i < size; i += 4096) ASSERT_EQ(p[i], std::byte(0));
    std::memset(p, int(blocks.size()) + 1, size);
    blocks.emplace_back(p, size);
  }
  for (size_t b = 0; b < blocks.size(); ++b)
    for (size_t i = 0; i < blocks[b].second; ++i)
      ASSERT_EQ(blocks[b].first[i], std::byte(b + 1)) << "block " << b;
  EXPECT_EQ(arena.used(), 64u + 64 + 64 + 128 + 1024 + 0 + (5 << 20) + 64);
  EXPECT_GE(arena.reserved(), arena.used());
}

TEST(Arena, ResetReusesItsRegions) {
  Arena arena(1 << 20);
  for (int i = 0; i < 10; ++i) arena.allocate(1 << 20);
  const size_t reserved = arena.reserved();
  std::byte* first = nullptr;
  for (int round = 0; round < 5; ++round) {
    arena.reset();
    EXPECT_EQ(arena.used(), 0u);
    std::byte* p = arena.allocate(100);
    if (round == 0) first = p;
    EXPECT_EQ(p, first);
    for (int i = 0; i < 9; ++i) arena.allocate(1 << 20);
    EXPECT_EQ(arena.reserved(), reserved);
  }
}

TEST(Arena, AFittingLaterRegionIsFoundAgain) {
  Arena arena(1 << 20);
  arena.allocate(100);
  arena.allocate(7 << 20);
  const size_t reserved = arena.reserved();
  arena.reset();
  arena.allocate(7 << 20);  // skips the small region
  EXPECT_EQ(arena.reserved(), reserved);
}

TEST(Arena, MovesItsMemory) {
  Arena a;
  int* values = a.allocate_array<int>(10);
  values[9] = 42;
  Arena b = std::move(a);
  EXPECT_EQ(values[9], 42);
  EXPECT_EQ(b.used(), 64u);
  EXPECT_EQ(a.reserved(), 0u);  // NOLINT: moved from, and empty
  a = std::move(b);
  EXPECT_EQ(values[9], 42);
}

TEST(Arena, SaysHowMuchItCouldNotGet) {
  Arena arena;
  arena.allocate(100);
  try {
    arena.allocate(size_t(1) << 60);
    FAIL() << "2^60 bytes";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kResourceExhausted);
    EXPECT_THAT(error.message(), testing::HasSubstr("1099511627778 MiB of memory (64 MiB held"));
  }
  EXPECT_THROW(arena.allocate(SIZE_MAX), Error);
  EXPECT_NE(arena.allocate(100), nullptr);  // and goes on
}

}  // namespace
}  // namespace mantou
