#include "cli/fetch_progress.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/human.h"

namespace mantou::cli {

std::string human_seconds(double seconds) {
  const int64_t s = std::llround(std::clamp(seconds, 0.0, 1e9));
  if (s < 3600) return fmt::format("{}:{:02}", s / 60, s % 60);
  return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
}

std::string progress_text(const hub::FetchProgress& progress, double bytes_per_second) {
  const double done = double(progress.done), total = double(progress.total);
  std::string text = progress.file;
  if (progress.count > 1) text += fmt::format(" ({} of {})", progress.number, progress.count);
  text += fmt::format("  {} of {}  {:.0f} %", human_bytes(done), human_bytes(total),
                      total > 0 ? std::floor(100 * done / total) : 100.0);
  if (bytes_per_second > 0)
    text += fmt::format("  {}/s  {} left", human_bytes(bytes_per_second),
                        human_seconds((total - done) / bytes_per_second));
  return text;
}

// Averaged over a few seconds; a jump (a resumed file, a new start) begins anew.
double ProgressLine::rate(const hub::FetchProgress& progress, Clock::time_point now) {
  const std::chrono::duration<double> since = now - sample_time_;
  if (sample_time_ == Clock::time_point{} || progress.done < sample_bytes_) {
    sample_time_ = now;
    sample_bytes_ = progress.done;
    return rate_;
  }
  if (since.count() < 0.5) return rate_;
  const double current = double(progress.done - sample_bytes_) / since.count();
  rate_ = rate_ == 0 ? current : 0.7 * rate_ + 0.3 * current;
  sample_time_ = now;
  sample_bytes_ = progress.done;
  return rate_;
}

void ProgressLine::wipe() {
  if (shown_) fmt::print(out_, "\r\033[K");
  shown_ = false;
}

void ProgressLine::update(const hub::FetchProgress& progress) {
  constexpr std::chrono::milliseconds kMoving{200};
  constexpr std::chrono::seconds kPlain{15};
  const auto now = Clock::now();
  const bool new_file = file_ != progress.number;
  if (new_file) sample_time_ = {};  // what an earlier run left of it was not fetched now
  const double bytes_per_second = rate(progress, now);
  const bool due = now - last_print_ >= (terminal_ ? Clock::duration(kMoving) : kPlain);
  if (!new_file && !due && progress.done != progress.total) return;
  file_ = progress.number;
  last_print_ = now;
  const std::string text = progress_text(progress, bytes_per_second);
  if (terminal_) {
    fmt::print(out_, "\r\033[K{}", text);
    shown_ = true;
  } else {
    fmt::print(out_, "{}\n", text);
  }
  std::fflush(out_);
}

void ProgressLine::note(const std::string& message) {
  wipe();
  fmt::print(out_, "{}\n", message);
}

}  // namespace mantou::cli
