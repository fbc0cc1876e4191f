#include "text/tokenizer.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "text/bridge_handle.h"
#include "text/grammar_vocabulary.h"

namespace mantou::text {
namespace {

// Texts that end a turn or a document in one family or another, recognised where a checkpoint that
// forgot to say so has them as added tokens.
constexpr std::array<std::string_view, 21> kEndTexts = {"<|im_end|>",
                                                        "<|eot_id|>",
                                                        "<|eom_id|>",
                                                        "<end_of_turn>",
                                                        "<|endoftext|>",
                                                        "<|end_of_text|>",
                                                        "<|end|>",
                                                        "<|return|>",
                                                        "<|call|>",
                                                        "<|flush|>",
                                                        "<|calls|>",
                                                        "<EOT>",
                                                        "_<EOT>",
                                                        "[EOT]",
                                                        "[EOS]",

                                                        "<eos>",
                                                        "<turn|>",
                                                        "<|tool_response>",
                                                        "<end_of_utterance>",
                                                        "<｜end▁of▁sentence｜>",
                                                        "[e~["};

// In the harmony format <|end|> only closes one of several messages of a turn.
constexpr std::string_view kHarmonyReturn = "<|return|>";
constexpr std::string_view kHarmonyMessageEnd = "<|end|>";

const std::string& origin_of(const TokenizerSource& source) {
  return source.tokenizer_origin.empty() ? source.origin : source.tokenizer_origin;
}

[[noreturn]] void fail_build(const TokenizerSource& source, ErrorCode code) {
  const std::string message = bridge_last_error();
  const std::string& origin = origin_of(source);
  fail_param(code, origin, "{}: {}", origin, message);
}

std::vector<BridgeSlice> to_slices(const std::vector<std::string>& texts) {
  std::vector<BridgeSlice> slices;
  slices.reserve(texts.size());
  for (const std::string& text : texts) slices.push_back(to_slice(text));
  return slices;
}

BridgeHandle<BridgeTokenizer> build_gguf(const TokenizerSource& source) {
  const GgufVocabulary& vocabulary = *source.gguf;
  const size_t count = vocabulary.tokens.size();
  const auto require = [&](const char* what, size_t size) {
    if (size != 0 && size != count)
      fail_param(ErrorCode::kCorruptData, source.origin,
                 "{}: tokenizer.ggml.{} has {} entries for {} tokens", source.origin, what, size,
                 count);
  };
  require("scores", vocabulary.scores.size());
  require("token_type", vocabulary.types.size());
  const std::vector<BridgeSlice> tokens = to_slices(vocabulary.tokens);
  const std::vector<BridgeSlice> merges = to_slices(vocabulary.merges);
  const BridgeGgufVocabulary tables = {
      .model = to_slice(vocabulary.model),
      .pre = to_slice(vocabulary.pre),
      .tokens = tokens.data(),
      .token_count = count,
      .scores = vocabulary.scores.empty() ? nullptr : vocabulary.scores.data(),
      .types = vocabulary.types.empty() ? nullptr : vocabulary.types.data(),
      .merges = merges.data(),
      .merge_count = merges.size(),
      .add_space_prefix = vocabulary.add_space_prefix,
  };
  BridgeHandle<BridgeTokenizer> handle(bridge_tokenizer_from_gguf(&tables));
  if (!handle) fail_build(source, ErrorCode::kUnsupported);
  return handle;
}

BridgeHandle<BridgeTokenizer> build_handle(const TokenizerSource& source) {
  if (source.gguf) return build_gguf(source);
  if (source.tokenizer_json.empty())
    fail_param(ErrorCode::kNotFound, source.origin,
               "{}: there is no tokenizer (tokenizer.json, or the vocabulary of a GGUF file)",
               source.origin);
  BridgeHandle<BridgeTokenizer> handle(bridge_tokenizer_from_json(to_slice(source.tokenizer_json)));
  if (!handle) fail_build(source, ErrorCode::kCorruptData);
  return handle;
}

class BridgedTokenizer final : public Tokenizer {
 public:
  explicit BridgedTokenizer(const TokenizerSource& source)
      : origin_(origin_of(source)),
        handle_(build_handle(source)),
        traits_(bridge_tokenizer_traits(handle_.get())) {
    bos_ = find_bos(source);
    read_frame(source);
    collect_end_ids(source);
  }

  std::vector<TokenId> encode(std::string_view text, const EncodeOptions& options) const override {
    static_assert(sizeof(ByteRange) == sizeof(BridgeRange));
    std::vector<BridgeRange> literal;
    literal.reserve(options.literal.size());
    for (const ByteRange& range : options.literal) literal.push_back({range.begin, range.end});
    BridgeIdsBuffer ids;
    if (!bridge_tokenizer_encode(handle_.get(), to_slice(text), options.parse_special,
                                 literal.data(), literal.size(), ids.out())) {
      const std::string message = bridge_last_error();
      fail(ErrorCode::kInvalidArgument, "{}: the text cannot be encoded: {}", origin_, message);
    }
    std::vector<TokenId> out;
    out.reserve(prefix_.size() + size_t(ids.end() - ids.begin()) + suffix_.size());
    if (options.add_special && !begins_with_prefix(ids.begin(), ids.end()))
      out.insert(out.end(), prefix_.begin(), prefix_.end());
    out.insert(out.end(), ids.begin(), ids.end());
    if (options.add_special && options.add_eos)
      out.insert(out.end(), suffix_.begin(), suffix_.end());
    return out;
  }

