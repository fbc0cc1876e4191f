// Answers of a model that is loaded here. The engine keeps the row between turns, so that a turn
// reads only what is new.
#pragma once

#include <string>
#include <vector>

#include "cli/chat/answer_source.h"
#include "cli/load.h"
#include "engine/engine.h"

namespace mantou::cli {

class LocalSource final : public AnswerSource {
 public:
  // Takes the model's executor; both must outlive the source. With `interruptible` Ctrl-C ends an
  // answer instead of the program.
  LocalSource(const Options& options, LoadedModel& model, bool interruptible);

  const std::string& model() const override { return model_.name; }
  int64_t context() const override { return model_.capabilities.context; }
  // kResourceExhausted when the conversation fills the context.
  Reply answer(const Question& question, const ShowPiece& show) override;

 private:
  void check_room(const Request& request) const;

  LoadedModel& model_;
  const text::ChatOptions chat_;
  text::OutputFormat format_;
  std::vector<TokenId> shown_;  // special tokens that are markup of the format
  const bool interruptible_;
  Engine engine_;
};

}  // namespace mantou::cli
