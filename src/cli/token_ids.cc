#include "cli/token_ids.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"

namespace mantou::cli {
namespace {

constexpr std::string_view kSpaces = " \t\r\n";
constexpr std::string_view kBetween = " \t\r\n,";

// What stands inside the brackets, when there are any.
std::string_view without_brackets(std::string_view input) {
  input.remove_prefix(std::min(input.find_first_not_of(kSpaces), input.size()));
  input = input.substr(0, input.find_last_not_of(kSpaces) + 1);
  if (!input.starts_with('[')) return input;
  if (!input.ends_with(']'))
    fail_param(ErrorCode::kInvalidArgument, "--ids", "--ids: the array does not end with \"]\"");
  return input.substr(1, input.size() - 2);
}

}  // namespace

std::vector<TokenId> parse_ids(std::string_view input, int vocab_size) {
  input = without_brackets(input);
  std::vector<TokenId> ids;
  while (true) {
    input.remove_prefix(std::min(input.find_first_not_of(kBetween), input.size()));
    if (input.empty()) return ids;
    const std::string_view word = input.substr(0, input.find_first_of(kBetween));
    TokenId id = -1;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), id);
    if (error != std::errc{} || end != word.data() + word.size() || id < 0 || id >= vocab_size)
      fail_param(ErrorCode::kInvalidArgument, "--ids", "--ids: \"{}\" is no token id of 0 to {}",
                 word, vocab_size - 1);
    ids.push_back(id);
    input.remove_prefix(word.size());
  }
}

}  // namespace mantou::cli
