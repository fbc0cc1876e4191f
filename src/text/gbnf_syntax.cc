#include "text/gbnf_syntax.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "base/error.h"
#include "text/gbnf_check.h"

namespace mantou::text {
namespace {

constexpr size_t kMaxText = 256 << 10;
constexpr int kMaxDepth = 128;  // of brackets
// Of the tree: whoever walks it does so level by level on the stack.
constexpr int kMaxHeight = 4 * kMaxDepth;
constexpr int kMaxRules = 4096;
constexpr int kMaxRepeat = 10000;
constexpr char32_t kMaxChar = 0x10FFFF;

bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
}
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_surrogate(char32_t c) { return c >= 0xD800 && c <= 0xDFFF; }

class Parser {
 public:
  Parser(std::string_view text, const TokenLookup& lookup) : text_(text), lookup_(lookup) {}

  Gbnf parse() {
    if (text_.size() > kMaxText)
      fail_param(ErrorCode::kInvalidArgument, "grammar",
                 "grammar: {} bytes are too long, the limit is {}", text_.size(), kMaxText);
    for (skip_space(true); at_ < text_.size(); skip_space(true)) parse_rule();
    for (const GbnfRule& rule : out_.rules)
      if (rule.body < 0)
        fail_gbnf(text_, rule.offset, fmt::format("there is no rule named {}", rule.name));
    const auto root = ids_.find("root");
    if (root == ids_.end()) fail_gbnf(text_, 0, "there is no rule named root");
    out_.root = root->second;
    return std::move(out_);
  }

 private:
  [[noreturn]] void expected(std::string_view what) {
    fail_gbnf(text_, at_, fmt::format("expected {}", what));
  }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool take(std::string_view what) {
    if (!text_.substr(at_).starts_with(what)) return false;
    at_ += what.size();
    return true;
  }

  // Blanks and comments; line ends where they do not end the rule.
  void skip_space(bool lines) {
    for (; at_ < text_.size(); ++at_) {
      if (text_[at_] == '#') at_ = std::min(text_.find_first_of("\r\n", at_), text_.size());
      const char c = peek();
      if (c != ' ' && c != '\t' && !(lines && (c == '\r' || c == '\n'))) break;
    }
  }

  int add(const GbnfNode& node) {
    const auto [known, is_new] = nodes_.try_emplace(node, int(out_.nodes.size()));
    if (!is_new) return known->second;
    int height = 0;
    for (const int child : node.children) height = std::max(height, heights_[size_t(child)] + 1);
    if (height > kMaxHeight)
      fail_gbnf(text_, at_, fmt::format("nested deeper than {} levels", kMaxHeight));
    out_.nodes.push_back(node);
    heights_.push_back(height);
    return known->second;
  }

  std::string_view name() {
    const size_t begin = at_;
    while (is_word(peek())) ++at_;
    if (at_ == begin) expected("the name of a rule");
    return text_.substr(begin, at_ - begin);
  }

  int rule_id(std::string_view name, size_t offset) {
    const auto [known, is_new] = ids_.try_emplace(std::string(name), int(out_.rules.size()));
    if (is_new) {
      if (known->second >= kMaxRules)
        fail_gbnf(text_, offset, fmt::format("more than {} rules", kMaxRules));
      out_.rules.push_back({.name = std::string(name), .offset = offset});
    }
    return known->second;
  }

  void parse_rule() {
    const size_t begin = at_;
    const int id = rule_id(name(), begin);
    skip_space(false);
    if (!take("::=")) expected("::=");
    if (out_.rules[size_t(id)].body >= 0)
      fail_gbnf(text_, begin, fmt::format("a second rule named {}", out_.rules[size_t(id)].name));
    skip_space(true);
    const int body = parse_choice(0);
    out_.rules[size_t(id)].body = body;
    if (at_ < text_.size() && peek() != '\n' && peek() != '\r')
      expected("an element, | or the end of the line");
  }

