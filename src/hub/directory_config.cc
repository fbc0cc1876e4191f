#include "hub/directory_config.h"

#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "hub/config_reader.h"
#include "hub/json_file.h"

namespace mantou::hub {
namespace {

using nlohmann::json;

constexpr size_t kMaxTokenizerBytes = size_t{256} << 20;
constexpr size_t kMaxTemplateBytes = size_t{4} << 20;
constexpr size_t kMaxEndIds = 64;

void set_template(TokenizerSource& source, const std::string& name, std::string text) {
  if (name == "default")
    source.chat_template = std::move(text);
  else
    source.named_templates[name] = std::move(text);
}

// A string, an array of {"name": …, "template": …}, or an object of name → template.
void read_templates(const json& value, const std::string& origin, TokenizerSource& source) {
  const auto text_of = [&](const json& text, const std::string& name) {
    if (!text.is_string())
      fail_param(ErrorCode::kCorruptData, "chat_template", "{}: chat_template \"{}\" is no string",
                 origin, printable(name));
    return text.get<std::string>();
  };
  if (value.is_string()) {
    source.chat_template = value.get<std::string>();
  } else if (value.is_array()) {
    for (const json& entry : value) {
      const ConfigReader reader(entry, origin);
      set_template(source, reader.get_string("name"), reader.get_string("template"));
    }
  } else if (value.is_object()) {
    for (const auto& [name, text] : value.items()) set_template(source, name, text_of(text, name));
  } else {
    fail_param(ErrorCode::kCorruptData, "chat_template",
               "{}: chat_template is neither a string nor a list of named templates", origin);
  }
}

// A token as its text or as {"content": text, …}; empty when it is absent.
std::string token_text(const ConfigReader& reader, const json& config, const char* key) {
  if (!reader.has(key)) return {};
  if (config[key].is_object()) return reader.get_object(key)->get_string("content");
  return reader.get_string(key);
}

std::optional<bool> optional_bool(const ConfigReader& reader, const char* key) {
  if (!reader.has(key)) return std::nullopt;
  return reader.get_bool(key);
}

// Templates in files of their own replace all that tokenizer_config.json says.
void read_template_files(const std::filesystem::path& directory, TokenizerSource& source) {
  TokenizerSource found;
  const auto main = directory / "chat_template.jinja";
  const auto packed = directory / "chat_template.json";
  const auto additional = directory / "additional_chat_templates";
  if (std::filesystem::exists(main)) {
    found.chat_template = read_file(main, kMaxTemplateBytes);
  } else if (std::filesystem::exists(packed)) {
    const json config = read_json_file(packed);
    if (!config.is_object() || !config.contains("chat_template"))
      fail_param(ErrorCode::kCorruptData, "chat_template", "{}: chat_template is missing",
                 packed.string());
    read_templates(config["chat_template"], packed.string(), found);
  }
  if (std::filesystem::is_directory(additional))
    for (const auto& entry : std::filesystem::directory_iterator(additional))
      if (entry.path().extension() == ".jinja")
        set_template(found, entry.path().stem().string(),
                     read_file(entry.path(), kMaxTemplateBytes));
  if (found.chat_template.empty() && found.named_templates.empty()) return;
  source.chat_template = std::move(found.chat_template);
  source.named_templates = std::move(found.named_templates);
}

}  // namespace

json lift_text_config(json config, const std::string& origin) {
  if (!config.is_object())
    fail_param(ErrorCode::kCorruptData, origin, "{}: not a JSON object", origin);
  const auto found = config.find("text_config");
  if (found == config.end() || found->is_null()) return config;
  if (!found->is_object())
    fail_param(ErrorCode::kCorruptData, "text_config", "{}: text_config is no object", origin);
  const json text = std::move(*found);
  config.erase(found);
  for (const auto& [key, value] : text.items())
    if (!value.is_null() || !config.contains(key)) config[key] = value;
  return config;
}

void expand_rope_parameters(json& config, const std::string& origin) {
  const auto object_in = [](const json& parent, const char* key) {
    const auto found = parent.find(key);
    return found != parent.end() && found->is_object() ? *found : json::object();
  };
  const json parameters = object_in(config, "rope_parameters");
  json global = object_in(parameters, "full_attention");
  if (global.empty()) global = parameters;
  const json local = object_in(parameters, "sliding_attention");
  const auto take = [&](const char* key, const json& from, const char* field) {
    if (from.contains(field) && !from[field].is_null()) config[key] = from[field];
  };
  const auto is_scaled = [](const json& rope) {
    for (const char* key : {"rope_type", "type"})
      if (rope.contains(key) && !rope[key].is_null()) return rope[key] != "default";
    return false;
  };
  take("rope_theta", global, "rope_theta");
  take("partial_rotary_factor", global, "partial_rotary_factor");
  take("rope_local_base_freq", local, "rope_theta");
  if (is_scaled(global)) config["rope_scaling"] = global;
  if (is_scaled(local))
    fail_param(ErrorCode::kUnsupported, "rope_parameters",
               "{}: rope_parameters.sliding_attention is scaled, which is not supported", origin);
}

std::string logical_name(std::string_view name) {
  constexpr std::array<std::string_view, 4> kPrefixes = {
      "language_model.model.", "model.language_model.", "language_model.", "model."};
  for (const std::string_view prefix : kPrefixes)
    if (name.starts_with(prefix)) return std::string(name.substr(prefix.size()));
  return std::string(name);
}

int64_t vocabulary_size(const json& config, const std::string& origin) {
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  return ConfigReader(config, origin).get_int("vocab_size", 1, kMost, kMost);
}

void add_end_ids(const json& config, const std::string& origin, int64_t vocabulary,
                 std::vector<int32_t>& end_ids) {
  const ConfigReader reader(config, origin);
  for (const int64_t id : reader.get_int_array("eos_token_id", 0, vocabulary - 1, kMaxEndIds))
    if (std::find(end_ids.begin(), end_ids.end(), id) == end_ids.end())
      end_ids.push_back(int32_t(id));
}

void read_tokenizer_config(const json& config, const std::string& origin, TokenizerSource& source) {
  const ConfigReader reader(config, origin);
  source.add_bos = optional_bool(reader, "add_bos_token");
  source.add_eos = optional_bool(reader, "add_eos_token");
  source.bos_token = token_text(reader, config, "bos_token");
  source.eos_token = token_text(reader, config, "eos_token");
  source.unk_token = token_text(reader, config, "unk_token");
  source.pad_token = token_text(reader, config, "pad_token");
  if (reader.has("chat_template")) read_templates(config["chat_template"], origin, source);
}

TokenizerSource directory_tokenizer(const std::filesystem::path& directory) {
  TokenizerSource source;
  source.origin = directory.string();
  if (const auto path = directory / "tokenizer.json"; std::filesystem::exists(path)) {
    source.tokenizer_json = read_file(path, kMaxTokenizerBytes);
    source.tokenizer_origin = path.string();
  }
  if (const auto path = directory / "tokenizer_config.json"; std::filesystem::exists(path))
    read_tokenizer_config(read_json_file(path), path.string(), source);
  read_template_files(directory, source);
  return source;
}

}  // namespace mantou::hub
