#include "text/gbnf.h"

#include <fmt/format.h>

#include <iterator>
#include <map>

#include "text/gbnf_lexemes.h"

namespace mantou::text {
namespace {

using NodeKind = GbnfNode::Kind;
using PieceKind = GbnfPiece::Kind;

void append_char(std::string& out, char32_t c) {
  const bool plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  out += plain ? std::string(1, char(c)) : fmt::format("\\x{{{:x}}}", uint32_t(c));
}

std::string times(int min, int max) {
  if (min == 0 && max == 1) return "?";
  if (max >= 0) return fmt::format("{{{},{}}}", min, max);
  return min == 0 ? "*" : min == 1 ? "+" : fmt::format("{{{},}}", min);
}

class Writer {
 public:
  Writer(const Gbnf& grammar, const GbnfPieces& pieces, std::span<const TokenId> end_ids)
      : grammar_(grammar), pieces_(pieces), end_ids_(end_ids) {}

  std::string write() {
    out_ = fmt::format("start: r{}\n", grammar_.root);
    for (size_t r = 0; r < pieces_.rules.size(); ++r)
      if (pieces_.rules[r] >= 0)
        fmt::format_to(std::back_inserter(out_), "r{}: {}\n", r, piece_text(pieces_.rules[r]));
    for (size_t i = 0; i < terminals_.size(); ++i) {
      // Writing one may add others.
      const int rule = terminals_[i];
      fmt::format_to(std::back_inserter(out_), "T{}: {}\n", rule,
                     node_text(grammar_.rules[size_t(rule)].body));
    }
    return std::move(out_);
  }

 private:
  const GbnfNode& node(int id) const { return grammar_.nodes[size_t(id)]; }

  // A rule as a part of a lexeme.
  std::string terminal(int rule) {
    if (is_terminal_.empty()) is_terminal_.resize(grammar_.rules.size());
    if (!is_terminal_[size_t(rule)]) terminals_.push_back(rule);
    is_terminal_[size_t(rule)] = true;
    return fmt::format("T{}", rule);
  }

  static void append_class(std::string& out, const GbnfNode& n) {
    if (!n.negated && n.ranges.size() == 1 && n.ranges[0].first == n.ranges[0].second)
      return append_char(out, n.ranges[0].first);
    out += n.negated ? "[^" : "[";
    for (const auto& [low, high] : n.ranges) {
      append_char(out, low);
      if (high == low) continue;
      out += '-';
      append_char(out, high);
    }
    out += ']';
  }

  // Characters in a row are one regular expression.
  std::string sequence_text(const std::vector<int>& nodes) {
    std::string text, regex;
    const auto close = [&] {
      if (regex.empty()) return;
      text += fmt::format("{}/{}/", text.empty() ? "" : " ", regex);
      regex.clear();
    };
    for (const int id : nodes) {
      if (node(id).kind == NodeKind::kCharacters) {
        append_class(regex, node(id));
      } else {
        close();
        text += (text.empty() ? "" : " ") + node_text(id);
      }
    }
    close();
    return text.empty() ? "\"\"" : text;
  }

  // Fit to stand in a sequence and to be repeated.
  std::string node_text(int id) {
    const GbnfNode& n = node(id);
    switch (n.kind) {
      case NodeKind::kRule:
        return terminal(n.rule);
      case NodeKind::kCharacters:
        return sequence_text({id});
      case NodeKind::kRepeat:
        return fmt::format("({}{})", node_text(n.children[0]), times(n.min, n.max));
      case NodeKind::kChoice: {
        std::string text;
        for (const int child : n.children) text += (text.empty() ? "(" : " | ") + node_text(child);
        return text + ")";
      }
      case NodeKind::kToken:  // never part of a lexeme
      case NodeKind::kSequence:
        break;
    }
    return fmt::format("({})", sequence_text(n.children));
  }

  // Lexemes cannot be empty: one that may be is optional, and without the empty text in itself.
  std::string lexeme_text(const std::vector<int>& run) {
    bool nullable = true;
    for (const int id : run) nullable &= grammar_.is_nullable(id);
    std::string body = sequence_text(run);
    if (body == "\"\"") return body;
    if (nullable) body = fmt::format("({}) & /(?s:.+)/", body);
    const auto [known, is_new] = lexemes_.try_emplace(body, lexemes_.size());
    const std::string name = fmt::format("L{}", known->second);
    if (is_new) fmt::format_to(std::back_inserter(out_), "{}: {}\n", name, body);
    return nullable ? name + "?" : name;
  }

  std::string piece_text(int id) {
    const GbnfPiece& p = pieces_.pieces[size_t(id)];
    const bool choice = p.kind == PieceKind::kChoice;
    switch (p.kind) {
      case PieceKind::kLexeme:
        return fmt::format("({})", lexeme_text(p.run));
      case PieceKind::kRule:
        return fmt::format("r{}", p.rule);
      case PieceKind::kToken:
        return token_text(node(p.node));
      case PieceKind::kRepeat:
        return fmt::format("({}{})", piece_text(p.children[0]), times(p.min, p.max));
      case PieceKind::kChoice:
      case PieceKind::kSequence:
        break;
    }
    std::string text;
    for (const int child : p.children)
      text += (text.empty() ? "(" : choice ? " | " : " ") + piece_text(child);
    return text.empty() ? "\"\"" : text + ")";
  }

  std::string token_text(const GbnfNode& n) const {
    if (!n.negated) return fmt::format("<[{}]>", n.token);
    std::string text = fmt::format("<[^{}", n.token);
    for (const TokenId id : end_ids_)
      if (id != n.token) text += fmt::format(",{}", id);
    return text + "]>";
  }

  const Gbnf& grammar_;
  const GbnfPieces& pieces_;
  const std::span<const TokenId> end_ids_;
  std::string out_;
  std::map<std::string, size_t> lexemes_;  // by their text
  std::vector<int> terminals_;             // rules
  std::vector<bool> is_terminal_;
};

}  // namespace

std::string gbnf_to_lark(std::string_view gbnf, const GbnfTokens& tokens) {
  const Gbnf grammar = parse_gbnf(gbnf, tokens.id_of);
  return Writer(grammar, choose_lexemes(grammar), tokens.end_ids).write();
}

}  // namespace mantou::text
