// Structured output: which tokens may come next so that a text stays within a JSON schema, a
// regular expression, a list of texts or a grammar.
//
// A Grammar is compiled once, immutable and shared between threads. A GrammarMatcher is one row's
// place in it and belongs to whoever owns the row. What cannot be enforced is an error of
// compile(), never left out. docs/text.md says what the kinds support.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/token.h"
#include "text/tokenizer.h"

namespace mantou::text {

enum class GrammarKind {
  kJsonSchema,  // text: the schema
  kJsonObject,  // any JSON object
  kRegex,       // text: a regular expression for the whole of the output
  kChoice,      // one of `choices`
  kLark,        // text: a grammar in llguidance's dialect of Lark
  kGbnf,        // text: a grammar in llama.cpp's notation
};

struct GrammarSource {
  GrammarKind kind = GrammarKind::kJsonObject;
  std::string text = {};
  std::vector<std::string> choices = {};
  bool operator==(const GrammarSource&) const = default;
};

class Grammar {
 public:
  // Milliseconds for most; the first with a tokenizer takes tenths of a second more. Throws
  // kInvalidArgument: the message names the path in a schema or the line in a grammar, param is
  // "grammar"; kUnsupported when it takes too long; kUnavailable when the machine is too
  // busy for it or too many before it had to be given up.
  static std::shared_ptr<const Grammar> compile(const Tokenizer& tokenizer, GrammarSource source);
  ~Grammar();

  const GrammarSource& source() const { return source_; }
  size_t bytes() const;  // of memory, about

 private:
  friend class GrammarMatcher;
  struct Compiled;
  Grammar(GrammarSource source, std::unique_ptr<const Compiled> compiled);

  const GrammarSource source_;
  const std::unique_ptr<const Compiled> compiled_;
};

class GrammarMatcher {
 public:
  explicit GrammarMatcher(const Grammar& grammar);  // at the beginning of the text
  GrammarMatcher(GrammarMatcher&&) noexcept;
  GrammarMatcher& operator=(GrammarMatcher&&) noexcept;
  ~GrammarMatcher();

  // Bit i of word i / 32 becomes 1 where token i may come next; words beyond the vocabulary become
  // 0. The end ids are set where the text may end, and alone once nothing else can follow. Throws
  // kInvalidArgument, of "grammar", when no token of the vocabulary fits or the grammar takes too
  // much work at this place; the matcher is then of no more use.
  void mask(std::span<uint32_t> words);

  // False, and nothing changes, when the grammar does not allow the token here.
  bool commit(TokenId id);
  void rollback(int count);  // takes back the last `count` committed tokens

  bool is_accepting();  // the text may end here
  bool is_stopped();    // nothing but an end can follow, or an end was committed

  GrammarMatcher fork() const;  // another row at the same place

 private:
  struct Row;
  explicit GrammarMatcher(std::unique_ptr<Row> row);

  std::unique_ptr<Row> row_;
};

}  // namespace mantou::text
