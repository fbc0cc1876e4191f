#include "text/gbnf_lexemes.h"

#include <algorithm>
#include <deque>
#include <map>
#include <set>

#include "base/error.h"
#include "text/gbnf_automaton.h"

namespace mantou::text {
namespace {

using Kind = GbnfPiece::Kind;
using NodeKind = GbnfNode::Kind;

// Pieces, lexemes and pairs of states that are looked at; about a second.
constexpr int64_t kMaxWork = 20'000'000;
// So often lexemes are cut with care; what is still in the way then is cut into its elements.
constexpr int kCarefulCuts = 24;

constexpr int kWhole = -1;       // a cut: none
constexpr int kEverywhere = -2;  // a cut: between all elements

struct Lexeme {
  GbnfAutomaton automaton;
  ByteSet follow = {};
  int cut = kWhole;  // else the element before which to cut
};

class Chooser {
 public:
  explicit Chooser(const Gbnf& grammar) : grammar_(grammar) {
    out_.rules.assign(grammar.rules.size(), -1);
  }

  GbnfPieces choose() {
    need_rule(grammar_.root);
    build_pending();
    if (piece(out_.rules[size_t(grammar_.root)]).kind == Kind::kLexeme) return std::move(out_);
    do {
      collect();
      find_first();
      find_follow();
      mark_conflicts();
    } while (cut_marked());
    return std::move(out_);
  }

 private:
  GbnfPiece& piece(int id) { return out_.pieces[size_t(id)]; }
  const GbnfNode& node(int id) const { return grammar_.nodes[size_t(id)]; }

  void spend(int64_t work) {
    work_ += work;
    if (work_ > kMaxWork)
      fail_param(ErrorCode::kInvalidArgument, "grammar",
                 "grammar: it is too complicated; use fewer rules that refer to themselves");
  }

  int add(GbnfPiece added) {
    spend(1 + int64_t(added.run.size()));
    out_.pieces.push_back(std::move(added));
    return int(out_.pieces.size()) - 1;
  }

  int add_lexeme(std::vector<int> run) {
    return add({.kind = Kind::kLexeme, .run = std::move(run)});
  }

  void need_rule(int rule) {
    if (out_.rules[size_t(rule)] >= 0) return;
    out_.rules[size_t(rule)] = add({});
    pending_.push_back(rule);
  }

  void build_pending() {
    while (!pending_.empty()) {
      const int rule = pending_.front();
      pending_.pop_front();
      const int body = build(grammar_.rules[size_t(rule)].body);
      // In place: others know the piece by its number.
      piece(out_.rules[size_t(rule)]) = piece(body);
    }
  }

  int build(int id) {
    const GbnfNode& n = node(id);
    if (grammar_.is_regular(id))
      return add_lexeme(n.kind == NodeKind::kSequence ? n.children : std::vector<int>{id});
    switch (n.kind) {
      case NodeKind::kRule:
        need_rule(n.rule);
        return add({.kind = Kind::kRule, .rule = n.rule});
      case NodeKind::kToken:
        return add({.kind = Kind::kToken, .node = id});
      case NodeKind::kSequence:
        return build_sequence(n.children);
      case NodeKind::kCharacters:  // regular
      case NodeKind::kChoice:
      case NodeKind::kRepeat:
        break;
    }
    GbnfPiece whole{.kind = n.kind == NodeKind::kChoice ? Kind::kChoice : Kind::kRepeat,
                    .min = n.min,
                    .max = n.max};
    for (const int child : n.children) whole.children.push_back(build(child));
    return add(std::move(whole));
  }

  int build_sequence(const std::vector<int>& nodes) {
    GbnfPiece whole{.kind = Kind::kSequence};
    std::vector<int> run;
    const auto close = [&] {
      if (!run.empty()) whole.children.push_back(add_lexeme(std::move(run)));
      run.clear();
    };
    for (const int child : nodes) {
      if (grammar_.is_regular(child)) {
        run.push_back(child);
      } else {
        close();
        whole.children.push_back(build(child));
      }
    }
    close();
    return add(std::move(whole));
  }

