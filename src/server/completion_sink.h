// From a parsed request to its answer: queues the generation and writes what comes of it.
//
// start_generation() runs on a worker; the sink it makes lives on the engine thread, turns tokens
// into text, and hands events or the whole reply to the Responder.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "server/generation_fields.h"
#include "server/http.h"
#include "server/reply_format.h"
#include "server/services.h"

namespace mantou::server {

struct Prompt {
  std::vector<TokenId> ids;
  std::string field;      // its name in the request
  std::string text = {};  // to be echoed
  // How what is written is taken apart; empty: all of it is content.
  std::function<std::unique_ptr<text::OutputParser>()> make_parser = {};
  // Where the answer begins within reasoning: the tokens that end it.
  std::vector<TokenId> grammar_begins_after = {};
};

// Answers each prompt fields.choices times. Answers at once when a prompt fits neither the context
// nor the memory (its field is named); throws what Engine::open throws. With a grammar that must be
// compiled first it returns at once, and such errors are answered later. A client that leaves
// cancels its generations.
void start_generation(const Services& services, const HttpRequest& request,
                      const std::shared_ptr<Responder>& responder,
                      const std::vector<Prompt>& prompts, GenerationFields fields,
                      std::unique_ptr<ReplyFormat> format);

// The head of an answer by the loaded model.
ReplyHead make_head(const Services& services, const GenerationFields& fields,
                    std::string_view id_prefix);

}  // namespace mantou::server
