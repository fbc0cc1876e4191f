#include "text/grammar.h"

#include <fmt/format.h>

#include <iterator>
#include <utility>

#include "base/error.h"
#include "text/bridge_handle.h"
#include "text/gbnf.h"
#include "text/grammar_vocabulary.h"

namespace mantou::text {
namespace {

[[noreturn]] void fail_with(ErrorCode code) {
  const std::string message = bridge_last_error();
  fail_param(code, "grammar", "grammar: {}", message);
}

ErrorCode code_of(BridgeCompileStatus status) {
  switch (status) {
    case BRIDGE_COMPILE_TOO_SLOW:
      return ErrorCode::kUnsupported;
    case BRIDGE_COMPILE_UNAVAILABLE:
      return ErrorCode::kUnavailable;
    default:
      return ErrorCode::kInvalidArgument;
  }
}

// A regular expression for exactly these texts.
std::string any_of(const std::vector<std::string>& choices) {
  if (choices.empty())
    fail_param(ErrorCode::kInvalidArgument, "grammar", "grammar: there is nothing to choose from");
  std::string regex;
  for (const std::string& choice : choices) {
    regex += regex.empty() ? "(?:" : "|";
    for (const char c : choice) {
      // Beyond ASCII and for letters and digits, the byte itself.
      const bool plain =
          c < 0 || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
      if (plain) {
        regex += c;
      } else {
        fmt::format_to(std::back_inserter(regex), "\\x{:02x}", uint8_t(c));
      }
    }
  }
  return regex + ")";
}

struct BridgeSource {
  BridgeGrammarKind kind;
  std::string text;
};

BridgeSource to_bridge(const Tokenizer& tokenizer, const GrammarSource& source) {
  switch (source.kind) {
    case GrammarKind::kJsonSchema:
      return {BRIDGE_GRAMMAR_JSON_SCHEMA, source.text};
    case GrammarKind::kJsonObject:
      return {BRIDGE_GRAMMAR_JSON_SCHEMA, R"({"type":"object"})"};
    case GrammarKind::kRegex:
      return {BRIDGE_GRAMMAR_REGEX, source.text};
    case GrammarKind::kChoice:
      return {BRIDGE_GRAMMAR_REGEX, any_of(source.choices)};
    case GrammarKind::kLark:
      return {BRIDGE_GRAMMAR_LARK, source.text};
    case GrammarKind::kGbnf:
      break;
  }
  const GbnfTokens tokens = {
      .id_of = [&](std::string_view text) { return tokenizer.id_of(text); },
      .end_ids = tokenizer.end_ids(),
  };
  return {BRIDGE_GRAMMAR_LARK, gbnf_to_lark(source.text, tokens)};
}

}  // namespace

GrammarVocabulary::GrammarVocabulary(const Tokenizer& tokenizer) {
  std::vector<BridgeToken> tokens;
  tokens.reserve(size_t(tokenizer.vocab_size()));
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id)
    tokens.push_back({.piece = to_slice(tokenizer.piece_of(id)),
                      .bytes = to_slice(tokenizer.bytes_of(id)),
                      .added = false,  // of no interest here
                      .special = tokenizer.is_special(id)});
  const std::vector<uint32_t> ends(tokenizer.end_ids().begin(), tokenizer.end_ids().end());
  handle_.reset(bridge_vocabulary_new(tokens.data(), tokens.size(), ends.data(), ends.size()));
  if (!handle_) fail_with(ErrorCode::kInternal);
}

struct Grammar::Compiled {
  BridgeHandle<BridgeGrammar> handle;
};

Grammar::Grammar(GrammarSource source, std::unique_ptr<const Compiled> compiled)
    : source_(std::move(source)), compiled_(std::move(compiled)) {}
Grammar::~Grammar() = default;

std::shared_ptr<const Grammar> Grammar::compile(const Tokenizer& tokenizer, GrammarSource source) {
  const BridgeSource text = to_bridge(tokenizer, source);
  const GrammarVocabulary& vocabulary = tokenizer.grammar_vocabulary();
  BridgeGrammar* grammar = nullptr;
  const BridgeCompileStatus status =
      bridge_grammar_compile(vocabulary.handle(), text.kind, to_slice(text.text), &grammar);
  if (status != BRIDGE_COMPILE_OK) fail_with(code_of(status));
  auto compiled = std::make_unique<Compiled>();
  compiled->handle.reset(grammar);
  return std::shared_ptr<const Grammar>(new Grammar(std::move(source), std::move(compiled)));
}

size_t Grammar::bytes() const { return bridge_grammar_bytes(compiled_->handle.get()); }

struct GrammarMatcher::Row {
  BridgeHandle<BridgeRow> handle;

  static std::unique_ptr<Row> make(BridgeRow* raw) {
    if (raw == nullptr) fail_with(ErrorCode::kInternal);
    return std::make_unique<Row>(Row{BridgeHandle<BridgeRow>(raw)});
  }
};

GrammarMatcher::GrammarMatcher(std::unique_ptr<Row> row) : row_(std::move(row)) {}
GrammarMatcher::GrammarMatcher(const Grammar& grammar)
    : row_(Row::make(bridge_row_new(grammar.compiled_->handle.get()))) {}
GrammarMatcher::GrammarMatcher(GrammarMatcher&&) noexcept = default;
GrammarMatcher& GrammarMatcher::operator=(GrammarMatcher&&) noexcept = default;
GrammarMatcher::~GrammarMatcher() = default;

void GrammarMatcher::mask(std::span<uint32_t> words) {
  if (!bridge_row_mask(row_->handle.get(), words.data(), words.size()))
    fail_with(ErrorCode::kInvalidArgument);
}

bool GrammarMatcher::commit(TokenId id) {
  const int taken = bridge_row_commit(row_->handle.get(), uint32_t(id));
  if (taken < 0) fail_with(ErrorCode::kInvalidArgument);
  return taken == 1;
}

void GrammarMatcher::rollback(int count) {
  if (count < 0 || !bridge_row_rollback(row_->handle.get(), size_t(count)))
    fail(ErrorCode::kInternal, "grammar: {} tokens cannot be taken back", count);
}

bool GrammarMatcher::is_accepting() {
  BridgeRowState state{};
  if (!bridge_row_state(row_->handle.get(), &state)) fail_with(ErrorCode::kInvalidArgument);
  return state.accepting;
}

bool GrammarMatcher::is_stopped() {
  BridgeRowState state{};
  if (!bridge_row_state(row_->handle.get(), &state)) fail_with(ErrorCode::kInvalidArgument);
  return state.stopped;
}

GrammarMatcher GrammarMatcher::fork() const {
  return GrammarMatcher(Row::make(bridge_row_fork(row_->handle.get())));
}

}  // namespace mantou::text
