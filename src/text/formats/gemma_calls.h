// Gemma's calls: <|tool_call>call:NAME{key:<|"|>text<|"|>,n:3,o:{k:[true]}}<tool_call|> (Gemma 4)
// and the same between <start_function_call> and <end_function_call> with <escape> around texts
// (FunctionGemma). Keys are bare, texts stand between the quotes without escapes and stream;
// strings in JSON's own quotes are taken, too, and bare values that are no JSON become strings.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "text/formats/call_parser.h"
#include "text/formats/json_stream.h"
#include "text/formats/markup.h"

namespace mantou::text {

class GemmaCalls final : public CallParser {
 public:
  explicit GemmaCalls(CallSink& sink) : sink_(sink) {}

  void open(size_t opener) override;
  Step feed(char c) override;
  std::string_view tail() const override { return expected_.read(); }
  bool finish() override { return state_ == State::kAfter; }

  static std::unique_ptr<CallParser> make(CallSink& sink);

 private:
  enum class State { kCall, kName, kArguments, kAfter };
  enum class Place { kKey, kColon, kValue, kComma };      // what comes next
  enum class Token { kNone, kText, kJsonString, kBare };  // what is being read

  void begin();
  Step arguments_byte(char c);
  Step structure_byte(char c);
  Step start_token(char c);
  void text_byte(char c);
  Step open_bracket(char c);
  Step close_bracket(char c);
  void token_done();
  void put(std::string_view json);

  CallSink& sink_;
  State state_ = State::kCall;
  std::string_view quote_, close_;
  std::string name_;
  Expected expected_;

  std::string open_;  // the open brackets
  Place place_ = Place::kKey;
  Token token_ = Token::kNone;
  bool comma_ = false;  // one was read and is written before what follows it
  MarkerSearch search_;
  JsonScanner scanner_;
  std::string bare_;
};

}  // namespace mantou::text
