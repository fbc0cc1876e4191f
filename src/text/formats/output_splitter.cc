#include "text/formats/output_splitter.h"

#include <algorithm>

namespace mantou::text {

OutputSplitter::OutputSplitter(const Rules& rules, ToolCatalog tools)
    : reasoning_(rules.reasoning), tools_(std::move(tools)) {
  if (reasoning_ != nullptr) {
    marks_.push_back(reasoning_->open);
    leading_only_.push_back(!reasoning_->anywhere);
  }
  call_marks_ = marks_.size();
  for (const CallOpener& opener : rules.openers) {
    marks_.push_back(opener.text);
    leading_only_.push_back(opener.leading);
  }
  for (const std::string_view mark : marks_) begins_mark_[static_cast<uint8_t>(mark[0])] = true;
  if (rules.make_calls != nullptr) parser_ = rules.make_calls(*this);
  if (rules.inside_reasoning) start_reasoning(false);
}

void OutputSplitter::push(std::string_view text, std::vector<OutputEvent>& out) {
  out_ = &out;
  for (const char c : text) byte(c);
}

void OutputSplitter::byte(char c) {
  if (state_ == State::kContent)
    content_byte(c);
  else if (state_ == State::kReasoning)
    reasoning_byte(c);
  else
    call_byte(c);
}

void OutputSplitter::finish(std::vector<OutputEvent>& out) {
  out_ = &out;
  const std::string held = search_.take();
  if (state_ == State::kReasoning) {
    for (const char c : held) thought(c);
  } else if (state_ == State::kCall) {
    const bool over = parser_->finish();
    if (!begun_ && !(over && !was_verbatim_ && !verbatim_)) content(raw_);
  } else {
    content(held);
  }
  if (leading_ && calls_ == 0) emit(Kind::kContent, spaces_);
}

void OutputSplitter::content_byte(char c) {
  if (search_.empty() && !begins_mark_[static_cast<uint8_t>(c)]) return content(c);
  const int mark = search_.feed(
      c, marks_, [this](size_t i) { return leading_ || !leading_only_[i]; },
      [this](char b) { content(b); });
  if (mark >= 0) open_mark(static_cast<size_t>(mark));
}

void OutputSplitter::open_mark(size_t mark) {
  if (mark < call_marks_) return start_reasoning(reasoning_->named);
  state_ = State::kCall;
  raw_ = marks_[mark];
  begun_ = verbatim_ = was_verbatim_ = false;
  parser_->open(mark - call_marks_);
}

void OutputSplitter::start_reasoning(bool named) {
  state_ = State::kReasoning;
  thought_begun_ = false;
  naming_ = named;
  channel_.clear();
  newlines_ = 0;
  if (leading_) spaces_.clear();
}

// Some models open what the prompt has opened already.
void OutputSplitter::reasoning_byte(char c) {
  const std::string_view marks[] = {reasoning_->close, reasoning_->open};
  const int mark = search_.feed(
      c, marks, [this](size_t i) { return i == 0 || !thought_begun_; },
      [this](char b) { thought(b); });
  if (mark == 0) end_reasoning();
  if (mark == 1) start_reasoning(reasoning_->named);
}

void OutputSplitter::end_reasoning() {
  state_ = State::kContent;
  leading_ = after_reasoning_ = true;
}

void OutputSplitter::thought(char c) {
  if (naming_) {
    const bool word = (c >= 'a' && c <= 'z') || c == '_';
    if (word) {
      channel_ += c;
      return;
    }
    naming_ = false;
    const std::string name = std::exchange(channel_, {});
    if (c != '\n')
      for (const char b : name) thought(b);
  }
  if (c == '\n') {
    newlines_ += thought_begun_ ? 1 : 0;
    return;
  }
  thought_begun_ = true;
  emit(Kind::kReasoning, std::string(std::exchange(newlines_, 0), '\n') + c);
}

void OutputSplitter::content(std::string_view text) {
  for (const char c : text) content(c);
}

void OutputSplitter::content(char c) {
  if (after_reasoning_ && c == '\n') return;
  after_reasoning_ = false;
  if (leading_ && is_space(c)) {
    spaces_ += c;
    return;
  }
  if (std::exchange(leading_, false)) emit(Kind::kContent, std::exchange(spaces_, {}));
  emit(Kind::kContent, std::string_view(&c, 1));
}

void OutputSplitter::call_byte(char c) {
  CallParser::Step step;
  bool verbatim;
  do {
    ended_ = false;
    verbatim = verbatim_;
    step = parser_->feed(c);
  } while (step == CallParser::Step::kAgain);
  if (step == CallParser::Step::kOver) {
    leave_call(parser_->tail());
    return byte(c);
  }
  if (!begun_ && !ended_) raw_ += c;
  if (step == CallParser::Step::kEnd) {
    if (!was_verbatim_) raw_.clear();
    leave_call({});
  } else if (verbatim || verbatim_) {
    raw_to_content(parser_->tail());
  }
}

// What the markup spelled since its last call becomes content; its tail may begin other markup.
void OutputSplitter::leave_call(std::string_view tail) {
  state_ = State::kContent;
  begun_ = verbatim_ = was_verbatim_ = false;
  raw_to_content(tail);
  raw_.clear();
  for (const char c : std::string(tail)) byte(c);
}

void OutputSplitter::raw_to_content(std::string_view tail) {
  const size_t kept = std::min(tail.size(), raw_.size());
  content(std::string_view(raw_).substr(0, raw_.size() - kept));
  raw_.erase(0, raw_.size() - kept);
}

const Tool* OutputSplitter::begin(std::string_view name) {
  const Tool* tool = tools_.find(name);
  verbatim_ = tool == nullptr;
  if (tool == nullptr) return nullptr;
  raw_.clear();
  spaces_.clear();
  begun_ = leading_ = true;
  was_verbatim_ = after_reasoning_ = false;
  ++calls_;
  emit(Kind::kCallBegin, name);
  return tool;
}

void OutputSplitter::arguments(std::string_view json) {
  if (begun_) emit(Kind::kCallArguments, json);
}

void OutputSplitter::end() {
  if (begun_) {
    emit(Kind::kCallEnd, {});
    begun_ = false;
    ended_ = true;
  } else {
    was_verbatim_ = true;
    verbatim_ = false;
  }
}

void OutputSplitter::emit(Kind kind, std::string_view text) {
  const bool piece = kind != Kind::kCallBegin && kind != Kind::kCallEnd;
  if (piece && text.empty()) return;
  const int call = kind == Kind::kContent || kind == Kind::kReasoning ? -1 : calls_ - 1;
  if (piece && !out_->empty() && out_->back().kind == kind && out_->back().call == call)
    out_->back().text += text;
  else
    out_->push_back({kind, call, std::string(text)});
}

}  // namespace mantou::text
