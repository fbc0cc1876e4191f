// Transport over libcurl's easy interface. Redirects are followed here, hop by hop, so that each
// hop's scheme is checked and the token stays with its origin.
#include <curl/curl.h>

#include <csignal>
#include <cstdlib>
#include <exception>
#include <optional>

#include "base/ascii.h"
#include "base/error.h"
#include "hub/download/transport.h"
#include "hub/json_file.h"

namespace mantou::hub {
namespace {

constexpr int kMostHops = 10;
constexpr long kLowSpeed = 1024;  // bytes per second
constexpr size_t kMostHeaders = 256;
constexpr size_t kLongestIgnored = 1 << 16;

struct Url {
  std::string text, scheme, host, port;

  bool same_origin(const Url& other) const {
    return scheme == other.scheme && host == other.host && port == other.port;
  }
  bool loopback() const {
    return host == "localhost" || host == "[::1]" || host.starts_with("127.");
  }
};

std::string part_of(CURLU* url, CURLUPart part) {
  char* text = nullptr;
  if (curl_url_get(url, part, &text, CURLU_DEFAULT_PORT) != CURLUE_OK) return {};
  std::string out = text;
  curl_free(text);
  return out;
}

// `reference` as seen from `base` (may be null). Empty when it is no URL.
std::optional<Url> parse_url(const std::string& reference, const Url* base) {
  const std::unique_ptr<CURLU, void (*)(CURLU*)> url(curl_url(), curl_url_cleanup);
  if (base != nullptr && curl_url_set(url.get(), CURLUPART_URL, base->text.c_str(), 0) != CURLUE_OK)
    return std::nullopt;
  if (curl_url_set(url.get(), CURLUPART_URL, reference.c_str(), CURLU_NON_SUPPORT_SCHEME) !=
      CURLUE_OK)
    return std::nullopt;
  if (!part_of(url.get(), CURLUPART_USER).empty()) return std::nullopt;
  char* text = nullptr;
  if (curl_url_get(url.get(), CURLUPART_URL, &text, 0) != CURLUE_OK) return std::nullopt;
  Url out{text, lower(part_of(url.get(), CURLUPART_SCHEME)),
          lower(part_of(url.get(), CURLUPART_HOST)), part_of(url.get(), CURLUPART_PORT)};
  curl_free(text);
  return out;
}

// Errors that trying again does not mend.
bool is_lasting(CURLcode code) {
  return code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE ||
         code == CURLE_UNSUPPORTED_PROTOCOL || code == CURLE_URL_MALFORMAT;
}

// The state of one hop that curl's callbacks see.
struct Hop {
  const HttpRequest& request;
  const BodySink& sink;
  Url url;
  HttpAnswer answer;
  std::optional<Url> next;  // where it redirects to, when that is to be followed
  bool begun = false, ended = false;
  size_t ignored = 0;  // bytes of its body
  std::exception_ptr error = nullptr;

