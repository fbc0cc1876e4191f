#include "base/utf8.h"

#include <cstddef>
#include <cstdint>

namespace mantou {
namespace {

struct Lead {
  size_t length;            // of the whole character; 0: no character starts so
  uint8_t lowest, highest;  // what the second byte may be
};

// Table 3-7 of the Unicode standard.
Lead lead_of(uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

// How many bytes at the start of `bytes` fit together, and how many they should be.
struct Step {
  size_t fit, length;
};

Step step(std::string_view bytes) {
  const Lead lead = lead_of(uint8_t(bytes[0]));
  if (lead.length < 2) return {1, lead.length};
  size_t fit = 1;
  while (fit < lead.length && fit < bytes.size()) {
    const uint8_t byte = uint8_t(bytes[fit]);
    const bool second = fit == 1;
    if (byte < (second ? lead.lowest : 0x80) || byte > (second ? lead.highest : 0xBF)) break;
    ++fit;
  }
  return {fit, lead.length};
}

}  // namespace

size_t character_length(std::string_view bytes) {
  if (bytes.empty()) return 0;
  const Step found = step(bytes);
  return found.fit == found.length ? found.length : 0;
}

bool is_utf8(std::string_view bytes) {
  while (!bytes.empty()) {
    const size_t length = character_length(bytes);
    if (length == 0) return false;
    bytes.remove_prefix(length);
  }
  return true;
}

std::string take_characters(std::string& pending) {
  std::string out;
  size_t at = 0;
  while (at < pending.size()) {
    const std::string_view rest = std::string_view(pending).substr(at);
    const Step found = step(rest);
    const bool whole = found.fit == found.length;
    if (!whole && found.length != 0 && found.fit == rest.size()) break;  // more may come
    out += whole ? rest.substr(0, found.fit) : kReplacement;
    at += found.fit;
  }
  pending.erase(0, at);
  return out;
}

}  // namespace mantou
