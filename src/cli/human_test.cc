#include "cli/human.h"

#include <gtest/gtest.h>

namespace mantou::cli {
namespace {

TEST(Human, BytesInTheUnitThatFits) {
  EXPECT_EQ(human_bytes(0), "0 B");
  EXPECT_EQ(human_bytes(1023), "1023 B");
  EXPECT_EQ(human_bytes(1024), "1.0 KiB");
  EXPECT_EQ(human_bytes(98362432), "93.8 MiB");
  EXPECT_EQ(human_bytes(5e15), "4547.5 TiB");
}

}  // namespace
}  // namespace mantou::cli
