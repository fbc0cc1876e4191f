#include "runtime/kv_scheme.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace mantou::runtime {
namespace {

using testing::HasSubstr;

std::vector<StateSpec> three_layers() { return {{2, 64, 0}, {2, 64, 16}, {1, 32, 0}}; }

std::string refusal(const KvScheme& scheme,
                    const std::optional<std::vector<hub::KvConfigEntry>>& config = {}) {
  try {
    with_scheme(three_layers(), scheme, config);
  } catch (const Error& error) {
    return error.message();
  }
  return "no error";
}

TEST(KvScheme, UniformReachesEveryLayer) {
  const auto specs =
      with_scheme(three_layers(), {KvScheme::Kind::kUniform, 4, 32, 7}, std::nullopt);
  for (const StateSpec& spec : specs) EXPECT_EQ(spec.quant, (KvQuant{4, 32, 7}));
  for (const StateSpec& spec : with_scheme(three_layers(), {}, std::nullopt))
    EXPECT_EQ(spec.quant.bits, 0);
}

TEST(KvScheme, ConfigReachesTheLayersItNames) {
  const std::vector<hub::KvConfigEntry> config = {{1, 8, 64}, {2, 4, 32}};
  const auto specs = with_scheme(three_layers(), {KvScheme::Kind::kConfig, 8, 64, 0}, config);
  EXPECT_EQ(specs[0].quant.bits, 0);
  EXPECT_EQ(specs[1].quant, (KvQuant{8, 64, 0}));
  EXPECT_EQ(specs[2].quant, (KvQuant{4, 32, 0}));
}

TEST(KvScheme, RefusesWhatCannotBe) {
  EXPECT_THAT(refusal({KvScheme::Kind::kUniform, 8, 64, 0}),
              HasSubstr("layer 2: heads of 32 dimensions have no groups of 64"));
  EXPECT_THAT(refusal({KvScheme::Kind::kConfig, 8, 64, 0}), HasSubstr("no kv_config.json"));
  EXPECT_THAT(refusal({KvScheme::Kind::kConfig, 8, 64, 0}, {{{2, 8, 128}}}),
              HasSubstr("layer 2: heads of 32 dimensions have no groups of 128"));
}

TEST(KvScheme, NamesTellSchemesApart) {
  EXPECT_EQ(name_of({}), "off");
  EXPECT_EQ(name_of({KvScheme::Kind::kUniform, 8, 64, 0}), "kv8");
  EXPECT_EQ(name_of({KvScheme::Kind::kUniform, 4, 32, 5000}), "kv4-32-5000");
  EXPECT_EQ(name_of({KvScheme::Kind::kConfig, 8, 64, 0}), "config");
  EXPECT_EQ(name_of({KvScheme::Kind::kConfig, 8, 64, 9}), "config-9");
}

}  // namespace
}  // namespace mantou::runtime
