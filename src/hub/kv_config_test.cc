// The form in which mlx-optiq 0.7.7 writes kv_config.json, and what lies in it.
#include "hub/kv_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "hub/expect_error.h"

namespace mantou::hub {
namespace {

using nlohmann::json;

TEST(KvConfig, ReadsTheEntries) {
  const json list = json::parse(R"([{"layer_idx": 2, "bits": 8, "group_size": 64},
                                    {"layer_idx": 0, "bits": 4, "group_size": 32},
                                    {"layer_idx": 1, "bits": 4}])");
  const auto entries = parse_kv_config(list, "kv_config.json", 3);
  ASSERT_EQ(entries.size(), 3u);
  EXPECT_EQ(entries[0].layer, 2);
  EXPECT_EQ(entries[0].bits, 8);
  EXPECT_EQ(entries[1].group, 32);
  EXPECT_EQ(entries[2].group, 64);
  EXPECT_TRUE(parse_kv_config(json::array(), "kv_config.json", 3).empty());
}

struct BadEntry {
  const char* text;
  const char* message;
};

TEST(KvConfig, RefusesWhatCannotBe) {
  const BadEntry bad[] = {
      {R"({})", "k: must be a list of layers"},
      {R"([7])", "k: entry 0 is no object"},
      {R"([{"bits": 8}])", "layer_idx"},
      {R"([{"layer_idx": 3, "bits": 8}])", "k: entry 0: layer_idx is 3, must be 0 … 2"},
      {R"([{"layer_idx": -1, "bits": 8}])", "layer_idx is -1"},
      {R"([{"layer_idx": 0.5, "bits": 8}])", "k: entry 0: layer_idx"},
      {R"([{"layer_idx": "0", "bits": 8}])", "k: entry 0: layer_idx"},
      {R"([{"layer_idx": 18446744073709551616, "bits": 8}])", "k: entry 0: layer_idx"},
      {R"([{"layer_idx": 0}])", "bits"},
      {R"([{"layer_idx": 0, "bits": null}])", "bits"},
      {R"([{"layer_idx": 0, "bits": 8.5}])", "k: entry 0: bits"},
      {R"([{"layer_idx": 0, "bits": true}])", "k: entry 0: bits"},
      {R"([{"layer_idx": 0, "bits": 16}])", "bits is 16, must be 4 or 8"},
      {R"([{"layer_idx": 0, "bits": 8, "group_size": 0}])", "group_size is 0, must be 32 or 64"},
      {R"([{"layer_idx": 0, "bits": 8, "group_size": -64}])", "group_size"},
      {R"([{"layer_idx": 0, "bits": 3}])", "k: entry 0: bits is 3, must be 4 or 8"},
      {R"([{"layer_idx": 0, "bits": 8, "group_size": 48}])", "group_size is 48, must be 32 or 64"},
      {R"([{"layer_idx": 1, "bits": 8}, {"layer_idx": 1, "bits": 4}])",
       "k: entry 1: layer_idx is 1 again"},
  };
  for (const BadEntry& entry : bad) {
    try {
      parse_kv_config(json::parse(entry.text), "k", 3);
      ADD_FAILURE() << entry.text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kCorruptData) << entry.text;
      EXPECT_THAT(error.message(), ::testing::HasSubstr(entry.message)) << entry.text;
    }
  }
}

}  // namespace
}  // namespace mantou::hub
