#include <cstdio>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "cli/find_model.h"
#include "cli/token_ids.h"
#include "cli/verbs/verbs.h"
#include "hub/model_artifact.h"
#include "text/tokenizer.h"

namespace mantou::cli {
namespace {

using nlohmann::json;

std::string read_input(const std::string& words) {
  if (!words.empty()) return words;
  return {std::istreambuf_iterator<char>(std::cin), {}};
}

void print_text(const text::Tokenizer& tokenizer, const std::string& input, bool as_json) {
  const auto ids = parse_ids(input, tokenizer.vocab_size());
  const std::string text = tokenizer.decode(ids, /*skip_special=*/false);
  fmt::print("{}\n", as_json ? to_text(json{{"text", text}}) : text);
}

void print_ids(const text::Tokenizer& tokenizer, const std::string& input,
               const TokenizeOptions& options, bool as_json) {
  const auto ids = tokenizer.encode(
      input, {.add_special = !options.no_bos, .parse_special = options.parse_special});
  if (!as_json) {
    for (const auto id : ids) fmt::print("{:>8}  {}\n", id, tokenizer.piece_of(id));
    return;
  }
  json pieces = json::array();
  for (const auto id : ids) pieces.push_back(tokenizer.piece_of(id));
  fmt::print("{}\n", to_text(json{{"ids", ids}, {"tokens", pieces}}));
}

}  // namespace

int run_tokenize(const Options& options) {
  if (options.tokenize.ids && (options.tokenize.no_bos || options.tokenize.parse_special))
    fail_param(
        ErrorCode::kInvalidArgument, "--ids",
        "--ids turns ids into text; --no-bos and --parse-special are for the other way, leave "
        "them out");
  const auto artifact = hub::ModelArtifact::open(find_model(options.model));
  const auto tokenizer = text::Tokenizer::build(artifact->tokenizer());
  const std::string input = read_input(options.tokenize.text);
  if (options.tokenize.ids)
    print_text(*tokenizer, input, options.json);
  else
    print_ids(*tokenizer, input, options.tokenize, options.json);
  return 0;
}

}  // namespace mantou::cli
