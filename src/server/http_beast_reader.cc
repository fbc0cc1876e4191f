// RequestReader on Boost.Beast's parser.
#define BOOST_ASIO_SEPARATE_COMPILATION
#define BOOST_BEAST_SEPARATE_COMPILATION
#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <optional>
#include <utility>

#include "server/http_server.h"

namespace mantou::server {

namespace asio = boost::asio;
namespace http = boost::beast::http;
using boost::system::error_code;

struct RequestReader::Parser {
  http::request_parser<http::string_body> beast;
  HttpProblem problem;
  HttpRequest request;
  size_t header_bytes = 0;
  HttpLimits limits;
  bool head_checked = false;
};

RequestReader::RequestReader(const HttpLimits& limits) : parser_(std::make_unique<Parser>()) {
  // Beast's own count depends a little on how the bytes arrive. It bounds trailers of chunked
  // bodies.
  parser_->beast.header_limit(uint32_t(2 * limits.header_bytes + 4096));
  parser_->limits = limits;
  parser_->beast.body_limit(limits.body_bytes);
}

RequestReader::~RequestReader() = default;
RequestReader& RequestReader::operator=(RequestReader&&) noexcept = default;

bool RequestReader::header_done() const { return parser_->beast.is_header_done(); }
HttpRequest& RequestReader::head() { return parser_->request; }
HttpRequest RequestReader::take() { return std::move(parser_->request); }
const HttpProblem& RequestReader::problem() const { return parser_->problem; }

namespace {

HttpProblem header_too_large() {
  return {431, "the request's header is larger than this server accepts"};
}

HttpProblem problem_of(const error_code& error) {
  if (error == http::error::header_limit) return header_too_large();
  if (error == http::error::body_limit || error == http::error::buffer_overflow)
    return {413, "the request body is larger than this server accepts (--body-limit)"};
  return {400, "malformed HTTP request: " + error.message()};
}

// A name or address and perhaps a port, of the characters that RFC 3986 knows there.
bool is_authority(std::string_view text) {
  constexpr std::string_view kMarks = "-._~!$&'()*+,;=%:[]";
  return !text.empty() && std::all_of(text.begin(), text.end(), [&](char c) {
    const bool letter = (c | 0x20) >= 'a' && (c | 0x20) <= 'z';
    return letter || (c >= '0' && c <= '9') || kMarks.find(c) != kMarks.npos;
  });
}

// Whom the request is for, which becomes its one Host header: RFC 9112, 3.2. Of an absolute target,
// as proxies are sent it, the authority counts and `target` keeps the rest.
std::optional<HttpProblem> read_host(size_t count, std::string_view& target, HttpRequest& request) {
  if (count > 1) return HttpProblem{400, "there is more than one Host header"};
  if (!request.http_1_0 && request.header("host").empty())
    return HttpProblem{400, "the Host header is missing"};
  if (!request.header("host").empty() && !is_authority(request.header("host")))
    return HttpProblem{400, "the Host header is malformed"};
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!equal_ignoring_case(target.substr(0, scheme.size()), scheme)) continue;
    target.remove_prefix(scheme.size());
    const std::string host(target.substr(0, target.find_first_of("/?#")));
    if (!is_authority(host)) return HttpProblem{400, "the request's target has a malformed host"};
    target.remove_prefix(host.size());
    std::erase_if(request.headers,
                  [](const auto& header) { return equal_ignoring_case(header.first, "host"); });
    request.headers.emplace_back("Host", host);
    break;
  }
  return std::nullopt;
}

// Fills everything but the body; says what is wrong with the header, if anything.
std::optional<HttpProblem> read_head(const http::request_parser<http::string_body>& parser,
                                     HttpRequest& request) {
  const auto& message = parser.get();
  const auto view = [](const auto& text) { return std::string_view(text.data(), text.size()); };
  request.method = view(message.method_string());
  request.keep_alive = message.keep_alive();
  request.http_1_0 = message.version() < 11;
  for (const auto& field : message)
    request.headers.emplace_back(view(field.name_string()), view(field.value()));

  std::string_view target = view(message.target());
  if (auto problem = read_host(message.count(http::field::host), target, request)) return problem;
  target = target.substr(0, target.find('#'));
  const size_t question = std::min(target.find('?'), target.size());
  request.query = target.substr(std::min(question + 1, target.size()));
  if (!percent_decode(target.substr(0, question), request.path))
    return HttpProblem{400, "the path holds a malformed %-sequence"};
  if (request.path.empty()) request.path = "/";  // of an absolute target

  if (request.method == "POST" && !parser.content_length() && !parser.chunked())
    return HttpProblem{411, "a POST needs Content-Length or chunked encoding"};
  const std::string_view expect = request.header("expect");
  if (!expect.empty() && !equal_ignoring_case(expect, "100-continue"))
    return HttpProblem{417, "the only known expectation is 100-continue"};
  return std::nullopt;
}

}  // namespace

RequestReader::State RequestReader::feed(std::string_view bytes, size_t& used) {
  Parser& p = *parser_;
  // The first bytes are taken when the first line is whole.
  const bool in_first_line = p.header_bytes == 0;
  if (in_first_line && std::min(bytes.size(), bytes.find('\n')) > p.limits.target_bytes) {
    p.problem = {414, "the request's first line is longer than this server accepts"};
    used = 0;
    return State::kProblem;
  }
  error_code error;
  used = p.beast.put(asio::buffer(bytes), error);
  if (error && error != http::error::need_more) {
    p.problem = problem_of(error);
    // A body too large is refused by its announced length, when the head is there already.
    if (error == http::error::body_limit && !p.head_checked) read_head(p.beast, p.request);
    return State::kProblem;
  }
  const bool first = !p.head_checked;
  if (first) {
    p.header_bytes += used;
    const size_t waiting = p.beast.is_header_done() ? 0 : bytes.size() - used;
    if (p.header_bytes + waiting > p.limits.header_bytes) {
      p.problem = header_too_large();
      return State::kProblem;
    }
    if (!p.beast.is_header_done()) return State::kMore;
    p.head_checked = true;
    // Only now, so that the head is read before trailers of a chunked body join the fields.
    p.beast.eager(true);
    auto problem = read_head(p.beast, p.request);
    if (p.request.headers.size() > p.limits.header_fields) problem = header_too_large();
    if (problem) {
      p.problem = std::move(*problem);
      return State::kProblem;
    }
  }
  if (p.beast.is_done()) {
    p.request.body = std::move(p.beast.get().body());
    return State::kDone;
  }
  const bool waits = first && !p.request.http_1_0 && !p.request.header("expect").empty();
  return waits ? State::kContinue : State::kMore;
}

}  // namespace mantou::server
