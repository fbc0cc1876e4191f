// Which formats of tool calls and of reasoning there are, which ones a model uses, and the parser
// for them. Pure functions; any thread.
#pragma once

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "text/formats/output_parser.h"

namespace mantou::text {

struct OutputFormat {
  std::string tools = "none";      // hermes, qwen3-coder, llama3, gemma, mistral, minicpm
  std::string reasoning = "none";  // think, gemma-channel, mistral
  bool operator==(const OutputFormat&) const = default;
};

// Whether the vocabulary has a token of this text.
using HasToken = std::function<bool(std::string_view)>;

// From what the chat template writes; without a template ("") from the vocabulary. "none" for what
// is not written at all or in a format that is not known here.
OutputFormat choose_format(std::string_view chat_template, const HasToken& has_token);

// kInvalidArgument naming the known ones; `param` is the name of the option to blame.
void require_tool_format(const std::string& name, const std::string& param);
void require_reasoning_format(const std::string& name, const std::string& param);

// Texts of the markup that are special tokens in some vocabularies: a detokenizer that drops
// special tokens must let these through.
std::vector<std::string_view> format_markers(const OutputFormat& format);

// Whether the answer to this prompt begins within reasoning: the prompt ends by opening it, or,
// where it `continues` an answer, has opened it and not closed it.
bool begins_in_reasoning(const OutputFormat& format, std::string_view prompt, bool continues);

// The text that ends reasoning; "" without.
std::string_view reasoning_end(const OutputFormat& format);

// `tools`: null or an array of OpenAI tools. Without any, nothing is taken for a call. Names that
// are none of a format's are errors, as above.
std::unique_ptr<OutputParser> make_output_parser(const OutputFormat& format,
                                                 const nlohmann::ordered_json& tools,
                                                 bool in_reasoning);

}  // namespace mantou::text
