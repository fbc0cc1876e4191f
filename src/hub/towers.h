// The parts of multimodal checkpoints that a text model does without. Any thread.
#pragma once

#include <string_view>

namespace mantou::hub {

// Whether the tensor belongs to a tower for images or sound; `tensor` may have any prefix.
bool is_of_tower(std::string_view tensor);

}  // namespace mantou::hub
