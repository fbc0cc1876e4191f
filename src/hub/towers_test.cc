#include "hub/towers.h"

#include <gtest/gtest.h>

namespace mantou::hub {
namespace {

TEST(Towers, BehindAnyPrefixButNotWithinAWord) {
  for (const char* name : {"vision_tower.x.weight", "model.vision_tower.x", "model.visual.blocks.0",
                           "multi_modal_projector.linear.bias", "a.b.embed_audio.weight"})
    EXPECT_TRUE(is_of_tower(name)) << name;
  for (const char* name :
       {"layers.0.mlp.up_proj.weight", "supervision_tower.x", "visual", "model.audiovisual.x", ""})
    EXPECT_FALSE(is_of_tower(name)) << name;
}

}  // namespace
}  // namespace mantou::hub
