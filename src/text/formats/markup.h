// Pieces that the parsers share: recognising fixed texts byte by byte.
#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace mantou::text {

inline bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

// What a tool's name may hold where markup and not quotes end it.
inline bool is_name_char(char c) {
  return static_cast<unsigned char>(c) > ' ' &&
         std::string_view("<>[]{}\"").find(c) == std::string_view::npos;
}

// Whether `name` may grow by `c`; no tool's name is longer than kMaxNameBytes.
inline constexpr size_t kMaxNameBytes = 256;
inline bool add_to_name(char c, std::string& name) {
  if (!is_name_char(c) || name.size() >= kMaxNameBytes) return false;
  name += c;
  return true;
}

// Finds one of a few texts in a stream and lets everything else pass. No text may begin another.
class MarkerSearch {
 public:
  // The index of the text that `c` completes, or -1. Bytes that begin no text (any longer) go to
  // `release`, which may change what `allowed(index)` answers.
  template <class Allowed, class Release>
  int feed(char c, std::span<const std::string_view> texts, Allowed allowed, Release release) {
    held_ += c;
    while (!held_.empty()) {
      bool begins = false;
      for (size_t i = 0; i < texts.size(); ++i) {
        if (!texts[i].starts_with(held_) || !allowed(i)) continue;
        if (texts[i].size() == held_.size()) {
          held_.clear();
          return static_cast<int>(i);
        }
        begins = true;
      }
      if (begins) return -1;
      release(held_[0]);
      held_.erase(0, 1);
    }
    return -1;
  }
  bool empty() const { return held_.empty(); }
  std::string take() { return std::exchange(held_, {}); }

 private:
  std::string held_;  // shorter than the longest text
};

// Expects one of a few texts right here.
class Expected {
 public:
  static constexpr int kMore = -1, kNone = -2;

  int feed(char c, std::initializer_list<std::string_view> texts) {
    read_ += c;
    int index = 0;
    bool begins = false;
    for (const std::string_view text : texts) {
      if (text == read_) {
        read_.clear();
        return index;
      }
      begins = begins || text.starts_with(read_);
      ++index;
    }
    if (begins) return kMore;
    read_.pop_back();  // `c` is none of it
    return kNone;
  }
  bool empty() const { return read_.empty(); }
  std::string_view read() const { return read_; }
  std::string take() { return std::exchange(read_, {}); }

 private:
  std::string read_;
};

}  // namespace mantou::text
