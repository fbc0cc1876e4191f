// Values in bytes of any alignment. Private to base/.
#pragma once

#include <cstddef>
#include <cstring>

#include "base/half.h"

namespace mantou {

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

inline float load_f16(const std::byte* at) { return f16_to_f32(load<uint16_t>(at)); }

inline int byte_at(const std::byte* at) { return std::to_integer<int>(*at); }

}  // namespace mantou