  int parse_choice(int depth) {
    if (depth > kMaxDepth)
      fail_gbnf(text_, at_, fmt::format("nested deeper than {} levels", kMaxDepth));
    std::vector<int> options = {parse_sequence(depth)};
    while (take("|")) {
      skip_space(true);
      options.push_back(parse_sequence(depth));
    }
    if (options.size() == 1) return options[0];
    return add({.kind = GbnfNode::Kind::kChoice, .children = std::move(options)});
  }

  int parse_sequence(int depth) {
    std::vector<int> elements;
    for (;; skip_space(depth > 0)) {
      const int element = parse_element(depth);
      if (element >= 0) {
        elements.push_back(element);
      } else if (!parse_repeat(elements)) {
        break;
      }
    }
    if (elements.size() == 1) return elements[0];
    return add({.kind = GbnfNode::Kind::kSequence, .children = std::move(elements)});
  }

  // -1: what comes is no element.
  int parse_element(int depth) {
    const size_t begin = at_;
    if (take("\"")) return parse_literal(begin);
    if (take("[")) return parse_class(begin);
    if (take(".")) return add({.kind = GbnfNode::Kind::kCharacters, .ranges = {{0, kMaxChar}}});
    if (peek() == '<' || peek() == '!') return parse_token();
    if (is_word(peek())) {
      const int id = rule_id(name(), begin);
      return add({.kind = GbnfNode::Kind::kRule, .rule = id});
    }
    if (!take("(")) return -1;
    skip_space(true);
    const int inner = parse_choice(depth + 1);
    if (!take(")")) expected(")");
    return inner;
  }

  int parse_literal(size_t begin) {
    std::vector<int> characters;
    while (!take("\"")) {
      const char32_t c = parse_char(begin, "the string");
      characters.push_back(add({.kind = GbnfNode::Kind::kCharacters, .ranges = {{c, c}}}));
    }
    if (characters.size() == 1) return characters[0];
    return add({.kind = GbnfNode::Kind::kSequence, .children = std::move(characters)});
  }

  int parse_class(size_t begin) {
    GbnfNode node{.kind = GbnfNode::Kind::kCharacters, .negated = take("^")};
    while (!take("]")) {
      const size_t low_at = at_;
      const char32_t low = parse_char(begin, "the character class");
      char32_t high = low;
      if (peek() == '-' && at_ + 1 < text_.size() && text_[at_ + 1] != ']') {
        ++at_;
        high = parse_char(begin, "the character class");
      }
      if (high < low) fail_gbnf(text_, low_at, "the range ends before it begins");
      node.ranges.emplace_back(low, high);
    }
    if (node.ranges.empty()) {
      if (!node.negated) fail_gbnf(text_, begin, "an empty character class matches nothing");
      node = {.kind = GbnfNode::Kind::kCharacters, .ranges = {{0, kMaxChar}}};
    }
    return add(node);
  }

  // <text> or <[id]>, after ! any other token.
  int parse_token() {
    const size_t begin = at_;
    const bool negated = take("!");
    const size_t open = at_;
    const size_t close = text_.find_first_of(">\r\n", open);
    if (peek() != '<' || close == std::string_view::npos || text_[close] != '>')
      expected("a token as <text> or <[id]>");
    at_ = close + 1;
    const std::string_view text = text_.substr(open, at_ - open);
    TokenId id = -1;
    if (text.starts_with("<[") && text.ends_with("]>")) {
      const std::string_view digits = text.substr(2, text.size() - 4);
      if (digits.empty() || digits.size() > 8 ||
          !std::all_of(digits.begin(), digits.end(), is_digit))
        fail_gbnf(text_, begin, "a token's id is a number");
      id = TokenId(std::stol(std::string(digits)));
    } else {
      id = lookup_(text);
      if (id < 0) fail_gbnf(text_, begin, fmt::format("the vocabulary has no token {}", text));
    }
    return add({.kind = GbnfNode::Kind::kToken, .negated = negated, .token = id});
  }

