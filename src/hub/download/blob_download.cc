#include "hub/download/blob_download.h"

#include "base/error.h"
#include "hub/download/file_lock.h"
#include "hub/download/partial_file.h"
#include "hub/json_file.h"

namespace mantou::hub {
namespace {

constexpr int kMostTries = 1000;  // even when each brings a few bytes

class Download {
 public:
  Download(HubClient& client, const std::string& repo, const std::string& commit,
           const RepoFile& file, const DownloadEvents& events, PartialFile& partial)
      : client_(client),
        repo_(repo),
        commit_(commit),
        file_(file),
        events_(events),
        partial_(partial),
        what_(fmt::format("{}/{}", repo, printable(file.path))),
        retries_(client.retry(), client.retry().attempts, what_) {}

  // Until the partial file has the right length and contents.
  void run() {
    uint64_t farthest = partial_.bytes();
    bool was_wrong = false;
    tell();
    for (int tries = 0; !partial_.is_right(); ++tries) {
      if (partial_.bytes() == *file_.size) {
        discard_wrong(was_wrong);
        was_wrong = true;
        farthest = 0;
      }
      if (tries == kMostTries)
        fail(ErrorCode::kUnavailable, "{}: not whole after {} tries; run the same command to go on",
             what_, tries);
      problem_.clear();
      const HttpAnswer answer = attempt();
      if (partial_.bytes() == *file_.size && problem_.empty()) continue;
      client_.require_granted(answer, repo_, what_);
      if (partial_.bytes() > farthest) {
        farthest = partial_.bytes();
        retries_.made_progress();
      }
      retries_.wait_or_fail(answer, problem_.empty() ? problem(answer) : problem_, events_.note);
    }
  }

 private:
  void tell() const {
    if (events_.have) events_.have(partial_.bytes());
  }

  std::string problem(const HttpAnswer& answer) const {
    if (!answer.failure.empty() || answer.status >= 300) return problem_of(answer);
    return fmt::format("the transfer ended after {} of {} bytes", partial_.bytes(), *file_.size);
  }

  // The length is right and the contents are not: once more from the start, then an error.
  void discard_wrong(bool again) {
    partial_.restart();
    tell();
    if (again) {
      partial_.remove();
      fail_param(ErrorCode::kCorruptData, file_.path,
                 "{}: the contents do not have the checksum {} twice in a row; nothing was kept, "
                 "try again later or another HF_ENDPOINT",
                 what_, file_.hash);
    }
    if (events_.note)
      events_.note(fmt::format("{}: the checksum is wrong, fetching it again", what_));
  }

  HttpAnswer attempt() {
    BodySink sink;
    sink.begin = [this](const HttpAnswer& answer) { return begin(answer); };
    sink.take = [this](std::string_view bytes) { return take(bytes); };
    return client_.read(repo_, commit_, file_.path, partial_.bytes(), etag_, sink);
  }

  bool refuse(std::string problem) {
    problem_ = std::move(problem);
    return false;
  }

  bool begin(const HttpAnswer& answer) {
    if (answer.status == 206) {
      const auto range = parse_content_range(answer.header("content-range"));
      if (range && range->first == partial_.bytes() &&
          range->total.value_or(*file_.size) == *file_.size)
        return true;
      partial_.restart();
      return refuse(fmt::format("the server answers with the range \"{}\" of {} bytes",
                                printable(answer.header("content-range")), *file_.size));
    }
    if (answer.status == 416) partial_.restart();
    if (answer.status != 200) return false;
    if (partial_.bytes() > 0) partial_.restart();  // the server knows no ranges, or another file
    const auto length = parse_size(answer.header("content-length"));
    if (length && *length != *file_.size)
      return refuse(
          fmt::format("the server sends {} bytes, the hub lists {}", *length, *file_.size));
    const std::string_view etag = answer.header("etag");
    etag_ = etag.starts_with('"') ? std::string(etag) : std::string();
    return true;
  }

  bool take(std::string_view bytes) {
    if (partial_.bytes() + bytes.size() > *file_.size) {
      partial_.restart();
      return refuse(
          fmt::format("the server sends more than the {} bytes of the file", *file_.size));
    }
    partial_.append(bytes);
    tell();
    return true;
  }

  HubClient& client_;
  const std::string& repo_;
  const std::string& commit_;
  const RepoFile& file_;
  const DownloadEvents& events_;
  PartialFile& partial_;
  std::string what_;
  Retries retries_;
  std::string etag_;     // of what the partial file holds, when this run began it
  std::string problem_;  // what is wrong with the answer of this try
};

}  // namespace

void download_blob(HubClient& client, const RepoCache& cache, const std::string& repo,
                   const std::string& commit, const RepoFile& file, const DownloadEvents& events) {
  if (cache.has(file)) return;
  const FileLock lock =
      FileLock::take(cache.blob_lock(file.hash), FileLock::Mode::kExclusive, [&](int process) {
        if (events.note)
          events.note(fmt::format("{}/{}: waiting for {}, which is fetching it", repo,
                                  printable(file.path),
                                  process > 0 ? fmt::format("process {}", process) : "a program"));
      });
  if (cache.has(file)) return;  // somebody else brought it
  PartialFile partial(cache.incomplete(file.hash), file.hash, *file.size);
  Download(client, repo, commit, file, events, partial).run();
  partial.finish(cache.blob(file.hash));
}

}  // namespace mantou::hub
