#include "hub/towers.h"

#include <algorithm>
#include <array>

namespace mantou::hub {
namespace {

constexpr std::array<std::string_view, 8> kTowers = {
    "vision_tower.", "vision_model.", "visual.",      "vision_embedder.",
    "embed_vision.", "audio_tower.",  "embed_audio.", "multi_modal_projector."};

}  // namespace

bool is_of_tower(std::string_view tensor) {
  return std::any_of(kTowers.begin(), kTowers.end(), [&](std::string_view tower) {
    const size_t at = tensor.find(tower);
    return at == 0 || (at != tensor.npos && tensor[at - 1] == '.');
  });
}

}  // namespace mantou::hub