  bool parse_repeat(std::vector<int>& elements) {
    const size_t begin = at_;
    int min = 0, max = -1;
    if (take("?")) {
      max = 1;
    } else if (take("+")) {
      min = 1;
    } else if (take("{")) {
      parse_counts(min, max);
    } else if (!take("*")) {
      return false;
    }
    if (elements.empty()) fail_gbnf(text_, begin, "there is nothing before it to repeat");
    GbnfNode repeat;  // no times: the empty text
    if (max != 0)
      repeat = {
          .kind = GbnfNode::Kind::kRepeat, .children = {elements.back()}, .min = min, .max = max};
    elements.back() = add(repeat);
    return true;
  }

  void parse_counts(int& min, int& max) {
    skip_space(true);
    min = max = parse_count();
    skip_space(true);
    if (take(",")) {
      skip_space(true);
      max = is_digit(peek()) ? parse_count() : -1;
      skip_space(true);
    }
    if (!take("}")) expected("}");
    if (max >= 0 && max < min) fail_gbnf(text_, at_, "the most is less than the least");
  }

  int parse_count() {
    if (!is_digit(peek())) expected("a number");
    const size_t begin = at_;
    int value = 0;
    for (; is_digit(peek()); ++at_) {
      value = value * 10 + (peek() - '0');
      if (value > kMaxRepeat)
        fail_gbnf(text_, begin, fmt::format("more than {} repetitions", kMaxRepeat));
    }
    return value;
  }

  char32_t parse_char(size_t begin, std::string_view where) {
    if (at_ >= text_.size()) fail_gbnf(text_, begin, fmt::format("{} does not end", where));
    const size_t here = at_;
    const char32_t c = peek() == '\\' ? parse_escape() : parse_utf8();
    if (c > kMaxChar || is_surrogate(c))
      fail_gbnf(text_, here, fmt::format("U+{:04X} is no character", uint32_t(c)));
    return c;
  }

  char32_t parse_escape() {
    const size_t here = at_++;
    const char c = peek();
    ++at_;
    switch (c) {
      case 'x':
        return parse_hex(2);
      case 'u':
        return parse_hex(4);
      case 'U':
        return parse_hex(8);
      case 't':
        return '\t';
      case 'r':
        return '\r';
      case 'n':
        return '\n';
      case '\\':
      case '"':
      case '[':
      case ']':
      case '-':
        return char32_t(c);
      default:
        fail_gbnf(text_, here, "unknown escape");
    }
  }

  char32_t parse_hex(int digits) {
    char32_t value = 0;
    for (; digits > 0; --digits, ++at_) {
      const std::string_view all = "0123456789abcdef";
      const char c = peek();
      const size_t digit = all.find(c >= 'A' && c <= 'F' ? char(c - 'A' + 'a') : c);
      if (c == '\0' || digit == std::string_view::npos) expected("a hexadecimal digit");
      value = value << 4 | char32_t(digit);
    }
    return value;
  }

  char32_t parse_utf8() {
    const size_t here = at_;
    const auto lead = uint8_t(text_[at_++]);
    if (lead < 0x80) return lead;
    const int more = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
    char32_t value = lead & (0x3F >> more);
    bool valid = lead >= 0xC2 && lead < 0xF5;
    for (int i = 0; i < more && valid; ++i, ++at_) {
      valid = (uint8_t(peek()) & 0xC0) == 0x80;
      value = value << 6 | (uint8_t(peek()) & 0x3F);
    }
    constexpr char32_t kLeast[] = {0, 0x80, 0x800, 0x10000};
    if (!valid || value < kLeast[more]) fail_gbnf(text_, here, "not UTF-8");
    return value;
  }

  const std::string_view text_;
  const TokenLookup& lookup_;
  size_t at_ = 0;
  Gbnf out_;
  std::map<GbnfNode, int> nodes_;
  std::vector<int> heights_;                  // of the nodes: levels below them
  std::unordered_map<std::string, int> ids_;  // of rules
};

}  // namespace

Gbnf parse_gbnf(std::string_view text, const TokenLookup& lookup) {
  Gbnf grammar = Parser(text, lookup).parse();
  check_gbnf(grammar, text);
  return grammar;
}

}  // namespace mantou::text
