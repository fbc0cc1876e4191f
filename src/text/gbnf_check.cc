#include "text/gbnf_check.h"

#include <algorithm>
#include <iterator>

#include "base/error.h"

namespace mantou::text {
namespace {

using Kind = GbnfNode::Kind;
using Edges = std::vector<std::vector<int>>;  // of rules

// Calls visit(rule) for the rules a node refers to.
template <class Visit>
void for_each_rule(const Gbnf& grammar, int node, const Visit& visit) {
  const GbnfNode& n = grammar.nodes[size_t(node)];
  if (n.kind == Kind::kRule) visit(n.rule);
  for (const int child : n.children) for_each_rule(grammar, child, visit);
}

// The same for those a node can begin with.
template <class Visit>
void for_each_first_rule(const Gbnf& grammar, int node, const Visit& visit) {
  const GbnfNode& n = grammar.nodes[size_t(node)];
  if (n.kind == Kind::kRule) visit(n.rule);
  for (const int child : n.children) {
    for_each_first_rule(grammar, child, visit);
    if (n.kind == Kind::kSequence && !grammar.is_nullable(child)) return;
  }
}

// Strongly connected components in an order in which each comes after those it leads to (Tarjan,
// with a stack of our own: chains of rules may be long).
class Components {
 public:
  explicit Components(const Edges& edges)
      : edges_(edges), number_(edges.size(), -1), low_(edges.size()), done_(edges.size()) {
    for (size_t v = 0; v < edges.size(); ++v)
      if (number_[v] < 0) walk(int(v));
  }
  std::vector<std::vector<int>> take() { return std::move(components_); }

 private:
  struct Frame {
    int vertex;
    size_t next_edge;
  };

  void enter(int v) {
    number_[size_t(v)] = low_[size_t(v)] = count_++;
    open_.push_back(v);
    frames_.push_back({v, 0});
  }

  void walk(int start) {
    enter(start);
    while (!frames_.empty()) {
      Frame& frame = frames_.back();
      const auto v = size_t(frame.vertex);
      if (frame.next_edge < edges_[v].size()) {
        const int to = edges_[v][frame.next_edge++];
        if (number_[size_t(to)] < 0) {
          enter(to);
        } else if (!done_[size_t(to)]) {
          low_[v] = std::min(low_[v], number_[size_t(to)]);
        }
        continue;
      }
      frames_.pop_back();
      if (!frames_.empty()) {
        int& above = low_[size_t(frames_.back().vertex)];
        above = std::min(above, low_[v]);
      }
      if (low_[v] == number_[v]) close(int(v));
    }
  }

  void close(int v) {
    const auto begin = std::find(open_.rbegin(), open_.rend(), v).base() - 1;
    // What is found last leads to the others least.
    components_.emplace_back(open_.rbegin(), std::make_reverse_iterator(begin));
    for (const int member : components_.back()) done_[size_t(member)] = true;
    open_.erase(begin, open_.end());
  }

  const Edges& edges_;
  std::vector<int> number_, low_;
  std::vector<bool> done_;
  std::vector<int> open_;
  std::vector<Frame> frames_;
  std::vector<std::vector<int>> components_;
  int count_ = 0;
};

bool has_edge(const Edges& edges, int from, int to) {
  const std::vector<int>& out = edges[size_t(from)];
  return std::find(out.begin(), out.end(), to) != out.end();
}

class Checker {
 public:
  Checker(Gbnf& grammar, std::string_view text) : grammar_(grammar), text_(text) {}

  void check() {
    components_ = Components(edges(true)).take();
    for (const std::vector<int>& component : components_)
      grammar_.order.insert(grammar_.order.end(), component.begin(), component.end());
    settle(&GbnfRule::nullable, [&](int body) { return grammar_.is_nullable(body); });
    refuse_left_recursion();
    settle(&GbnfRule::ends, [&](int body) { return ends(body); });
    refuse_endless();
    find_recursive();
  }

 private:
  GbnfRule& rule(int id) { return grammar_.rules[size_t(id)]; }

  Edges edges(bool all) const {
    Edges out(grammar_.rules.size());
    for (size_t r = 0; r < out.size(); ++r) {
      const auto add = [&](int to) { out[r].push_back(to); };
      const int body = grammar_.rules[r].body;
      if (all) {
        for_each_rule(grammar_, body, add);
      } else {
        for_each_first_rule(grammar_, body, add);
      }
    }
    return out;
  }

  // Sets a fact that spreads from bodies to rules, until nothing changes.
  template <class Test>
  void settle(bool GbnfRule::* fact, const Test& test) {
    for (const std::vector<int>& component : components_) {
      for (bool changed = true; changed;) {
        changed = false;
        for (const int id : component) {
          if (rule(id).*fact || !test(rule(id).body)) continue;
          rule(id).*fact = changed = true;
        }
      }
    }
  }

  void refuse_left_recursion() {
    const Edges first = edges(false);
    const std::vector<std::vector<int>> circles = Components(first).take();
    for (const std::vector<int>& component : circles) {
      const int id = component[0];
      if (component.size() > 1 || has_edge(first, id, id))
        fail_gbnf(text_, rule(id).offset,
                  fmt::format("the rule {} begins with itself (left recursion)", rule(id).name));
    }
  }

