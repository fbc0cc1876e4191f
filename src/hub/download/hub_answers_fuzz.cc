// Any bytes as the hub's answers: either an Error, or values that are safe to use as paths, names
// and sizes.
#include <cstdlib>
#include <string>

#include "base/error.h"
#include "hub/download/answers.h"
#include "hub/download/choice.h"

namespace {

void require(bool holds) {
  if (!holds) std::abort();
}

void read_listing(std::string_view text) {
  using namespace mantou::hub;
  const RepoListing listing = parse_listing("org/name", text);
  for (const RepoFile& file : listing.files) {
    require(is_safe_path(file.path) && (file.hash.empty() || is_hash(file.hash)));
    require(file.path.front() != '/' && file.path.find("/../") == std::string::npos);
  }
  for (const char* part : {"", "Q4_K_M", "model.gguf"}) {
    try {
      require(!choose_files(listing, part).empty());
    } catch (const mantou::Error&) {
    }
  }
}

// Lines "name: value" as the headers of an answer.
void read_headers(std::string_view text) {
  using namespace mantou::hub;
  HttpAnswer answer;
  answer.status = text.size() % 2 == 0 ? 200 : 302;
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const size_t colon = line.find(": ");
    if (colon != std::string_view::npos)
      answer.headers[std::string(line.substr(0, colon))] = line.substr(colon + 2);
  }
  for (const auto& [name, value] : answer.headers) {
    parse_retry_after(value, std::chrono::system_clock::from_time_t(0));
    if (const auto range = parse_content_range(value))
      require(range->first < range->total.value_or(-1));
    if (const auto wish = parse_wish(value)) require(is_repo_id(wish->repo));
  }
  const RepoFile file = described_file("org/name", std::string(40, 'a'), {"f", {}, {}}, answer);
  require(is_hash(file.hash) && file.size.has_value());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  try {
    data[0] == 'h' ? read_headers(text) : read_listing(text);
  } catch (const mantou::Error&) {
  }
  return 0;
}
