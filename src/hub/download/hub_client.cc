#include "hub/download/hub_client.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "base/ascii.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "hub/json_file.h"
#include "hub/resolve.h"

namespace mantou::hub {
namespace {

namespace fs = std::filesystem;

constexpr size_t kLongestListing = size_t{64} << 20;  // bytes

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

std::string trimmed(std::string text) {
  const auto space = [](char c) { return std::isspace(static_cast<unsigned char>(c)) != 0; };
  while (!text.empty() && space(text.back())) text.pop_back();
  text.erase(text.begin(), std::find_if_not(text.begin(), text.end(), space));
  return text;
}

std::string stored_token() {
  if (const std::string token = trimmed(variable("HF_TOKEN")); !token.empty()) return token;
  fs::path file = variable("HF_TOKEN_PATH");
  if (file.empty()) file = hf_home() / "token";
  constexpr size_t kLongest = 4096;
  std::error_code error;
  if (!fs::is_regular_file(file, error)) return {};
  return trimmed(read_file(file, kLongest));
}

// Percent-encodes what a path of a URL cannot hold; "/" stays.
std::string url_path(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const char l = lower(c);
    if ((l >= 'a' && l <= 'z') || (c >= '0' && c <= '9') ||
        std::string_view("/-._~").find(c) != std::string_view::npos)
      out += c;
    else
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

bool is_success(const HttpAnswer& answer) {
  return answer.status >= 200 && answer.status < 400 && answer.failure.empty();
}

}  // namespace

Endpoint Endpoint::from_environment() {
  Endpoint endpoint;
  if (std::string url = trimmed(variable("HF_ENDPOINT")); !url.empty()) endpoint.url = url;
  while (endpoint.url.ends_with('/')) endpoint.url.pop_back();
  endpoint.token = stored_token();
  for (const char c : endpoint.token)
    if (c <= ' ' || c > '~')
      fail_param(ErrorCode::kInvalidArgument, "HF_TOKEN",
                 "HF_TOKEN (or the token file) holds characters that no token has; write it again");
  const std::string offline = lower(trimmed(variable("HF_HUB_OFFLINE")));
  endpoint.offline = offline == "1" || offline == "true" || offline == "yes" || offline == "on";
  return endpoint;
}

bool is_passing_status(int status) {
  return status == 408 || status == 425 || status == 429 || status >= 500;
}

std::string problem_of(const HttpAnswer& answer) {
  if (!answer.failure.empty()) return answer.failure;
  return fmt::format("the server answers {}", answer.status);
}

void Retries::wait_or_fail(const HttpAnswer& answer, const std::string& problem,
                           const std::function<void(const std::string&)>& note) {
  ++failures_;
  if (failures_ >= attempts_)
    fail(ErrorCode::kUnavailable,
         "{}: {}; gave up after {} tries; check the network (and HF_ENDPOINT) and run the same "
         "command to go on",
         what_, problem, failures_);
  auto delay = policy_.first_delay * (1 << std::min(failures_ - 1, 16));
  delay = std::min<std::chrono::milliseconds>(delay, policy_.longest_delay);
  const std::string_view asked = answer.header("retry-after");
  if (const auto after = parse_retry_after(asked, std::chrono::system_clock::now())) {
    if (*after > policy_.patience)
      fail(ErrorCode::kUnavailable, "{}: {} and asks to come back in {} s; try again then", what_,
           problem, after->count());
    delay = std::max<std::chrono::milliseconds>(delay, *after);
  }
  constexpr std::chrono::milliseconds kNoticed{2000};
  if (note && delay >= kNoticed)
    note(fmt::format("{}: {}; trying again in {} s", what_, problem, delay.count() / 1000));
  if (policy_.sleep)
    policy_.sleep(delay);
  else
    std::this_thread::sleep_for(delay);
}

HubClient::HubClient(Endpoint endpoint, Transport& transport, RetryPolicy retry)
    : endpoint_(std::move(endpoint)), transport_(transport), retry_(std::move(retry)) {}

HttpRequest HubClient::request(const std::string& path) const {
  HttpRequest request;
  request.url = endpoint_.url + url_path(path);
  request.token = endpoint_.token;
  return request;
}

void HubClient::require_granted(const HttpAnswer& answer, const std::string& repo,
                                const std::string& what) const {
  const int status = answer.status;
  if (status == 0 || status < 400 || is_passing_status(status)) return;
  const bool token = !endpoint_.token.empty();
  if (answer.header("x-error-code") == "GatedRepo")
    fail_param(ErrorCode::kNotFound, "model", "{} is gated: accept its terms at {}/{}, then {}",
               what, endpoint_.url, repo,
               token ? "try again (the token in use may not read it yet)"
                     : "set HF_TOKEN to a token of yours");
  if (status == 401 || status == 403)
    fail_param(ErrorCode::kNotFound, "model",
               "{}: the hub answers {}: there is no such repository, or it is private or gated; "
               "check the name{}",
               what, status, token ? " and what the token in use may read" : ", or set HF_TOKEN");
  if (status == 404 || status == 410)
    fail_param(ErrorCode::kNotFound, "model",
               "{}: {} has no such repository or file; check the name", what, endpoint_.url);
  fail_param(ErrorCode::kUnavailable, "model", "{}: {} answers {}; is it a Hugging Face hub?", what,
             endpoint_.url, status);
}

HttpAnswer HubClient::tried(const HttpRequest& request, const std::string& repo,
                            const std::string& what, std::string* body) {
  BodySink sink;
  sink.begin = [&](const HttpAnswer&) {
    if (body != nullptr) body->clear();
    return true;
  };
  sink.take = [&](std::string_view bytes) {
    if (body == nullptr) return true;
    if (body->size() + bytes.size() > kLongestListing)
      fail_param(ErrorCode::kResourceExhausted, "model",
                 "{}: the hub's answer is longer than the limit of {} bytes", what,
                 kLongestListing);
    body->append(bytes);
    return true;
  };
  Retries retries(retry_, retry_.ask_attempts, what);
  for (;;) {
    HttpAnswer answer = transport_.exchange(request, sink);
    if (is_success(answer)) return answer;
    require_granted(answer, repo, what);
    if (!answer.failure.empty() && !answer.passing)
      fail(ErrorCode::kUnavailable, "{}: {} ({})", what, answer.failure, endpoint_.url);
    retries.wait_or_fail(answer, problem_of(answer),
                         [](const std::string& message) { log_warn(message, {}); });
  }
}

RepoListing HubClient::list(const std::string& repo) {
  std::string body;
  HttpRequest listing = request(fmt::format("/api/models/{}/revision/main", repo));
  listing.url += "?blobs=true";
  tried(listing, repo, repo, &body);
  return parse_listing(repo, body);
}

RepoFile HubClient::describe(const std::string& repo, const std::string& commit,
                             const RepoFile& file) {
  const std::string what = fmt::format("{}/{}", repo, printable(file.path));
  HttpRequest head = request(fmt::format("/{}/resolve/{}/{}", repo, commit, file.path));
  head.head = true;
  head.leave_host = false;  // the hub's own answer has the checksum, the store's need not
  head.enough = "x-linked-etag";
  HttpAnswer answer = tried(head, repo, what, nullptr);
  if (answer.header("x-linked-etag").empty() && answer.header("etag").empty() &&
      answer.status >= 300) {
    head.leave_host = true;  // a mirror that sends everybody on to the hub
    answer = tried(head, repo, what, nullptr);
  }
  return described_file(repo, commit, file, answer);
}

HttpAnswer HubClient::read(const std::string& repo, const std::string& commit,
                           const std::string& path, uint64_t from, const std::string& if_range,
                           const BodySink& sink) {
  HttpRequest get = request(fmt::format("/{}/resolve/{}/{}", repo, commit, path));
  get.from = from;
  get.if_range = if_range;
  return transport_.exchange(get, sink);
}

}  // namespace mantou::hub
