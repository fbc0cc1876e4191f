#include "text/utf8.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace mantou::text {
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

constexpr std::array<std::string_view, 29> kSpaces = {" ",
                                                      "\t",
                                                      "\n",
                                                      "\v",
                                                      "\f",
                                                      "\r",
                                                      "\x1C",
                                                      "\x1D",
                                                      "\x1E",
                                                      "\x1F",
                                                      "\xC2\x85",
                                                      "\xC2\xA0",
                                                      "\xE1\x9A\x80",  // U+1680
                                                      "\xE2\x80\x80",
                                                      "\xE2\x80\x81",
                                                      "\xE2\x80\x82",
                                                      "\xE2\x80\x83",
                                                      "\xE2\x80\x84",
                                                      "\xE2\x80\x85",
                                                      "\xE2\x80\x86",
                                                      "\xE2\x80\x87",
                                                      "\xE2\x80\x88",
                                                      "\xE2\x80\x89",
                                                      "\xE2\x80\x8A",  // U+2000…
                                                      "\xE2\x80\xA8",
                                                      "\xE2\x80\xA9",
                                                      "\xE2\x80\xAF",
                                                      "\xE2\x81\x9F",
                                                      "\xE3\x80\x80"};

}  // namespace

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

std::string_view strip_left(std::string_view text) {
  while (true) {
    const auto space = std::find_if(kSpaces.begin(), kSpaces.end(),
                                    [&](std::string_view s) { return text.starts_with(s); });
    if (space == kSpaces.end()) return text;
    text.remove_prefix(space->size());
  }
}

std::string_view strip_right(std::string_view text) {
  while (true) {
    const auto space = std::find_if(kSpaces.begin(), kSpaces.end(),
                                    [&](std::string_view s) { return text.ends_with(s); });
    if (space == kSpaces.end()) return text;
    text.remove_suffix(space->size());
  }
}

}  // namespace mantou::text
