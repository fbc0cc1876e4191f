// The blocks of GGUF's types, decoded as docs/gguf.md defines them. Private to base/.
#pragma once

#include <cstddef>

#include "base/raw_tensor.h"

namespace mantou {

// block_size elements from block_bytes bytes, which may be unaligned.
using DecodeBlock = void (*)(const std::byte* block, float* out);

DecodeBlock block_decoder(DType dtype);

}  // namespace mantou
