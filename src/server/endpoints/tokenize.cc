// POST /tokenize, /detokenize and /apply-template, as llama-server has them.
#include "base/json.h"
#include "base/utf8.h"
#include "server/endpoints/endpoints.h"
#include "server/endpoints/llama_fields.h"
#include "server/generation_fields.h"
#include "server/reply_format.h"

namespace mantou::server {
namespace {

// A part of a character has no text: its bytes.
Json piece_json(std::string_view bytes) {
  if (is_utf8(bytes)) return bytes;
  return bytes_json(bytes);
}

}  // namespace

void tokenize(const Services& services, const HttpRequest& request,
              const std::shared_ptr<Responder>& responder) {
  const Json body = parse_json(request.body);
  const Fields fields(body);
  text::Tokenizer::EncodeOptions options{.add_special = false};
  bool with_pieces = false;
  fields.read("add_special", options.add_special);
  fields.read("parse_special", options.parse_special);
  fields.read("with_pieces", with_pieces);
  Json tokens = Json::array();
  if (const Json* content = fields.find("content"))
    for (const TokenId id : read_tokens(*content, "content", *services.tokenizer, options)) {
      if (with_pieces)
        tokens.push_back({{"id", id}, {"piece", piece_json(services.tokenizer->bytes_of(id))}});
      else
        tokens.push_back(id);
    }
  responder->send({200, to_text(Json{{"tokens", std::move(tokens)}})});
}

void detokenize(const Services& services, const HttpRequest& request,
                const std::shared_ptr<Responder>& responder) {
  const Json body = parse_json(request.body);
  std::vector<TokenId> ids;
  Fields(body).read_integers("tokens", ids, request.body.size(), 0,
                             services.tokenizer->vocab_size() - 1);
  responder->send({200, to_text(Json{{"content", services.tokenizer->decode(ids, false)}})});
}

// The fields of chats count, as far as they change the prompt; all are checked.
void apply_template(const Services& services, const HttpRequest& request,
                    const std::shared_ptr<Responder>& responder) {
  const ChatRequest chat = parse_chat_request(request.body, services.defaults,
                                              services.engine.capabilities().vocab_size);
  responder->send(
      {200,
       to_text(Json{{"prompt", services.chat_template->render_text(chat.messages, chat.chat)}})});
}

}  // namespace mantou::server
