#include "text/strip.h"

#include <algorithm>
#include <array>

namespace mantou::text {
namespace {

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
