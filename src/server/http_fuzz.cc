// Bytes from a stranger through the request reader with small limits. The same bytes are fed whole
// and in pieces: both must come to the same request or refusal.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "server/http_server.h"

namespace {

using mantou::server::HttpLimits;
using mantou::server::HttpRequest;
using mantou::server::RequestReader;

struct Result {
  RequestReader::State state = RequestReader::State::kMore;
  int problem = 0;
  HttpRequest request;
};

void check(bool condition) {
  if (!condition) std::abort();
}

HttpLimits limits() {
  HttpLimits limits;
  limits.target_bytes = 512;
  limits.header_bytes = 2048;
  limits.header_fields = 16;
  limits.body_bytes = 4096;
  return limits;
}

Result read(std::string_view bytes, size_t step) {
  Result result;
  RequestReader reader(limits());
  std::string held;
  for (size_t i = 0; i < bytes.size(); i += step) {
    held += bytes.substr(i, step);
    for (size_t used = 1; used > 0 && !held.empty();) {
      result.state = reader.feed(held, used);
      check(used <= held.size());
      held.erase(0, used);
      if (result.state == RequestReader::State::kProblem) {
        result.problem = reader.problem().status;
        return result;
      }
      if (result.state == RequestReader::State::kDone) {
        result.request = reader.take();
        return result;
      }
    }
  }
  return result;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const Result whole = read(bytes, size == 0 ? 1 : size);
  const Result pieces = read(bytes, 1 + size % 7);
  const bool ended = whole.state == RequestReader::State::kDone;
  check(ended == (pieces.state == RequestReader::State::kDone));
  if (!ended) return 0;
  const HttpRequest& request = whole.request;
  check(request.body.size() <= limits().body_bytes);
  check(request.path.find('\0') == std::string::npos);
  check(!request.method.empty());
  check(request.body == pieces.request.body && request.path == pieces.request.path &&
        request.headers == pieces.request.headers);
  return 0;
}
