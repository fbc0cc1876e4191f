// The number of a token in a model's vocabulary.
#pragma once

#include <cstdint>

namespace mantou {

using TokenId = int32_t;

}  // namespace mantou
