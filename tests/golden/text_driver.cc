// Tokenizers and chat templates, driven by tools/check_tokenizer.py and tools/check_templates.py.
//
// Reads one JSON request a line from stdin and answers each with one line on stdout. Every request
// names a "model" (a GGUF file, a model directory or a tokenizer.json) and an "op":
//   info     → {"load_ms", "vocab_size", "bos", "end_ids"}
//   encode   "hex" (the text's bytes), "add_special", "parse_special", "literal" → {"ids", "ms"}
//   decode   "ids", "skip_special" → {"hex": whole text, "pieces": as streamed, joined}
//   render   "messages", "tools", "kwargs", "add_generation_prompt", "continue_final_message"
//            → {"text", "ids", "literal"}
// "pre" replaces tokenizer.ggml.pre, "template" the chat template. Errors → {"error", "param"}.
#include <chrono>
#include <iostream>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"
#include "tokenizer_source.h"

namespace mantou {
namespace {

using nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes += char(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

std::string to_hex(std::string_view bytes) {
  std::string hex;
  for (const char c : bytes) hex += fmt::format("{:02x}", uint8_t(c));
  return hex;
}

struct Side {
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::shared_ptr<const text::ChatTemplate> chat;
  double load_ms = 0;
};

const Side& side_of(const ordered_json& request) {
  static std::map<std::string, TokenizerSource> sources;
  static std::map<std::string, Side> sides;
  const auto model = request.at("model").get<std::string>();
  const std::string pre = request.value("pre", ""), chat = request.value("template", "");
  Side& side = sides[model + '\n' + pre + '\n' + chat];
  if (side.tokenizer) return side;
  if (!sources.contains(model)) sources[model] = read_tokenizer(model);
  TokenizerSource source = sources[model];
  if (!pre.empty()) source.gguf.value().pre = pre;
  if (!chat.empty()) source.chat_template = chat;
  if (request.contains("bos_token")) source.bos_token = request["bos_token"];
  if (request.contains("eos_token")) source.eos_token = request["eos_token"];
  const auto start = Clock::now();
  auto tokenizer = text::Tokenizer::build(source);
  side.load_ms = milliseconds_since(start);
  side.chat = text::ChatTemplate::build(source, tokenizer);
  side.tokenizer = std::move(tokenizer);
  return side;
}

ordered_json ranges(const std::vector<text::ByteRange>& literal) {
  ordered_json out = ordered_json::array();
  for (const auto& range : literal) out.push_back({range.begin, range.end});
  return out;
}

ordered_json encode(const Side& side, const ordered_json& request) {
  std::vector<text::ByteRange> literal;
  for (const auto& range : request.value("literal", ordered_json::array()))
    literal.push_back({range[0], range[1]});
  const std::string bytes = from_hex(request.at("hex"));
  const auto start = Clock::now();
  const auto ids =
      side.tokenizer->encode(bytes, {.add_special = request.value("add_special", false),
                                     .parse_special = request.value("parse_special", true),
                                     .literal = literal});
  return {{"ids", ids}, {"ms", milliseconds_since(start)}};
}

ordered_json decode(const Side& side, const ordered_json& request) {
  const auto ids = request.at("ids").get<std::vector<TokenId>>();
  const bool skip = request.value("skip_special", false);
  text::Detokenizer stream(side.tokenizer, skip);
  std::string pieces;
  for (const auto id : ids) pieces += stream.push(id);
  pieces += stream.flush();
  return {{"hex", to_hex(side.tokenizer->decode(ids, skip))}, {"pieces", to_hex(pieces)}};
}

ordered_json render(const Side& side, const ordered_json& request) {
  text::ChatOptions options;
  options.add_generation_prompt = request.value("add_generation_prompt", true);
  options.continue_final_message = request.value("continue_final_message", false);
  options.tools = request.value("tools", ordered_json());
  options.extra = request.value("kwargs", ordered_json());
  const auto prompt = side.chat->render(request.at("messages"), options);
  return {{"text", prompt.text}, {"ids", prompt.ids}, {"literal", ranges(prompt.literal)}};
}

ordered_json answer(const ordered_json& request) {
  const Side& side = side_of(request);
  const std::string op = request.at("op");
  if (op == "encode") return encode(side, request);
  if (op == "decode") return decode(side, request);
  if (op == "render") return render(side, request);
  if (op != "info") fail(ErrorCode::kInvalidArgument, "unknown op {}", op);
  return {{"load_ms", side.load_ms},
          {"vocab_size", side.tokenizer->vocab_size()},
          {"bos", side.tokenizer->bos()},
          {"end_ids", side.tokenizer->end_ids()}};
}

}  // namespace
}  // namespace mantou

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    nlohmann::ordered_json out;
    try {
      out = mantou::answer(nlohmann::ordered_json::parse(line));
    } catch (const mantou::Error& error) {
      out = {{"error", error.message()}, {"param", error.param()}};
    } catch (const nlohmann::json::exception& error) {
      out = {{"error", error.what()}, {"param", "request"}};
    }
    std::cout << out.dump() << std::endl;
  }
}
