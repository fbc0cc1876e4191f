// A conversation: what was said, the system message and the settings; and the file it is kept in.
// Main thread.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "cli/chat/settings.h"

namespace mantou::cli {

struct Conversation {
  std::string system;  // empty: none
  // OpenAI's messages of the roles user and assistant; what a model thought is its message's
  // "reasoning_content".
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  ChatSettings settings;

  // The system message and the others, as a template or a server wants them.
  nlohmann::ordered_json all_messages() const;
};

// The file is JSON: {"format": "mantou-chat", "version": 1, "model", "system", "messages",
// "settings"}. An existing file is replaced only when it is a saved conversation itself. Errors
// name the file and what is wrong.
void save(const Conversation& conversation, const std::string& model,
          const std::filesystem::path& path);

struct SavedConversation {
  Conversation conversation;
  std::string model;  // that it was held with
};
SavedConversation load_conversation(const std::filesystem::path& path);

}  // namespace mantou::cli
