// One answer on the terminal: a request through the engine, its text as it comes.
//
// The sink turns tokens into text on the engine thread and mails it to the calling thread, which
// prints. Used by `generate` and `chat`.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "text/tokenizer.h"

namespace mantou::cli {

struct Answer {
  std::string text;
  Outcome outcome;
};

// Runs the request and returns when it has ended; `print` gets every piece of text on the calling
// thread. Errors of the request are thrown. With `interruptible` Ctrl-C ends the answer (reason
// kCancelled) instead of the program.
Answer answer(Engine& engine, Request request, std::shared_ptr<const text::Tokenizer> tokenizer,
              const std::vector<std::string>& stops,
              const std::function<void(std::string_view)>& print, bool interruptible);

// Writes to standard output at once: the `print` of the verbs.
void print_now(std::string_view text);

// "prompt 34 tokens (12 cached), 210.3 tok/s | answer 48 tokens, 88.1 tok/s | first token after
// 0.18 s".
std::string describe(const Outcome& outcome);

}  // namespace mantou::cli
