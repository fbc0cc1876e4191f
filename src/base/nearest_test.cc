#include "base/nearest.h"

#include <gtest/gtest.h>

namespace mantou {
namespace {

TEST(Nearest, DistanceOfTextbookPairs) {
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3u);
  EXPECT_EQ(edit_distance("", "abc"), 3u);
  EXPECT_EQ(edit_distance("flaw", "lawn"), 2u);
}

TEST(Nearest, SuggestsOnlyWhatIsClose) {
  const std::string known[] = {"--temperature", "--top-p", "--top-k"};
  EXPECT_EQ(nearest("--temprature", known), "--temperature");
  EXPECT_EQ(nearest("--seed-of-doubt", known), "");
  EXPECT_EQ(did_you_mean("--top-q", known), "; did you mean --top-p?");
}

}  // namespace
}  // namespace mantou
