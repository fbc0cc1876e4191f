#include "text/formats/tagged_calls.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "text/formats/json_stream.h"
#include "text/strip.h"

namespace mantou::text {
namespace {

constexpr std::string_view kCdata = "<![CDATA[";
constexpr size_t kMaxEntityBytes = 10;  // &#x10FFFF;

constexpr TagSyntax kQwen = {.wrapper_close = "</tool_call>",
                             .function_open = "<function=",
                             .name_end = ">",
                             .parameter_open = "<parameter=",
                             .key_end = ">",
                             .value_close = "</parameter>",
                             .function_close = "</function>",
                             .wrapped = true,
                             .newlines = true,
                             .xml = false};

constexpr TagSyntax kMiniCpm = {.wrapper_close = "",
                                .function_open = "<function name=\"",
                                .name_end = "\">",
                                .parameter_open = "<param name=\"",
                                .key_end = "\">",
                                .value_close = "</param>",
                                .function_close = "</function>",
                                .wrapped = false,
                                .newlines = false,
                                .xml = true};

// Python's words come from templates that print values as Python does.
std::string json_or_text(const std::string& value) {
  const std::string_view stripped = strip(value);
  if (auto json = json_compact(stripped)) return *json;
  if (stripped == "True") return "true";
  if (stripped == "False") return "false";
  if (stripped == "None") return "null";
  return json_quoted(value);
}

std::string utf8(uint32_t code) {
  std::string out;
  const auto tail = [&](int shift) { out += static_cast<char>(0x80 | ((code >> shift) & 0x3F)); };
  const int tails = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
  constexpr unsigned kLead[] = {0, 0xC0, 0xE0, 0xF0};
  out += static_cast<char>(kLead[tails] | (code >> (6 * tails)));
  for (int i = tails - 1; i >= 0; --i) tail(6 * i);
  return out;
}

// "" for what is no entity.
std::string decode_entity(std::string_view entity) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 5> kNamed = {
      {{"&lt;", "<"}, {"&gt;", ">"}, {"&amp;", "&"}, {"&quot;", "\""}, {"&apos;", "'"}}};
  for (const auto& [name, text] : kNamed)
    if (entity == name) return std::string(text);
  if (!entity.starts_with("&#")) return {};
  const bool hex = entity.substr(2).starts_with('x');
  const std::string_view digits = entity.substr(hex ? 3 : 2, entity.size() - (hex ? 4 : 3));
  uint32_t code = 0;
  const char *begin = digits.data(), *end = begin + digits.size();
  const auto [at, error] = std::from_chars(begin, end, code, hex ? 16 : 10);
  const bool valid = error == std::errc() && at == end && code > 0 && code <= 0x10FFFF &&
                     (code < 0xD800 || code > 0xDFFF);
  return valid ? utf8(code) : std::string();
}

}  // namespace

void TaggedCalls::open(size_t opener) {
  state_ = syntax_.wrapped && opener == 0 ? State::kFunction : State::kName;
  name_.clear();
  expected_.take();
}

CallParser::Step TaggedCalls::feed(char c) {
  const bool between =
      state_ == State::kFunction || state_ == State::kBody || state_ == State::kAfter;
  if (between && expected_.empty() && is_space(c)) return Step::kMore;
  switch (state_) {
    case State::kFunction:
    case State::kAfter: {
      // Two functions in one wrapper are two calls.
      const int tag = state_ == State::kAfter
                          ? expected_.feed(c, {syntax_.function_open, syntax_.wrapper_close})
                          : expected_.feed(c, {syntax_.function_open});
      if (tag == Expected::kNone) return Step::kOver;
      if (tag == 0) name_.clear();
      if (tag == 0) state_ = State::kName;
      return tag == 1 ? Step::kEnd : Step::kMore;
    }
    case State::kName:
      return name_byte(c);
    case State::kBody:
      return take_tag(expected_.feed(c, {syntax_.parameter_open, syntax_.function_close}));
    case State::kKey:
      return key_byte(c);
    case State::kBeforeValue:
      return before_value_byte(c);
    case State::kValue:
      value_byte(c);
      return Step::kMore;
    default:
      return follow_byte(c);
  }
}

CallParser::Step TaggedCalls::name_byte(char c) {
  if (c == '<' || c == '\n' || name_.size() >= kMaxNameBytes) return Step::kOver;
  name_ += c;
  if (!name_.ends_with(syntax_.name_end)) return Step::kMore;
  name_.resize(name_.size() - syntax_.name_end.size());
  tool_ = sink_.begin(name_);
  sink_.arguments("{");
  first_ = true;
  state_ = State::kBody;
  return Step::kMore;
}

CallParser::Step TaggedCalls::key_byte(char c) {
  if (c == '<' || c == '\n' || key_.size() >= kMaxNameBytes) return Step::kOver;
  key_ += c;
  if (!key_.ends_with(syntax_.key_end)) return Step::kMore;
  key_.resize(key_.size() - syntax_.key_end.size());
  start_value();
  return Step::kMore;
}

