#include "cli/token_ids.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace mantou::cli {
namespace {

TEST(ParseIds, TakesWordsAndOneArray) {
  const std::vector<TokenId> wanted{1, 2, 99};
  for (const char* input :
       {"1 2 99", "1,2,99", "[1, 2, 99]", " [1,2,99]\n", "1\n2\n99\n", "[ 1 2 99 ]"})
    EXPECT_EQ(parse_ids(input, 100), wanted) << input;
  for (const char* input : {"", " \n", "[]", "[ ]"})
    EXPECT_TRUE(parse_ids(input, 100).empty()) << input;
}

TEST(ParseIds, RefusesWhatIsNoListOfIds) {
  for (const char* input :
       {"[1,2,[3]]", "[[1]]", "[1,2", "1,2]", "[", "1 [2]", "[1][2]", "100", "-1", "1.5", "1e1",
        "+1", "x", "\"1\"", "{\"ids\": [1]}", "99999999999"}) {
    try {
      parse_ids(input, 100);
      ADD_FAILURE() << input << " was accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_EQ(error.param(), "--ids");
      EXPECT_THAT(error.message(), testing::StartsWith("--ids: ")) << input;
    }
  }
}

}  // namespace
}  // namespace mantou::cli
