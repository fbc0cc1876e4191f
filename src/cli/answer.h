// One answer on the terminal: a request through the engine, its text as it comes.
//
// The sink turns tokens into text on the engine thread and mails it to the calling thread, which
// prints. Used by `generate` and `chat`.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "engine/engine.h"
#include "text/stop_matcher.h"

namespace mantou::cli {

// Runs the request and returns when it has ended; `print` gets every piece of text on the calling
// thread. The request's own error is in the outcome. With `interruptible` Ctrl-C ends the answer
// (reason kCancelled) instead of the program.
Outcome answer(Engine& engine, Request request, text::TextStream stream,
               const std::function<void(std::string_view)>& print, bool interruptible);

// What an answer cost; a count that is not known is empty. Times are seconds.
struct AnswerStats {
  std::optional<int64_t> prompt_tokens, cached_tokens, completion_tokens;
  double first_token = 0;  // from the question to the first token
  double prefill = 0;      // of that, reading the prompt
  double decode = 0;       // from the first token to the end
};

AnswerStats stats_of(const Outcome& outcome);

// "prompt 34 tokens (12 cached), 210.3 tok/s | answer 48 tokens, 88.1 tok/s | first token after
// 0.18 s".
std::string describe(const AnswerStats& stats);

}  // namespace mantou::cli