  // Lexemes of the same text are one.
  void collect() {
    lexemes_.clear();
    by_run_.clear();
    lexeme_of_.assign(out_.pieces.size(), -1);
    for (size_t p = 0; p < out_.pieces.size(); ++p) {
      if (out_.pieces[p].kind != Kind::kLexeme) continue;
      const std::vector<int>& run = out_.pieces[p].run;
      const auto [known, is_new] = by_run_.try_emplace(run, int(lexemes_.size()));
      lexeme_of_[p] = known->second;
      if (!is_new) continue;
      lexemes_.push_back({.automaton = make_automaton(grammar_, run)});
      spend(1 + int64_t(lexemes_.back().automaton.states.size()));
    }
  }

  Lexeme& lexeme(int piece) { return lexemes_[size_t(lexeme_of_[size_t(piece)])]; }

  struct Begin {
    ByteSet first;
    bool nullable = true;
  };

  Begin begin_of(int id) {
    spend(1);
    const GbnfPiece& p = piece(id);
    switch (p.kind) {
      case Kind::kLexeme:
        return {lexeme(id).automaton.first, lexeme(id).automaton.nullable};
      case Kind::kToken:
        return {ByteSet(), false};
      case Kind::kRule:
        return {rule_first_[size_t(p.rule)], grammar_.rules[size_t(p.rule)].nullable};
      case Kind::kRepeat: {
        Begin begin = begin_of(p.children[0]);
        begin.nullable |= p.min == 0;
        return begin;
      }
      case Kind::kChoice: {
        Begin all{ByteSet(), false};
        for (const int child : p.children) {
          const Begin begin = begin_of(child);
          all.first |= begin.first;
          all.nullable |= begin.nullable;
        }
        return all;
      }
      case Kind::kSequence:
        break;
    }
    Begin all;
    for (size_t i = 0; i < p.children.size() && all.nullable; ++i) {
      const Begin begin = begin_of(p.children[i]);
      all.first |= begin.first;
      all.nullable = begin.nullable;
    }
    return all;
  }

  template <class Step>
  void until_settled(bool callees_first, const Step& step) {
    const std::vector<int>& order = grammar_.order;
    for (bool changed = true; changed;) {
      changed = false;
      for (size_t i = 0; i < order.size(); ++i) {
        const int rule = order[callees_first ? i : order.size() - 1 - i];
        if (out_.rules[size_t(rule)] >= 0) changed |= step(rule);
      }
    }
  }

  void find_first() {
    rule_first_.assign(grammar_.rules.size(), {});
    until_settled(true, [&](int rule) {
      const ByteSet first = begin_of(out_.rules[size_t(rule)]).first;
      const bool changed = first != rule_first_[size_t(rule)];
      rule_first_[size_t(rule)] = first;
      return changed;
    });
  }

  void find_follow() {
    rule_follow_.assign(grammar_.rules.size(), {});
    until_settled(false, [&](int rule) {
      grew_ = false;
      spread(out_.rules[size_t(rule)], rule_follow_[size_t(rule)]);
      return grew_;
    });
  }

  void grow(ByteSet& set, const ByteSet& more) {
    const ByteSet all = set | more;
    grew_ |= all != set;
    set = all;
  }

  // Hands on what may follow a piece to what is in it.
  void spread(int id, ByteSet follow) {
    spend(1);
    const GbnfPiece& p = piece(id);
    switch (p.kind) {
      case Kind::kLexeme:
        grow(lexeme(id).follow, follow);
        return;
      case Kind::kToken:
        return;
      case Kind::kRule:
        grow(rule_follow_[size_t(p.rule)], follow);
        return;
      case Kind::kChoice:
        for (const int child : p.children) spread(child, follow);
        return;
      case Kind::kRepeat:
        if (p.max != 1) follow |= begin_of(p.children[0]).first;
        spread(p.children[0], follow);
        return;
      case Kind::kSequence:
        break;
    }
    for (size_t i = p.children.size(); i-- > 0;) {
      spread(p.children[i], follow);
      const Begin begin = begin_of(p.children[i]);
      follow = begin.nullable ? follow | begin.first : begin.first;
    }
  }

