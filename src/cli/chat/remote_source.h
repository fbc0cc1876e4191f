// Answers of a model that another server has.
#pragma once

#include <string>

#include "cli/chat/answer_source.h"
#include "cli/chat/remote_client.h"

namespace mantou::cli {

class RemoteSource final : public AnswerSource {
 public:
  // Asks the server for its models: the only one is taken when --model names none; several are an
  // error that lists them. With `interruptible` Ctrl-C ends an answer instead of the program.
  RemoteSource(RemoteClient client, const Options& options, bool interruptible);

  const std::string& model() const override { return model_.id; }
  int64_t context() const override { return model_.context; }
  Reply answer(const Question& question, const ShowPiece& show) override;

 private:
  RemoteClient client_;
  const PromptOptions prompt_;
  const bool interruptible_;
  const RemoteModel model_;
};

// The request for an answer to the question; fields that nobody gave are left to the server.
// Reasoning of earlier answers is left out: servers differ in whether they take it, and templates
// that want it are rare.
nlohmann::ordered_json chat_request(const Question& question, const std::string& model,
                                    const std::string& chat_template_kwargs);

}  // namespace mantou::cli
