#include "engine/ledger.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace mantou {
namespace {

TEST(Ledger, PromisesNothingTwiceAndForgetsNothing) {
  Ledger ledger(1000);
  std::mt19937 random(3);
  std::vector<Ledger::Reservation> held;
  uint64_t sum = 0;
  for (int i = 0; i < 10'000; i++) {
    if (random() % 2 || held.empty()) {
      const uint64_t bytes = random() % 300;
      auto reservation = ledger.reserve(bytes);
      ASSERT_EQ(reservation.has_value(), sum + bytes <= 1000);
      if (!reservation) continue;
      sum += bytes;
      held.push_back(std::move(*reservation));
    } else {
      std::swap(held[random() % held.size()], held.back());
      sum -= held.back().bytes();
      held.pop_back();
    }
    ASSERT_EQ(ledger.reserved(), sum);
  }
  held.clear();
  EXPECT_EQ(ledger.reserved(), 0u);
  EXPECT_FALSE(ledger.reserve(1001));
  EXPECT_TRUE(ledger.reserve(1000));
}

TEST(Ledger, MovingAReservationMovesItsBytes) {
  Ledger ledger(10);
  auto a = *ledger.reserve(4), b = *ledger.reserve(3);
  a = std::move(b);
  EXPECT_EQ(ledger.reserved(), 3u);
  Ledger::Reservation none;
  a = std::move(none);
  EXPECT_EQ(ledger.reserved(), 0u);
}

}  // namespace
}  // namespace mantou