  std::string decode(std::span<const TokenId> ids, bool skip_special) const override {
    // Not owned by the detokenizer, which does not outlive this call.
    Detokenizer detokenizer(std::shared_ptr<const Tokenizer>(std::shared_ptr<void>(), this),
                            skip_special);
    std::string text;
    for (const TokenId id : ids) text += detokenizer.push(id);
    return text + detokenizer.flush();
  }

  int vocab_size() const override { return int(traits_.size); }
  TokenId id_of(std::string_view token) const override {
    return TokenId(bridge_tokenizer_id(handle_.get(), to_slice(token)));
  }
  std::string_view bytes_of(TokenId id) const override { return to_view(token(id).bytes); }
  std::string_view piece_of(TokenId id) const override { return to_view(token(id).piece); }
  bool is_special(TokenId id) const override { return token(id).special; }
  TokenId bos() const override { return bos_; }
  bool drops_leading_space() const override { return traits_.drops_leading_space; }
  const std::vector<TokenId>& end_ids() const override { return end_ids_; }

 private:
  BridgeToken token(TokenId id) const {
    return bridge_tokenizer_token(handle_.get(), uint32_t(id));
  }
  bool exists(int64_t id) const { return id >= 0 && size_t(id) < traits_.size; }

  bool begins_with_prefix(const uint32_t* begin, const uint32_t* end) const {
    return size_t(end - begin) >= prefix_.size() &&
           std::equal(prefix_.begin(), prefix_.end(), begin,
                      [](TokenId a, uint32_t b) { return uint32_t(a) == b; });
  }

  TokenId find_bos(const TokenizerSource& source) const {
    if (exists(source.bos_id)) return TokenId(source.bos_id);
    return source.bos_token.empty() ? -1 : id_of(source.bos_token);
  }

  TokenId find_eos(const TokenizerSource& source) const {
    if (exists(source.eos_id)) return TokenId(source.eos_id);
    return source.eos_token.empty() ? -1 : id_of(source.eos_token);
  }

  // What goes around a text: what the tokenizer does by itself, but for BOS and EOS the
  // checkpoint's word counts where it has one.
  void read_frame(const TokenizerSource& source) {
    BridgeIdsBuffer prefix, suffix;
    if (!bridge_tokenizer_frame(handle_.get(), prefix.out(), suffix.out()))
      fail_build(source, ErrorCode::kCorruptData);
    for (const BridgeIdsBuffer* ids : {&prefix, &suffix})
      for (const auto id : *ids)
        if (!exists(int64_t{id}))
          fail_param(ErrorCode::kCorruptData, source.origin,
                     "{}: the post_processor adds token {}, which the vocabulary does not have",
                     source.origin, id);
    prefix_.assign(prefix.begin(), prefix.end());
    suffix_.assign(suffix.begin(), suffix.end());
    std::optional<bool> add_bos = source.add_bos;
    if (!add_bos && traits_.adds_bos) add_bos = true;
    settle(prefix_, prefix_.begin(), bos_, add_bos);
    settle(suffix_, suffix_.end(), find_eos(source), source.add_eos);
  }

  static void settle(std::vector<TokenId>& frame, std::vector<TokenId>::iterator where, TokenId id,
                     std::optional<bool> wanted) {
    if (id < 0 || !wanted) return;
    const auto found = std::find(frame.begin(), frame.end(), id);
    if (*wanted && found == frame.end()) frame.insert(where, id);
    if (!*wanted && found != frame.end()) frame.erase(found);
  }

  void collect_end_ids(const TokenizerSource& source) {
    const auto add = [&](int64_t id) {
      if (exists(id) && std::find(end_ids_.begin(), end_ids_.end(), id) == end_ids_.end())
        end_ids_.push_back(TokenId(id));
    };
    add(find_eos(source));
    for (const int32_t id : source.end_ids) add(id);
    if (!source.ends_by_text) return;
    const bool harmony = id_of(kHarmonyReturn) >= 0;
    for (const std::string_view text : kEndTexts) {
      const TokenId id = id_of(text);
      if (id < 0 || !token(id).added || (harmony && text == kHarmonyMessageEnd)) continue;
      add(id);
    }
  }

  const std::string origin_;
  BridgeHandle<BridgeTokenizer> handle_;
  BridgeTokenizerTraits traits_;
  TokenId bos_ = -1;
  std::vector<TokenId> prefix_, suffix_;
  std::vector<TokenId> end_ids_;
};

}  // namespace

const GrammarVocabulary& Tokenizer::grammar_vocabulary() const {
  std::call_once(grammar_vocabulary_once_, [this] {
    grammar_vocabulary_ = std::make_shared<const GrammarVocabulary>(*this);
  });
  return *grammar_vocabulary_;
}

std::shared_ptr<const Tokenizer> Tokenizer::build(const TokenizerSource& source) {
  return std::make_shared<BridgedTokenizer>(source);
}

}  // namespace mantou::text
