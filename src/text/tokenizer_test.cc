#include "text/tokenizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "text/text_goldens.h"

namespace mantou::text {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::ElementsAreArray;
using testing::HasSubstr;

TokenizerSource json_source(const char* text) {
  TokenizerSource source;
  source.origin = "tokenizer.json";
  source.tokenizer_json = text;
  return source;
}

std::vector<TokenId> encode(const Tokenizer& tokenizer, std::string_view text,
                            Tokenizer::EncodeOptions options = {.add_special = false}) {
  return tokenizer.encode(text, options);
}

// The byte-level tokenizer.json as the tables of a GGUF file.
TokenizerSource byte_level_gguf() {
  const json content = json::parse(kByteLevelJson);
  TokenizerSource source;
  source.origin = "small.gguf";
  GgufVocabulary& vocabulary = source.gguf.emplace();
  vocabulary.model = "gpt2";
  vocabulary.pre = "qwen2";
  const auto place = [&](const std::string& token, size_t id, int type) {
    if (vocabulary.tokens.size() <= id) {
      vocabulary.tokens.resize(id + 1);
      vocabulary.types.resize(id + 1);
    }
    vocabulary.tokens[id] = token;
    vocabulary.types[id] = type;
  };
  for (const auto& [token, id] : content["model"]["vocab"].items()) place(token, id, 1);
  for (const auto& added : content["added_tokens"])
    place(added["content"], added["id"], added["special"] ? 3 : 4);
  for (const auto& merge : content["model"]["merges"])
    vocabulary.merges.push_back(merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  return source;
}

// The SentencePiece tokenizer.json the same way: a piece's score is how early its merge comes.
TokenizerSource pieces_gguf() {
  const json content = json::parse(kPrependJson);
  TokenizerSource source;
  source.origin = "pieces.gguf";
  GgufVocabulary& vocabulary = source.gguf.emplace();
  vocabulary.model = "llama";
  const auto& vocab = content["model"]["vocab"];
  vocabulary.tokens.resize(vocab.size());
  vocabulary.types.assign(vocab.size(), 1);
  vocabulary.scores.assign(vocab.size(), -1e6f);
  for (const auto& [token, id] : vocab.items()) {
    vocabulary.tokens[id] = token;
    if (token.starts_with("<0x")) vocabulary.types[id] = 6;
  }
  for (const auto& added : content["added_tokens"])
    vocabulary.types[added["id"]] = added["content"] == "<unk>" ? 2 : 3;
  float score = 0;
  for (const auto& merge : content["model"]["merges"]) {
    const std::string piece = merge[0].get<std::string>() + merge[1].get<std::string>();
    float& known = vocabulary.scores[vocab[piece]];
    known = std::max(known, score--);
  }
  source.bos_id = 1;
  source.eos_id = 2;
  return source;
}

// The same by merges. Vocabularies of this kind put nothing before the text.
TokenizerSource merged_pieces_gguf() {
  TokenizerSource source = pieces_gguf();
  const json content = json::parse(kPrependJson);
  source.gguf->model = "gemma4";
  source.gguf->scores.clear();
  for (const auto& merge : content["model"]["merges"])
    source.gguf->merges.push_back(merge[0].get<std::string>() + " " + merge[1].get<std::string>());
  return source;
}

void expect_goldens(const Tokenizer& tokenizer, const std::vector<EncodeGolden>& goldens) {
  for (const EncodeGolden& golden : goldens) {
    SCOPED_TRACE(golden.text);
    EXPECT_THAT(encode(tokenizer, golden.text), ElementsAreArray(golden.ids));
    EXPECT_THAT(encode(tokenizer, golden.text, {.add_special = false, .parse_special = false}),
                ElementsAreArray(golden.plain_ids));
    EXPECT_EQ(tokenizer.decode(golden.ids, /*skip_special=*/true), golden.decoded);
  }
}

// Special tokens stand as text in a range of their own, one after the other, and keep their meaning
// elsewhere: what the first tokens of the text are must not depend on that.
TEST(TokenizerTest, JsonAgreesWithTheTokenizersPackage) {
  expect_goldens(*Tokenizer::build(json_source(kByteLevelJson)), kByteLevelGoldens);
  expect_goldens(*Tokenizer::build(json_source(kPrependJson)), kPrependGoldens);
  expect_goldens(*Tokenizer::build(json_source(kMetaspaceJson)), kMetaspaceGoldens);
}

TEST(TokenizerTest, FramesOfUnknownTokensAreRefused) {
  std::string text = kPrependJson;
  text.replace(text.find("\"ids\":[1]"), 9, "\"ids\":[4000000000]");
  try {
    Tokenizer::build(json_source(text.c_str()));
    ADD_FAILURE() << "the tokenizer was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCorruptData);
    EXPECT_THAT(error.message(), ::testing::HasSubstr("adds token 4000000000"));
  }
}

// A literal range that touches no special token sends the text through the stepwise pipeline.
TEST(TokenizerTest, StepwisePipelineAgreesToo) {
  const std::pair<const char*, const std::vector<EncodeGolden>&> cases[] = {
      {kByteLevelJson, kByteLevelGoldens},
      {kPrependJson, kPrependGoldens},
      {kMetaspaceJson, kMetaspaceGoldens}};
  for (const auto& [text, goldens] : cases) {
    const auto tokenizer = Tokenizer::build(json_source(text));
    for (const EncodeGolden& golden : goldens) {
      SCOPED_TRACE(golden.text);
      const ByteRange behind[] = {{golden.text.size() + 1, golden.text.size() + 2}};
      EXPECT_THAT(encode(*tokenizer, golden.text, {.add_special = false, .literal = behind}),
                  ElementsAreArray(golden.ids));
      const ByteRange all[] = {{0, golden.text.size()}};
      EXPECT_THAT(encode(*tokenizer, golden.text, {.add_special = false, .literal = all}),
                  ElementsAreArray(golden.plain_ids));
    }
  }
}

TEST(TokenizerTest, GgufAgreesWithItsJson) {
  const auto bytes = Tokenizer::build(byte_level_gguf());
  const auto pieces = Tokenizer::build(pieces_gguf());
  const auto plain = [](const EncodeGolden& golden) {
    // GGUF files do not say that a token takes spaces with it or stands alone.
    return golden.text.find("[GAP]") == std::string::npos &&
           golden.text.find("word") == std::string::npos;
  };
  std::vector<EncodeGolden> goldens;
  std::copy_if(kByteLevelGoldens.begin(), kByteLevelGoldens.end(), std::back_inserter(goldens),
               plain);
  EXPECT_GT(goldens.size(), 15u);
  expect_goldens(*bytes, goldens);
  for (const EncodeGolden& golden : kPrependGoldens) {
    if (golden.text.empty()) continue;
    SCOPED_TRACE(golden.text);
    EXPECT_THAT(encode(*pieces, golden.text), ElementsAreArray(golden.ids));
    EXPECT_EQ(pieces->decode(golden.ids, true), golden.decoded);
  }
}

TEST(TokenizerTest, GgufPiecesByMergesAgreeToo) {
  const auto pieces = Tokenizer::build(merged_pieces_gguf());
  for (const EncodeGolden& golden : kPrependGoldens) {
    if (golden.text.empty()) continue;
    SCOPED_TRACE(golden.text);
    EXPECT_THAT(encode(*pieces, " " + golden.text, {.add_special = false, .parse_special = false}),
                ElementsAreArray(golden.plain_ids));
    EXPECT_EQ(pieces->decode(golden.plain_ids, true), " " + golden.text);
  }
  EXPECT_EQ(pieces->id_of("<0x41>"), pieces->id_of("<0x40>") + 1);
}

TEST(TokenizerTest, LiteralRangesHoldSpecialTokensBack) {
  for (const TokenizerSource& source : {json_source(kByteLevelJson), byte_level_gguf()}) {
    const auto tokenizer = Tokenizer::build(source);
    const std::string start = "<|im_start|>", end = "<|im_end|>";
    const TokenId start_id = tokenizer->id_of(start), end_id = tokenizer->id_of(end);
    const std::string text = fmt::format("{0}{1}<tool_call>{1}", start, end);
    const ByteRange literal[] = {{start.size(), start.size() + end.size()}};
    std::vector<TokenId> expected = {start_id};
    const auto spelled = encode(*tokenizer, end, {.add_special = false, .parse_special = false});
    EXPECT_GT(spelled.size(), 1u);
    expected.insert(expected.end(), spelled.begin(), spelled.end());
    expected.push_back(tokenizer->id_of("<tool_call>"));
    expected.push_back(end_id);
    EXPECT_EQ(encode(*tokenizer, text, {.add_special = false, .literal = literal}), expected);
  }
}

TEST(TokenizerTest, BosAndEosAsTheCheckpointSays) {
  TokenizerSource source = json_source(kPrependJson);  // its post-processor puts <s> in front
  source.bos_token = "<s>";
  source.eos_token = "</s>";
  const auto frame = [&](std::optional<bool> bos, std::optional<bool> eos) {
    source.add_bos = bos;
    source.add_eos = eos;
    const auto tokenizer = Tokenizer::build(source);
    auto ids = tokenizer->encode("a", {});
    return std::pair(ids.front() == 1, ids.back() == 2);
  };
  EXPECT_EQ(frame({}, {}), std::pair(true, false));
  EXPECT_EQ(frame(false, {}), std::pair(false, false));
  EXPECT_EQ(frame(true, true), std::pair(true, true));

  const auto tokenizer = Tokenizer::build(source);
  EXPECT_EQ(tokenizer->bos(), 1);
  EXPECT_EQ(tokenizer->encode("<s>a", {.add_eos = false}),
            tokenizer->encode("a", {.add_eos = false}))
      << "a second BOS";
  EXPECT_EQ(tokenizer->encode("", {}), (std::vector<TokenId>{1, 2}));
}

TEST(TokenizerTest, GgufPiecesStartWithBosByDefault) {
  TokenizerSource source = pieces_gguf();
  EXPECT_EQ(Tokenizer::build(source)->encode("a", {}).front(), 1);
  source.add_bos = false;
  EXPECT_NE(Tokenizer::build(source)->encode("a", {}).front(), 1);
}

TEST(TokenizerTest, EndIdsAreCollectedFromEverywhere) {
  TokenizerSource source = json_source(kByteLevelJson);
  source.end_ids = {7, 7, 100000};
  const auto tokenizer = Tokenizer::build(source);
  EXPECT_THAT(tokenizer->end_ids(),
              ElementsAre(7, tokenizer->id_of("<|im_end|>"), tokenizer->id_of("<|endoftext|>")));
  source.ends_by_text = false;
  EXPECT_THAT(Tokenizer::build(source)->end_ids(), ElementsAre(7));
}

TEST(TokenizerTest, TokensAreDescribed) {
  for (const TokenizerSource& source : {json_source(kByteLevelJson), byte_level_gguf()}) {
    const auto tokenizer = Tokenizer::build(source);
    const TokenId space = tokenizer->id_of("Ġ");
    EXPECT_EQ(tokenizer->bytes_of(space), " ");
    EXPECT_EQ(tokenizer->piece_of(space), "Ġ");
    EXPECT_FALSE(tokenizer->is_special(space));
    const TokenId start = tokenizer->id_of("<|im_start|>");
    EXPECT_TRUE(tokenizer->is_special(start));
    EXPECT_EQ(tokenizer->piece_of(start), "<|im_start|>");
    EXPECT_FALSE(tokenizer->is_special(tokenizer->id_of("<tool_call>")));
    EXPECT_EQ(tokenizer->id_of("no such token"), -1);
    EXPECT_EQ(tokenizer->id_of(" "), -1) << "a byte is no vocabulary text";
    EXPECT_EQ(tokenizer->bytes_of(-1), "");
    EXPECT_EQ(tokenizer->bytes_of(tokenizer->vocab_size()), "");
  }
}

TEST(TokenizerTest, AnyBytesAreText) {
  for (const TokenizerSource& source :
       {json_source(kByteLevelJson), byte_level_gguf(), pieces_gguf()}) {
    const auto tokenizer = Tokenizer::build(source);
    std::string all, replaced;
    for (int byte = 0; byte < 256; ++byte) {
      all += char(byte);
      replaced += byte < 128 ? std::string(1, char(byte)) : "\xEF\xBF\xBD";
    }
    EXPECT_EQ(encode(*tokenizer, all), encode(*tokenizer, replaced));
    EXPECT_EQ(tokenizer->decode(encode(*tokenizer, all), false), replaced);
  }
}

TEST(DetokenizerTest, NeverHalfACharacter) {
  const auto tokenizer = Tokenizer::build(pieces_gguf());
  const auto byte = [&](int value) { return tokenizer->id_of(fmt::format("<0x{:02X}>", value)); };
  Detokenizer stream(tokenizer);
  EXPECT_EQ(stream.push(byte(0xF0)), "");
  EXPECT_EQ(stream.push(byte(0x9F)), "");
  EXPECT_EQ(stream.push(byte(0x98)), "");
  EXPECT_EQ(stream.push(byte(0x80)), "😀");
  EXPECT_EQ(stream.push(byte(0xE2)), "");
  EXPECT_EQ(stream.push(byte(0x82)), "");
  EXPECT_EQ(stream.push(byte('x')), "\xEF\xBF\xBDx");  // one U+FFFD for the two
  EXPECT_EQ(stream.push(byte(0xFF)), "\xEF\xBF\xBD");
  EXPECT_EQ(stream.push(byte(0xC3)), "");
  EXPECT_EQ(stream.flush(), "\xEF\xBF\xBD");
  EXPECT_EQ(stream.flush(), "");
}

TEST(DetokenizerTest, TheFirstSpaceIsDroppedOnce) {
  const auto tokenizer = Tokenizer::build(pieces_gguf());
  Detokenizer stream(tokenizer);
  std::string text;
  for (const TokenId id : encode(*tokenizer, "  The  engine ")) text += stream.push(id);
  EXPECT_EQ(text, "  The  engine ");
}

std::string build_error(const TokenizerSource& source) {
  try {
    Tokenizer::build(source);
  } catch (const Error& error) {
    EXPECT_EQ(error.param(),
              source.tokenizer_origin.empty() ? source.origin : source.tokenizer_origin);
    return error.message();
  }
  return "";
}

TEST(TokenizerTest, ErrorsNameTheFileAndTheTrouble) {
  TokenizerSource source = byte_level_gguf();
  source.gguf->pre = "nonsense";
  EXPECT_THAT(build_error(source),
              testing::AllOf(HasSubstr("small.gguf"), HasSubstr("\"nonsense\""),
                             HasSubstr("smollm"), HasSubstr("llama-bpe")));
  source = byte_level_gguf();
  source.gguf->model = "t5";
  EXPECT_THAT(build_error(source), HasSubstr("\"t5\""));
  source = byte_level_gguf();
  source.gguf->merges.push_back("nowhere tofind");
  EXPECT_THAT(build_error(source), HasSubstr("nowhere tofind"));
  source = byte_level_gguf();
  source.gguf->types.pop_back();
  EXPECT_THAT(build_error(source), HasSubstr("token_type"));
  source = byte_level_gguf();
  source.gguf->tokens[5] = "\xFF";
  EXPECT_THAT(build_error(source), HasSubstr("tokens[5]"));
  source = pieces_gguf();
  source.gguf->scores.clear();
  EXPECT_THAT(build_error(source), HasSubstr("scores"));
  source = merged_pieces_gguf();
  source.gguf->merges.clear();
  EXPECT_THAT(build_error(source), HasSubstr("tokenizer.ggml.merges is missing"));
  source = merged_pieces_gguf();
  source.gguf->merges.push_back("nowhere tofind");
  EXPECT_THAT(build_error(source), HasSubstr("nowhere tofind"));
  EXPECT_THAT(build_error(json_source("{")), HasSubstr("tokenizer.json"));
  EXPECT_THAT(build_error(json_source("")), HasSubstr("no tokenizer"));
  source = json_source("{");
  source.origin = "models/small";
  source.tokenizer_origin = "models/small/tokenizer.json";
  EXPECT_THAT(build_error(source), testing::StartsWith("models/small/tokenizer.json: "));
}

TEST(TokenizerTest, HugeIdsAreRefused) {
  json content = json::parse(kByteLevelJson);
  content["added_tokens"].push_back({{"id", 4000000000u},
                                     {"content", "<far>"},
                                     {"special", true},
                                     {"single_word", false},
                                     {"lstrip", false},
                                     {"rstrip", false},
                                     {"normalized", false}});
  content["model"]["vocab"]["<far>"] = 4000000000u;
  EXPECT_THAT(build_error(json_source(content.dump().c_str())), HasSubstr("4000000000"));
}

}  // namespace
}  // namespace mantou::text
