// Who answers in a chat: a model that is loaded here, or a server. The session knows no more of
// them than this. Main thread.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/error.h"
#include "cli/answer.h"
#include "cli/chat/settings.h"

namespace mantou::cli {

struct Question {
  nlohmann::ordered_json messages;  // OpenAI's form, the system message first
  ChatSettings settings;
  std::optional<uint64_t> seed = {};  // wins over that of the settings
};

struct Reply {
  enum class End {
    kStop,
    kLength,       // the limit of tokens, or the context
    kInterrupted,  // Ctrl-C
  };
  std::string content, reasoning;
  End end = End::kStop;
  std::optional<Error> error = {};  // what ended it early; what came before stands above
  AnswerStats stats = {};

  bool empty() const { return content.empty() && reasoning.empty(); }
};

enum class Piece { kContent, kReasoning };
using ShowPiece = std::function<void(Piece, std::string_view)>;

class AnswerSource {
 public:
  virtual ~AnswerSource() = default;
  virtual const std::string& model() const = 0;
  virtual int64_t context() const = 0;  // tokens; 0: not known
  // Shows the answer while it comes and returns it. Errors before the first piece are thrown or in
  // the reply, later ones in the reply.
  virtual Reply answer(const Question& question, const ShowPiece& show) = 0;
};

}  // namespace mantou::cli
