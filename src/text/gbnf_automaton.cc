#include "text/gbnf_automaton.h"

#include <algorithm>

namespace mantou::text {
namespace {

using Kind = GbnfNode::Kind;

constexpr size_t kMaxStates = 512;
constexpr int kMaxDepth = 256;

uint8_t first_byte(char32_t c) {
  if (c < 0x80) return uint8_t(c);
  if (c < 0x800) return uint8_t(0xC0 | c >> 6);
  if (c < 0x10000) return uint8_t(0xE0 | c >> 12);
  return uint8_t(0xF0 | c >> 18);
}

ByteSet bytes_of(const GbnfNode& node) {
  ByteSet bytes;
  if (node.negated) {
    // Beyond ASCII a byte starts many characters, of which some are in the set.
    for (size_t b = 0x80; b < 0xF5; ++b) bytes.set(b);
    for (size_t b = 0; b < 0x80; ++b) {
      const auto holds = [&](const auto& range) { return range.first <= b && b <= range.second; };
      bytes[b] = std::none_of(node.ranges.begin(), node.ranges.end(), holds);
    }
    return bytes;
  }
  for (const auto& [low, high] : node.ranges)
    for (unsigned b = first_byte(low); b <= first_byte(high); ++b) bytes.set(b);
  return bytes;
}

class Builder {
 public:
  explicit Builder(const Gbnf& grammar) : grammar_(grammar) {}

  GbnfAutomaton build(const std::vector<int>& run) {
    std::vector<size_t> ends;
    const Part whole = sequence(run, 0, &ends);
    out_.begin = whole.first;
    out_.nullable = whole.nullable;
    if (out_.too_large) return std::move(out_);
    for (const int s : out_.begin) out_.first |= state(s).bytes;
    for (const int s : whole.last) state(s).final = true;
    for (size_t s = 0, element = 0; s < out_.states.size(); ++s) {
      while (s >= ends[element]) ++element;
      out_.states[s].element = int(element);
    }
    for (GbnfAutomaton::State& from : out_.states) {
      std::sort(from.next.begin(), from.next.end());
      from.next.erase(std::unique(from.next.begin(), from.next.end()), from.next.end());
      for (const int to : from.next) from.onward |= state(to).bytes;
    }
    return std::move(out_);
  }

 private:
  struct Part {
    std::vector<int> first = {}, last = {};
    bool nullable = true;
  };

  GbnfAutomaton::State& state(int s) { return out_.states[size_t(s)]; }

  static void append(std::vector<int>& to, const std::vector<int>& from) {
    to.insert(to.end(), from.begin(), from.end());
  }

  void connect(const std::vector<int>& from, const std::vector<int>& to) {
    for (const int s : from) append(state(s).next, to);
    work_ += from.size() * to.size();
    if (work_ > kMaxStates * kMaxStates) out_.too_large = true;
  }

  // Notes in `ends` how many states there are after each node.
  Part sequence(const std::vector<int>& nodes, int depth, std::vector<size_t>* ends = nullptr) {
    Part all;
    for (const int node : nodes) {
      const Part part = build(node, depth);
      if (out_.too_large) break;
      if (ends != nullptr) ends->push_back(out_.states.size());
      connect(all.last, part.first);
      if (all.nullable) append(all.first, part.first);
      if (!part.nullable) all.last.clear();
      append(all.last, part.last);
      all.nullable &= part.nullable;
    }
    return all;
  }

  Part build(int node, int depth) {
    const GbnfNode& n = grammar_.nodes[size_t(node)];
    if (depth > kMaxDepth || out_.states.size() >= kMaxStates) out_.too_large = true;
    if (out_.too_large) return {};
    switch (n.kind) {
      case Kind::kRule:
        return build(grammar_.rules[size_t(n.rule)].body, depth + 1);
      case Kind::kCharacters: {
        out_.states.push_back({.bytes = bytes_of(n)});
        const int s = int(out_.states.size()) - 1;
        return {.first = {s}, .last = {s}, .nullable = false};
      }
      case Kind::kChoice: {
        Part all{.nullable = false};
        for (const int child : n.children) {
          const Part part = build(child, depth + 1);
          append(all.first, part.first);
          append(all.last, part.last);
          all.nullable |= part.nullable;
        }
        return all;
      }
      case Kind::kRepeat: {
        Part part = build(n.children[0], depth + 1);
        if (n.max != 1) connect(part.last, part.first);
        part.nullable |= n.min == 0;
        return part;
      }
      case Kind::kToken:  // never part of a lexeme
      case Kind::kSequence:
        break;
    }
    return sequence(n.children, depth + 1);
  }

  const Gbnf& grammar_;
  GbnfAutomaton out_;
  size_t work_ = 0;
};

}  // namespace

GbnfAutomaton make_automaton(const Gbnf& grammar, const std::vector<int>& run) {
  return Builder(grammar).build(run);
}

}  // namespace mantou::text