  void mark_conflicts() {
    ++rounds_;
    for (Lexeme& lexeme : lexemes_) lexeme.cut = lexeme.automaton.too_large ? kEverywhere : kWhole;
    for (const Lexeme& shorter : lexemes_) {
      if (shorter.automaton.too_large) continue;
      for (Lexeme& longer : lexemes_) {
        spend(1);
        if (longer.cut != kWhole || (shorter.automaton.first & longer.automaton.first).none())
          continue;
        longer.cut = find_cut(longer, shorter);
        if (longer.cut != kWhole && rounds_ > kCarefulCuts) longer.cut = kEverywhere;
      }
    }
  }

  // Whether `longer` may go on from where `shorter` ends with a byte that may follow `shorter`:
  // then the element where it does. Walks both at once; the pairs of states reached say all there
  // is to know.
  int find_cut(const Lexeme& longer, const Lexeme& shorter) {
    const GbnfAutomaton& a = shorter.automaton;
    const GbnfAutomaton& b = longer.automaton;
    std::vector<bool> seen(a.states.size() * b.states.size());
    spend(int64_t(seen.size()) / 64);
    std::vector<std::pair<int, int>> open;
    const auto reach = [&](const std::vector<int>& as, const std::vector<int>& bs) {
      spend(int64_t(as.size() * bs.size()));
      for (const int s : as) {
        for (const int t : bs) {
          const size_t pair = size_t(s) * b.states.size() + size_t(t);
          if (seen[pair] || (a.states[size_t(s)].bytes & b.states[size_t(t)].bytes).none())
            continue;
          seen[pair] = true;
          open.emplace_back(s, t);
        }
      }
    };
    reach(a.begin, b.begin);
    while (!open.empty()) {
      const GbnfAutomaton::State& s = a.states[size_t(open.back().first)];
      const GbnfAutomaton::State& t = b.states[size_t(open.back().second)];
      open.pop_back();
      if (s.final && (t.onward & shorter.follow).any()) {
        for (const int u : t.next)
          if ((b.states[size_t(u)].bytes & shorter.follow).any())
            return b.states[size_t(u)].element;
      }
      reach(s.next, t.next);
    }
    return kWhole;
  }

  bool cut_marked() {
    bool any = false;
    const size_t count = out_.pieces.size();  // those that are added need no look this time
    for (size_t p = 0; p < count; ++p) {
      if (out_.pieces[p].kind != Kind::kLexeme || lexeme(int(p)).cut == kWhole) continue;
      cut(int(p), lexeme(int(p)).cut);
      any = true;
    }
    build_pending();
    return any;
  }

  void cut(int id, int before) {
    const std::vector<int> run = piece(id).run;
    if (run.size() == 1) return open_up(id, run[0]);
    GbnfPiece whole{.kind = Kind::kSequence};
    if (before == kEverywhere) {
      for (const int element : run) whole.children.push_back(add_lexeme({element}));
    } else {
      const auto middle = run.begin() + std::max(before, 1);
      whole.children = {add_lexeme({run.begin(), middle}), add_lexeme({middle, run.end()})};
    }
    piece(id) = std::move(whole);
  }

  // A lexeme of one element becomes what that element is made of.
  void open_up(int id, int element) {
    const GbnfNode& n = node(element);
    GbnfPiece whole;
    switch (n.kind) {
      case NodeKind::kSequence:
        piece(id).run = n.children;
        return;  // to be cut next
      case NodeKind::kRule:
        need_rule(n.rule);
        piece(id) = {.kind = Kind::kRule, .rule = n.rule};
        return;
      case NodeKind::kRepeat:
        whole = {.kind = Kind::kRepeat, .min = n.min, .max = n.max};
        break;
      case NodeKind::kChoice:
      case NodeKind::kCharacters:  // in no one's way
      case NodeKind::kToken:
        whole.kind = Kind::kChoice;
        break;
    }
    for (const int child : n.children) whole.children.push_back(add_lexeme({child}));
    piece(id) = std::move(whole);
  }

  const Gbnf& grammar_;
  GbnfPieces out_;
  std::deque<int> pending_;
  std::vector<Lexeme> lexemes_;
  std::map<std::vector<int>, int> by_run_;
  std::vector<int> lexeme_of_;  // of pieces
  std::vector<ByteSet> rule_first_, rule_follow_;
  bool grew_ = false;
  int rounds_ = 0;
  int64_t work_ = 0;
};

}  // namespace

GbnfPieces choose_lexemes(const Gbnf& grammar) { return Chooser(grammar).choose(); }

}  // namespace mantou::text
