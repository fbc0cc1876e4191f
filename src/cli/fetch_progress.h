// How a download looks on the terminal: one line that moves, or plain lines now and then where
// standard error is no terminal. One thread.
#pragma once

#include <chrono>
#include <cstdio>
#include <string>

#include "hub/download/fetch.h"

namespace mantou::cli {

std::string human_seconds(double seconds);  // "0:07", "12:30", "1:05:00"

// "m-Q4_K_M.gguf (1 of 2)  12.3 MiB of 1.2 GiB  1 %  45.1 MiB/s  0:27 left"; a rate of 0 is not
// known yet.
std::string progress_text(const hub::FetchProgress& progress, double bytes_per_second);

class ProgressLine {
 public:
  ProgressLine(std::FILE* out, bool terminal) : out_(out), terminal_(terminal) {}
  ~ProgressLine() { wipe(); }
  ProgressLine(const ProgressLine&) = delete;
  ProgressLine& operator=(const ProgressLine&) = delete;

  void update(const hub::FetchProgress& progress);
  void note(const std::string& message);

 private:
  using Clock = std::chrono::steady_clock;
  void wipe();
  double rate(const hub::FetchProgress& progress, Clock::time_point now);

  std::FILE* out_;
  bool terminal_;
  bool shown_ = false;  // a moving line stands there
  size_t file_ = 0;     // the number of the file last seen
  Clock::time_point last_print_{}, sample_time_{};
  uint64_t sample_bytes_ = 0;
  double rate_ = 0;
};

}  // namespace mantou::cli
