#include "cli/chat/conversation.h"

#include <string_view>

#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "base/json_builder.h"
#include "base/utf8.h"
#include "cli/private_file.h"

namespace mantou::cli {
namespace {

using nlohmann::ordered_json;

constexpr std::string_view kFormat = "mantou-chat";
constexpr int kVersion = 1;
constexpr size_t kLargestFile = size_t{64} << 20;

template <class... Args>
[[noreturn]] void corrupt(const std::filesystem::path& path, fmt::format_string<Args...> format,
                          Args&&... args) {
  fail_param(ErrorCode::kCorruptData, path.string(), "{}: {}", path.string(),
             fmt::format(format, std::forward<Args>(args)...));
}

// The file's JSON, checked to be a saved conversation of a version that is known here.
ordered_json read_saved(const std::filesystem::path& path) try {
  const std::string text = read_file(path, kLargestFile);
  if (!is_utf8(text)) corrupt(path, "no saved conversation: the text is not UTF-8");
  ordered_json json = build_json<ordered_json>(text, {.refuse_duplicate_keys = true});
  if (!json.is_object() || json.value("format", ordered_json()) != kFormat)
    corrupt(path, "no saved conversation: it lacks \"format\": \"{}\"", kFormat);
  if (const ordered_json version = json.value("version", ordered_json()); version != kVersion)
    corrupt(path, "version {} of saved conversations is not known here, only {} is",
            to_text(version), kVersion);
  return json;
} catch (const JsonDefect& defect) {
  switch (defect.kind) {
    case JsonDefect::kSyntax:
      corrupt(path, "broken JSON at byte {}: {}", defect.position, defect.detail);
    case JsonDefect::kDuplicateKey:
      corrupt(path, "the key \"{}\" stands twice in one object", defect.detail);
    case JsonDefect::kDepth:
    case JsonDefect::kValues:
      break;
  }
  corrupt(path, "nested too deeply for a saved conversation");
}

std::string text_of(const std::filesystem::path& path, const ordered_json& object,
                    const std::string& key, const std::string& name, bool required) {
  const auto found = object.find(key);
  if (found == object.end() && !required) return {};
  if (found == object.end() || !found->is_string()) corrupt(path, "'{}' must be a text", name);
  return found->get<std::string>();
}

ordered_json message_of(const std::filesystem::path& path, const ordered_json& json, size_t index) {
  const std::string name = fmt::format("messages[{}]", index);
  if (!json.is_object()) corrupt(path, "'{}' must be an object", name);
  const std::string role = text_of(path, json, "role", name + ".role", true);
  if (role != "user" && role != "assistant")
    corrupt(path, "'{}.role' must be \"user\" or \"assistant\", not \"{}\"", name, role);
  ordered_json message = {{"role", role},
                          {"content", text_of(path, json, "content", name + ".content", true)}};
  const std::string reasoning =
      text_of(path, json, "reasoning_content", name + ".reasoning_content", false);
  if (!reasoning.empty()) message["reasoning_content"] = reasoning;
  return message;
}

}  // namespace

ordered_json Conversation::all_messages() const {
  ordered_json all = ordered_json::array();
  if (!system.empty()) all.push_back({{"role", "system"}, {"content", system}});
  all.insert(all.end(), messages.begin(), messages.end());
  return all;
}

void save(const Conversation& conversation, const std::string& model,
          const std::filesystem::path& path) {
  std::error_code error;
  if (std::filesystem::exists(path, error)) try {
      read_saved(path);
    } catch (const Error&) {
      fail_param(ErrorCode::kInvalidArgument, path.string(),
                 "{} is there and no saved conversation: choose another name, or remove it",
                 path.string());
    }
  const ordered_json json = {{"format", kFormat},
                             {"version", kVersion},
                             {"model", model},
                             {"system", conversation.system},
                             {"messages", conversation.messages},
                             {"settings", to_json(conversation.settings)}};
  write_private_file(path, to_text(json, 2) + "\n");
}

SavedConversation load_conversation(const std::filesystem::path& path) {
  const ordered_json json = read_saved(path);
  SavedConversation saved;
  saved.model = text_of(path, json, "model", "model", false);
  saved.conversation.system = text_of(path, json, "system", "system", false);
  const auto messages = json.find("messages");
  if (messages == json.end() || !messages->is_array()) corrupt(path, "'messages' must be an array");
  for (size_t i = 0; i < messages->size(); i++)
    saved.conversation.messages.push_back(message_of(path, (*messages)[i], i));
  try {
    saved.conversation.settings =
        settings_from_json(json.value("settings", ordered_json::object()));
  } catch (const Error& error) {
    corrupt(path, "{}", error.message());
  }
  return saved;
}

}  // namespace mantou::cli
