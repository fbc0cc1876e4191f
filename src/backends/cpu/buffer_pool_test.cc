// What the pool of activations keeps from step to step.
#include "backends/cpu/buffer_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>

namespace mantou::cpu {
namespace {

constexpr size_t kReserve = size_t{1} << 20;

// Three tensors of so many rows, as a layer has them: two at once, then one in their place.
void run_step(BufferPool& pool, int64_t rows) {
  {
    const Tensor gate = pool.make(rows, 1000), up = pool.make(rows, 1000);
    for (const Tensor* t : {&gate, &up}) {
      EXPECT_EQ(reinterpret_cast<uintptr_t>(data(*t)) % 64, 0u);
      std::fill_n(data(*t), rows * 1000, 1.0f);
    }
    EXPECT_NE(data(gate), data(up));
  }
  pool.make(rows, 1000);
  pool.end_step();
}

TEST(BufferPool, AStepLikeTheLastOneAllocatesNothing) {
  for (const int64_t rows : {1, 2000}) {
    BufferPool pool(kReserve);
    run_step(pool, rows);
    const size_t held = pool.held_bytes();
    EXPECT_GE(held, 2 * size_t(rows) * 1000 * sizeof(float));
    for (int i = 0; i < 3; i++) run_step(pool, rows);
    EXPECT_EQ(pool.held_bytes(), held);
  }
}

TEST(BufferPool, OfStepsOfAllSizesAReserveStays) {
  BufferPool pool(kReserve);
  for (int64_t rows = 2000; rows > 0; rows -= 37) run_step(pool, rows);
  run_step(pool, 1);
  run_step(pool, 1);
  EXPECT_LE(pool.held_bytes(), kReserve + 2 * 1024 * sizeof(float));
  EXPECT_GE(pool.held_bytes(), kReserve / 2);
}

TEST(BufferPool, WhatHasBeenFreeForLongestGoesFirst) {
  BufferPool pool(kReserve);
  run_step(pool, 60);   // two buffers of 0.23 MiB
  run_step(pool, 100);  // two of 0.41 MiB
  const size_t held = pool.held_bytes();
  run_step(pool, 1);  // all four are too much for the reserve
  const size_t left = pool.held_bytes();
  EXPECT_LT(left, held);
  run_step(pool, 100);
  EXPECT_EQ(pool.held_bytes(), left) << "those of 100 rows were still there";
  run_step(pool, 60);
  EXPECT_GT(pool.held_bytes(), left) << "those of 60 rows were gone";
}

TEST(BufferPool, TensorsThatOutliveTheirStepKeepTheirMemory) {
  BufferPool pool(0);
  const Tensor logits = pool.make(8, 50000);
  std::fill_n(data(logits), 8 * 50000, 2.0f);
  for (int i = 0; i < 3; i++) run_step(pool, 8);
  pool.end_step();
  EXPECT_EQ(data(logits)[8 * 50000 - 1], 2.0f);
  EXPECT_GE(pool.held_bytes(), 8 * 50000 * sizeof(float));
}

}  // namespace
}  // namespace mantou::cpu
