// Raw text of a model on its way into a Reply: reasoning and content told apart, kept and shown.
// One an answer, main thread.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "cli/chat/answer_source.h"
#include "text/formats/formats.h"

namespace mantou::cli {

class ReplyWriter {
 public:
  ReplyWriter(Reply& reply, const ShowPiece& show, const text::OutputFormat& format,
              bool in_reasoning)
      : reply_(reply),
        show_(show),
        parser_(text::make_output_parser(format, nullptr, in_reasoning)) {}

  void push(std::string_view text) {
    std::vector<text::OutputEvent> events;
    parser_->push(text, events);
    take(events);
  }
  void finish() {
    std::vector<text::OutputEvent> events;
    parser_->finish(events);
    take(events);
  }
  // What is known to be reasoning.
  void reasoning(std::string_view text) { add(Piece::kReasoning, text); }

 private:
  void take(const std::vector<text::OutputEvent>& events) {
    for (const text::OutputEvent& event : events)  // without tools there are no calls
      add(event.kind == text::OutputEvent::Kind::kReasoning ? Piece::kReasoning : Piece::kContent,
          event.text);
  }
  void add(Piece piece, std::string_view text) {
    if (text.empty()) return;
    (piece == Piece::kReasoning ? reply_.reasoning : reply_.content) += text;
    show_(piece, text);
  }

  Reply& reply_;
  const ShowPiece& show_;
  const std::unique_ptr<text::OutputParser> parser_;
};

}  // namespace mantou::cli
