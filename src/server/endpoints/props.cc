// GET /props: what a client of llama-server asks before its first request.
#include "base/json.h"
#include "server/endpoints/endpoints.h"
#include "server/endpoints/llama_format.h"

namespace mantou::server {
namespace {

// llama-server's word for a new seed each request.
constexpr uint64_t kRandomSeed = UINT32_MAX;

std::string_view token_text(const text::Tokenizer& tokenizer, TokenId id) {
  return id < 0 ? std::string_view() : tokenizer.bytes_of(id);
}

}  // namespace

void props(const Services& services, const HttpRequest&,
           const std::shared_ptr<Responder>& responder) {
  const Capabilities& can = services.engine.capabilities();
  SamplingParams sampling = services.defaults.sampling;
  sampling.seed = services.defaults.seed.value_or(kRandomSeed);
  const std::vector<TokenId>& ends = services.tokenizer->end_ids();
  const Json json = {
      {"default_generation_settings",
       {{"params", llama_settings(sampling, services.defaults.limits)}, {"n_ctx", can.context}}},
      {"total_slots", can.max_rows},
      {"model_alias", services.model_id},
      {"model_path", services.model_path},
      {"modalities", {{"vision", false}, {"video", false}, {"audio", false}}},
      {"endpoint_slots", true},
      {"endpoint_props", false},
      {"endpoint_metrics", true},
      {"chat_template", services.chat_template->source()},
      {"chat_template_caps", services.template_caps},
      {"bos_token", token_text(*services.tokenizer, services.tokenizer->bos())},
      {"eos_token", token_text(*services.tokenizer, ends.empty() ? -1 : ends.front())},
      {"build_info", services.build_info},
      {"is_sleeping", false}};
  responder->send({200, to_text(json)});
}

}  // namespace mantou::server
