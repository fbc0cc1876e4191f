// The answers to one request on their way to its client: choices gather what their sinks parse, the
// format writes it down, streamed or as one reply when the last choice has ended. Shared by the
// sinks of the choices; engine thread.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "server/http.h"
#include "server/reply_format.h"

namespace mantou::server {

class AnswerSet {
 public:
  // `choices` of each prompt: choice i belongs to prompt i / choices.
  struct Shape {
    int prompts = 1, choices = 1;
    bool stream = false;
  };
  AnswerSet(std::string request_id, std::shared_ptr<Responder> responder,
            std::unique_ptr<ReplyFormat> format, const Shape& shape);

  bool streams() const { return shape_.stream; }

  void progress(int64_t done, int64_t total);
  // Of both false: nobody listens any more.
  bool begin(const Admission& admission);  // a choice was admitted
  bool add(int choice, std::span<const text::OutputEvent> events,
           std::vector<ReportedToken> tokens);

  // A choice has ended. An error ends the whole answer: that of the first choice that fails counts.
  void end(int choice, TextEnd how, const Outcome& outcome);

 private:
  void take(ChoiceState& choice, std::span<const text::OutputEvent> events);
  void sum_up(int index, const Outcome& outcome);
  void close();
  void fail_with(const Error& error);

  const std::shared_ptr<Responder> responder_;
  const std::unique_ptr<ReplyFormat> format_;
  const ErrorShape error_shape_;
  const Shape shape_;
  std::vector<ChoiceState> choices_;
  int left_;
  bool begun_ = false, failed_ = false;
  std::optional<Outcome> sum_;
};

}  // namespace mantou::server
