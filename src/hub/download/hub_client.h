// The hub's protocol: listing a repository, describing a file, reading one. Knows addresses, tokens
// and which answers are worth another try; knows nothing of the disk. One thread.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>

#include "hub/download/answers.h"
#include "hub/download/transport.h"

namespace mantou::hub {

struct Endpoint {
  std::string url = "https://huggingface.co";
  std::string token;     // empty: anonymous
  bool offline = false;  // nothing may be fetched

  // HF_ENDPOINT; HF_TOKEN, else the file HF_TOKEN_PATH or $HF_HOME/token; HF_HUB_OFFLINE.
  static Endpoint from_environment();
};

struct RetryPolicy {
  int attempts = 6;      // of reading a file, in a row without a byte of progress
  int ask_attempts = 4;  // of everything else
  std::chrono::milliseconds first_delay{500};
  std::chrono::milliseconds longest_delay{16'000};
  std::chrono::seconds patience{120};  // the longest Retry-After that is waited for
  std::function<void(std::chrono::milliseconds)> sleep;  // empty: sleeps
};

// Counts failures in a row and waits between them.
class Retries {
 public:
  // `what` begins the messages: "org/name/model.gguf".
  Retries(const RetryPolicy& policy, int attempts, std::string what)
      : policy_(policy), attempts_(attempts), what_(std::move(what)) {}

  void made_progress() { failures_ = 0; }
  // Waits before the next try; throws when there were enough, or when the answer asks for a longer
  // wait than policy.patience. `problem` says what went wrong with `answer`; waits that people
  // notice are told to `note`, which may be empty.
  void wait_or_fail(const HttpAnswer& answer, const std::string& problem,
                    const std::function<void(const std::string&)>& note = nullptr);

 private:
  RetryPolicy policy_;
  int attempts_;
  std::string what_;
  int failures_ = 0;
};

class HubClient {
 public:
  HubClient(Endpoint endpoint, Transport& transport, RetryPolicy retry);

  const RetryPolicy& retry() const { return retry_; }

  RepoListing list(const std::string& repo);  // as of "main"
  // Size and hash of `file` as of `commit`.
  RepoFile describe(const std::string& repo, const std::string& commit, const RepoFile& file);
  // One try to read a file from byte `from` on; the caller judges the answer.
  HttpAnswer read(const std::string& repo, const std::string& commit, const std::string& path,
                  uint64_t from, const std::string& if_range, const BodySink& sink);

  // Throws when the answer is a refusal that another try does not change: it names `what`.
  void require_granted(const HttpAnswer& answer, const std::string& repo,
                       const std::string& what) const;

 private:
  HttpRequest request(const std::string& path) const;
  // Tries until the status is 2xx (or a redirect of a HEAD request).
  HttpAnswer tried(const HttpRequest& request, const std::string& repo, const std::string& what,
                   std::string* body);

  Endpoint endpoint_;
  Transport& transport_;
  RetryPolicy retry_;
};

// What is wrong with an answer that is no success: "the server answers 503", "…: Connection reset".
std::string problem_of(const HttpAnswer& answer);

// True for statuses that may be another next time: 408, 425, 429, 5xx.
bool is_passing_status(int status);

}  // namespace mantou::hub
