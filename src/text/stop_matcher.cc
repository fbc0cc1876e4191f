#include "text/stop_matcher.h"

#include <algorithm>

#include "base/error.h"

namespace mantou::text {
namespace {

struct Match {
  size_t at = std::string_view::npos;
  std::string_view sequence = {};
};

// The first of `sequences` in `text`. Of several that begin at one place the shortest is complete
// first, whatever the cuts.
Match first_match(std::string_view text, const std::vector<std::string>& sequences) {
  Match first;
  for (const std::string& sequence : sequences) {
    const size_t at = text.find(sequence);
    if (at == std::string_view::npos || at > first.at) continue;
    if (at < first.at || sequence.size() < first.sequence.size()) first = {at, sequence};
  }
  return first;
}

// Where the longest suffix of `text` begins that starts a sequence without completing it.
size_t first_beginning(std::string_view text, const std::vector<std::string>& sequences) {
  size_t longest = 0;
  for (const std::string& sequence : sequences)
    longest = std::max(longest, std::min(sequence.size() - 1, text.size()));
  for (size_t at = text.size() - longest; at < text.size(); ++at) {
    const std::string_view suffix = text.substr(at);
    for (const std::string& sequence : sequences)
      if (suffix.size() < sequence.size() && sequence.starts_with(suffix)) return at;
  }
  return text.size();
}

}  // namespace

StopMatcher::StopMatcher(std::vector<std::string> sequences) : sequences_(std::move(sequences)) {
  for (const std::string& sequence : sequences_)
    if (sequence.empty())
      fail_param(ErrorCode::kInvalidArgument, "stop", "stop: a stop sequence must not be empty");
}

// A match stands once no sequence that begins before it can still be completed; until then both are
// held. So what is emitted does not depend on how the text was cut.
std::string StopMatcher::push(std::string_view text) {
  if (matched()) return {};
  if (sequences_.empty()) return std::string(text);
  held_ += text;
  const Match match = first_match(held_, sequences_);
  const size_t beginning = first_beginning(held_, sequences_);
  if (match.at <= beginning) match_ = match.sequence;
  std::string out = held_.substr(0, std::min(match.at, beginning));
  held_.erase(0, out.size());
  if (matched()) held_.clear();
  return out;
}

std::string StopMatcher::flush() {
  const Match match = first_match(held_, sequences_);
  if (!matched()) match_ = match.sequence;
  std::string out = held_.substr(0, match.at);
  held_.clear();
  return out;
}

TextStream::TextStream(std::shared_ptr<const Tokenizer> tokenizer, std::vector<std::string> stops,
                       std::vector<TokenId> shown)
    : detokenizer_(std::move(tokenizer), true, std::move(shown)), matcher_(std::move(stops)) {}

std::string TextStream::push(TokenId id) { return matcher_.push(detokenizer_.push(id)); }

std::string TextStream::finish() {
  std::string out = matcher_.push(detokenizer_.flush());
  return out + matcher_.flush();
}

}  // namespace mantou::text