  bool redirects() const {
    const int s = answer.status;
    return (s == 301 || s == 302 || s == 303 || s == 307 || s == 308) &&
           !answer.header("location").empty();
  }
  bool is_enough() const {
    return !request.enough.empty() && !answer.header(request.enough).empty();
  }
  // After the headers: follow, or hand the answer to the sink.
  bool begin() {
    if (begun) return !ended;
    begun = true;
    if (redirects() && !is_enough() && !request.post) {
      next = parse_url(std::string(answer.header("location")), &url);
      if (next && !request.leave_host && !next->same_origin(url)) next.reset();
      if (next) return true;
    }
    ended = sink.begin && !sink.begin(answer);
    return !ended;
  }
  bool take(std::string_view bytes) {
    if (!begin()) return false;
    // The body of a redirect is for people; a long one is not waited for.
    if (next) return (ignored += bytes.size()) <= kLongestIgnored;
    ended = sink.take && !sink.take(bytes);
    return !ended;
  }
};

template <class F>
size_t guarded(Hop& hop, size_t bytes, F f) {
  try {
    return f() ? bytes : 0;
  } catch (...) {
    hop.error = std::current_exception();
    return 0;
  }
}

size_t on_header(char* data, size_t size, size_t count, void* user) {
  Hop& hop = *static_cast<Hop*>(user);
  return guarded(hop, size * count, [&] {
    std::string_view line(data, size * count);
    while (!line.empty() && (line.back() == '\r' || line.back() == '\n')) line.remove_suffix(1);
    if (line.starts_with("HTTP/")) {  // of a proxy or an interim answer, then of the answer
      hop.answer.headers.clear();
      const size_t space = line.find(' ');
      hop.answer.status =
          space == std::string_view::npos ? 0 : std::atoi(std::string(line.substr(space)).c_str());
      return true;
    }
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos || hop.answer.headers.size() >= kMostHeaders) return true;
    std::string_view value = line.substr(colon + 1);
    while (!value.empty() && (value.front() == ' ' || value.front() == '\t'))
      value.remove_prefix(1);
    while (!value.empty() && (value.back() == ' ' || value.back() == '\t')) value.remove_suffix(1);
    hop.answer.headers[lower(line.substr(0, colon))] = std::string(value);
    return true;
  });
}

int on_progress(void* user, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return static_cast<const StopFlag*>(user)->is_set() ? 1 : 0;
}

size_t on_body(char* data, size_t size, size_t count, void* user) {
  Hop& hop = *static_cast<Hop*>(user);
  return guarded(hop, size * count, [&] { return hop.take({data, size * count}); });
}

// A peer that closes while OpenSSL writes raises SIGPIPE, which must not end the program: kept from
// this thread for as long as the object lives.
class NoSigpipe {
 public:
  NoSigpipe() {
    ::sigemptyset(&pipe_);
    ::sigaddset(&pipe_, SIGPIPE);
    sigset_t pending;
    ::sigpending(&pending);
    was_pending_ = ::sigismember(&pending, SIGPIPE) == 1;
    ::pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~NoSigpipe() {
    const timespec now{};
    if (!was_pending_) ::sigtimedwait(&pipe_, nullptr, &now);  // the one that came meanwhile
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoSigpipe(const NoSigpipe&) = delete;
  NoSigpipe& operator=(const NoSigpipe&) = delete;

 private:
  sigset_t pipe_{}, before_{};
  bool was_pending_ = false;
};

class HeaderList {
 public:
  ~HeaderList() { curl_slist_free_all(list_); }
  HeaderList() = default;
  HeaderList(const HeaderList&) = delete;
  HeaderList& operator=(const HeaderList&) = delete;
  void add(const std::string& line) { list_ = curl_slist_append(list_, line.c_str()); }
  curl_slist* get() const { return list_; }

 private:
  curl_slist* list_ = nullptr;
};

class CurlTransport final : public Transport {
 public:
  explicit CurlTransport(const TransportOptions& options) : options_(options) {
    static const CURLcode ready = curl_global_init(CURL_GLOBAL_DEFAULT);
    curl_ = curl_easy_init();
    if (ready != CURLE_OK || curl_ == nullptr)
      fail(ErrorCode::kInternal, "libcurl cannot be initialised");
    const auto base = parse_url(options.base, nullptr);
    if (!base || (base->scheme != "https" && base->scheme != "http")) {
      curl_easy_cleanup(curl_);
      fail_param(ErrorCode::kInvalidArgument, options.base_name,
                 "{}: \"{}\" is no https:// or http:// address", options.base_name,
                 printable(options.base));
    }
    base_ = *base;
  }
  ~CurlTransport() override { curl_easy_cleanup(curl_); }
  CurlTransport(const CurlTransport&) = delete;
  CurlTransport& operator=(const CurlTransport&) = delete;

  HttpAnswer exchange(const HttpRequest& request, const BodySink& sink) override {
    const auto first = parse_url(request.url, nullptr);
    if (!first) fail(ErrorCode::kInvalidArgument, "\"{}\" is no address", printable(request.url));
    Url url = *first;
    for (int hops = 0; hops < kMostHops; ++hops) {
      require_allowed(url);
      Hop hop{.request = request, .sink = sink, .url = url, .answer = {}, .next = {}};
      perform(hop, url.same_origin(*first));
      if (!hop.next || !hop.answer.failure.empty()) return hop.answer;
      url = *hop.next;
    }
    HttpAnswer answer;
    answer.failure = fmt::format("more than {} redirects", kMostHops);
    return answer;
  }

 private:
  void require_allowed(const Url& url) const {
    const bool plain = base_.scheme == "http" && url.scheme == "http" &&
                       (url.host == base_.host || (base_.loopback() && url.loopback()));
    if (url.scheme != "https" && !plain)
      fail(ErrorCode::kInvalidArgument,
           "refusing to fetch from {}: only https addresses are allowed, or http at the host of {}",
           printable(url.text), options_.base_name);
  }

  void perform(Hop& hop, bool with_token) {
    const HttpRequest& request = hop.request;
    HeaderList headers;
    headers.add("Accept-Encoding: identity");  // sizes and ranges are those of the file itself
    if (with_token && !request.token.empty()) headers.add("Authorization: Bearer " + request.token);
    if (request.from > 0) headers.add(fmt::format("Range: bytes={}-", request.from));
    if (request.from > 0 && !request.if_range.empty()) headers.add("If-Range: " + request.if_range);
    if (request.post) {
      headers.add("Content-Type: application/json");
      headers.add("Expect:");  // servers need not be asked whether they want the body
    }
    char reason[CURL_ERROR_SIZE] = "";

    curl_easy_reset(curl_);  // connections stay open
    curl_easy_setopt(curl_, CURLOPT_URL, hop.url.text.c_str());
    curl_easy_setopt(curl_, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(curl_, CURLOPT_USERAGENT, "mantou");
    curl_easy_setopt(curl_, CURLOPT_HTTPHEADER, headers.get());
    curl_easy_setopt(curl_, CURLOPT_NOBODY, request.head ? 1L : 0L);
    if (request.post) {
      curl_easy_setopt(curl_, CURLOPT_POSTFIELDSIZE_LARGE, curl_off_t(request.post->size()));
      curl_easy_setopt(curl_, CURLOPT_POSTFIELDS, request.post->data());
    }
    if (request.stop != nullptr) {
      curl_easy_setopt(curl_, CURLOPT_NOPROGRESS, 0L);
      curl_easy_setopt(curl_, CURLOPT_XFERINFOFUNCTION, on_progress);
      curl_easy_setopt(curl_, CURLOPT_XFERINFODATA, request.stop);
    }
    curl_easy_setopt(curl_, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(curl_, CURLOPT_ERRORBUFFER, reason);
    curl_easy_setopt(curl_, CURLOPT_HEADERFUNCTION, on_header);
    curl_easy_setopt(curl_, CURLOPT_HEADERDATA, &hop);
    curl_easy_setopt(curl_, CURLOPT_WRITEFUNCTION, on_body);
    curl_easy_setopt(curl_, CURLOPT_WRITEDATA, &hop);
    curl_easy_setopt(curl_, CURLOPT_CONNECTTIMEOUT_MS, long(options_.connect_timeout.count()));
    curl_easy_setopt(curl_, CURLOPT_LOW_SPEED_LIMIT, kLowSpeed);
    curl_easy_setopt(curl_, CURLOPT_LOW_SPEED_TIME, long(options_.low_speed_time.count()));
    curl_easy_setopt(curl_, CURLOPT_TCP_KEEPALIVE, 1L);  // notices a peer that is gone
    if (hop.url.loopback()) curl_easy_setopt(curl_, CURLOPT_PROXY, "");
    if (const char* roots = std::getenv("SSL_CERT_FILE"); roots != nullptr && *roots != '\0')
      curl_easy_setopt(curl_, CURLOPT_CAINFO, roots);

    const NoSigpipe quiet;
    const CURLcode code = curl_easy_perform(curl_);
    if (code == CURLE_OK) guarded(hop, 1, [&] { return hop.begin(); });  // an answer without a body
    if (hop.error) std::rethrow_exception(hop.error);
    if (code == CURLE_OK || hop.ended || (hop.next && hop.ignored > kLongestIgnored)) return;
    hop.answer.failure = printable(reason[0] != '\0' ? reason : curl_easy_strerror(code));
    hop.answer.passing = !is_lasting(code);
  }

  TransportOptions options_;
  Url base_;
  CURL* curl_ = nullptr;
};

}  // namespace

std::unique_ptr<Transport> make_curl_transport(const TransportOptions& options) {
  return std::make_unique<CurlTransport>(options);
}

}  // namespace mantou::hub