  bool ends(int node) const {
    const GbnfNode& n = grammar_.nodes[size_t(node)];
    const auto child_ends = [&](int child) { return ends(child); };
    switch (n.kind) {
      case Kind::kCharacters:
      case Kind::kToken:
        return true;
      case Kind::kRule:
        return grammar_.rules[size_t(n.rule)].ends;
      case Kind::kChoice:
        return std::any_of(n.children.begin(), n.children.end(), child_ends);
      case Kind::kRepeat:
        return n.min == 0 || child_ends(n.children[0]);
      case Kind::kSequence:
        break;
    }
    return std::all_of(n.children.begin(), n.children.end(), child_ends);
  }

  void refuse_endless() {
    for (const int id : grammar_.order)
      if (!rule(id).ends)
        fail_gbnf(text_, rule(id).offset, fmt::format("the rule {} can never end", rule(id).name));
  }

  void find_recursive() {
    for (const std::vector<int>& component : components_) {
      const int id = component[0];
      const bool alone = component.size() == 1;
      bool itself = false;
      for_each_rule(grammar_, rule(id).body, [&](int to) { itself |= to == id; });
      if (!alone || (itself && !loop(id)))
        for (const int member : component) rule(member).recursive = true;
      if (alone) rule(id).regular = !rule(id).recursive && grammar_.is_regular(rule(id).body);
    }
  }

  int add(GbnfNode node) {
    grammar_.nodes.push_back(std::move(node));
    return int(grammar_.nodes.size()) - 1;
  }

  // r ::= a r | b is a* b.
  bool loop(int id) {
    Parts parts;
    if (!split(rule(id).body, id, parts)) return false;
    const int again = add({.kind = Kind::kChoice, .children = std::move(parts.again)});
    const int rest = add({.kind = Kind::kChoice, .children = std::move(parts.end)});
    const int repeat = add({.kind = Kind::kRepeat, .children = {again}, .min = 0, .max = -1});
    rule(id).body = add({.kind = Kind::kSequence, .children = {repeat, rest}});
    return true;
  }

  struct Parts {
    std::vector<int> again, end;  // alternatives that start over, and those that end
  };

  bool refers_to(int node, int id) const {
    bool found = false;
    for_each_rule(grammar_, node, [&](int to) { found |= to == id; });
    return found;
  }

  // False when the rule is used elsewhere than at the end.
  bool split(int node, int id, Parts& parts) {
    const GbnfNode n = grammar_.nodes[size_t(node)];
    if (n.kind == Kind::kRule && n.rule == id) {
      parts.again.push_back(add({.kind = Kind::kSequence}));
      return true;
    }
    if (!refers_to(node, id)) {
      parts.end.push_back(node);
      return true;
    }
    if (n.kind == Kind::kChoice)
      return std::all_of(n.children.begin(), n.children.end(),
                         [&](int child) { return split(child, id, parts); });
    if (n.kind == Kind::kRepeat && n.min == 0 && n.max == 1) {
      parts.end.push_back(add({.kind = Kind::kSequence}));
      return split(n.children[0], id, parts);
    }
    if (n.kind != Kind::kSequence) return false;
    const std::vector<int> before(n.children.begin(), n.children.end() - 1);
    for (const int child : before)
      if (refers_to(child, id)) return false;
    const int head = add({.kind = Kind::kSequence, .children = before});
    Parts last;
    if (!split(n.children.back(), id, last)) return false;
    const auto join = [&](const std::vector<int>& from, std::vector<int>& to) {
      for (const int tail : from)
        to.push_back(add({.kind = Kind::kSequence, .children = {head, tail}}));
    };
    join(last.again, parts.again);
    join(last.end, parts.end);
    return true;
  }

  Gbnf& grammar_;
  const std::string_view text_;
  std::vector<std::vector<int>> components_;
};

}  // namespace

bool Gbnf::is_nullable(int node) const {
  const GbnfNode& n = nodes[size_t(node)];
  const auto nullable = [&](int child) { return is_nullable(child); };
  switch (n.kind) {
    case Kind::kCharacters:
    case Kind::kToken:
      return false;
    case Kind::kRule:
      return rules[size_t(n.rule)].nullable;
    case Kind::kChoice:
      return std::any_of(n.children.begin(), n.children.end(), nullable);
    case Kind::kRepeat:
      return n.min == 0 || nullable(n.children[0]);
    case Kind::kSequence:
      break;
  }
  return std::all_of(n.children.begin(), n.children.end(), nullable);
}

bool Gbnf::is_regular(int node) const {
  const GbnfNode& n = nodes[size_t(node)];
  if (n.kind == Kind::kToken) return false;
  if (n.kind == Kind::kRule) return rules[size_t(n.rule)].regular;
  return std::all_of(n.children.begin(), n.children.end(),
                     [&](int child) { return is_regular(child); });
}

void fail_gbnf(std::string_view text, size_t offset, std::string_view what) {
  const std::string_view before = text.substr(0, offset);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const size_t begin = before.rfind('\n') + 1;  // 0 where there is none
  fail_param(ErrorCode::kInvalidArgument, "grammar", "grammar: line {}, column {}: {}", line,
             offset - begin + 1, what);
}

void check_gbnf(Gbnf& grammar, std::string_view text) { Checker(grammar, text).check(); }

}  // namespace mantou::text