CallParser::Step TaggedCalls::take_tag(int tag) {
  if (tag == Expected::kNone) return Step::kOver;
  if (tag == Expected::kMore) return Step::kMore;
  if (tag == 1) return end_call();
  key_.clear();
  state_ = State::kKey;
  return Step::kMore;
}

void TaggedCalls::start_value() {
  is_text_ = tool_ != nullptr && tool_->is_text(key_);
  sink_.arguments((first_ ? "" : ",") + json_quoted(key_) + (is_text_ ? ":\"" : ":"));
  first_ = false;
  cdata_ = newline_ = false;
  at_start_ = true;
  entity_.clear();
  value_.clear();
  spaces_.clear();
  state_ = syntax_.xml ? State::kBeforeValue : State::kValue;
}

// Spaces around a CDATA section are none of the value's.
CallParser::Step TaggedCalls::before_value_byte(char c) {
  if (expected_.empty() && is_space(c)) {
    spaces_ += c;
    return Step::kMore;
  }
  const int found = expected_.feed(c, {kCdata});
  if (found == Expected::kMore) return Step::kMore;
  state_ = State::kValue;
  cdata_ = found == 0;
  const std::string text = std::exchange(spaces_, {}) + expected_.take();
  if (cdata_) return Step::kMore;
  for (const char b : text) value_byte(b);
  value_byte(c);
  return Step::kMore;
}

void TaggedCalls::value_byte(char c) {
  const std::string_view texts[] = {terminator()};
  const int found =
      search_.feed(c, texts, [](size_t) { return true; }, [this](char b) { value_char(b); });
  if (found >= 0) state_ = State::kFollow;
}

// After the terminator: what follows says whether it was one.
CallParser::Step TaggedCalls::follow_byte(char c) {
  if (expected_.empty() && is_space(c)) {
    spaces_ += c;
    return Step::kMore;
  }
  const int tag = cdata_ ? expected_.feed(c, {syntax_.value_close, kCdata})
                         : expected_.feed(c, {syntax_.parameter_open, syntax_.function_close});
  if (tag == Expected::kMore) return Step::kMore;
  if (tag == Expected::kNone) {
    not_the_end(c);
    return Step::kMore;
  }
  spaces_.clear();
  if (cdata_ && tag == 1) {  // the section goes on: how XML writes "]]>" within one
    state_ = State::kValue;
    return Step::kMore;
  }
  end_value();
  if (!cdata_) return take_tag(tag);
  state_ = State::kBody;
  return Step::kMore;
}

void TaggedCalls::not_the_end(char c) {
  state_ = State::kValue;
  for (const char b : terminator()) value_char(b);
  for (const char b : std::exchange(spaces_, {})) value_char(b);
  for (const char b : expected_.take()) value_byte(b);
  value_byte(c);
}

void TaggedCalls::value_char(char c) {
  if (syntax_.xml && !cdata_)
    entity_char(c);
  else
    inner_char(c);
}

void TaggedCalls::entity_char(char c) {
  if (c == '&' || entity_.size() >= kMaxEntityBytes)
    for (const char b : std::exchange(entity_, {})) inner_char(b);
  if (c != '&' && entity_.empty()) return inner_char(c);
  entity_ += c;
  if (c != ';') return;
  const std::string decoded = decode_entity(entity_);
  const std::string entity = std::exchange(entity_, {});
  for (const char b : decoded.empty() ? entity : decoded) inner_char(b);
}

void TaggedCalls::inner_char(char c) {
  if (syntax_.newlines) {
    if (std::exchange(at_start_, false) && c == '\n') return;
    if (std::exchange(newline_, c == '\n')) put('\n');
    if (newline_) return;
  }
  put(c);
}

void TaggedCalls::put(char c) {
  if (!is_text_) {
    value_ += c;
    return;
  }
  std::string piece;
  append_json_char(c, piece);
  sink_.arguments(piece);
}

void TaggedCalls::end_value() {
  for (const char b : std::exchange(entity_, {})) inner_char(b);
  sink_.arguments(is_text_ ? "\"" : json_or_text(value_));
}

CallParser::Step TaggedCalls::end_call() {
  sink_.arguments("}");
  sink_.end();
  state_ = State::kAfter;
  return syntax_.wrapper_close.empty() ? Step::kEnd : Step::kMore;
}

std::unique_ptr<CallParser> TaggedCalls::qwen(CallSink& sink) {
  return std::make_unique<TaggedCalls>(sink, kQwen);
}

std::unique_ptr<CallParser> TaggedCalls::minicpm(CallSink& sink) {
  return std::make_unique<TaggedCalls>(sink, kMiniCpm);
}

}  // namespace mantou::text
