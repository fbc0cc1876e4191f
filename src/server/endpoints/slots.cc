// GET /slots: what each row does, as llama-server tells it. Prompts and answers are not shown.
#include "base/error.h"
#include "base/json.h"
#include "server/endpoints/endpoints.h"
#include "server/endpoints/llama_format.h"

namespace mantou::server {
namespace {

Json idle(int slot, int64_t context) {
  return {{"id", slot}, {"n_ctx", context}, {"speculative", false}, {"is_processing", false}};
}

Json busy(const RowStats& row, int64_t context) {
  Json json = idle(row.slot, context);
  json["is_processing"] = true;
  json["id_task"] = row.id;
  json["n_prompt_tokens"] = row.prompt_tokens;
  json["n_prompt_tokens_processed"] = row.stored_tokens - row.cached_tokens;
  json["n_prompt_tokens_cache"] = row.cached_tokens;
  json["params"] = llama_settings(row.settings->sampling, row.settings->limits);
  json["next_token"] = Json::array({{{"has_next_token", true},
                                     {"n_remain", row.max_tokens - row.completion_tokens},
                                     {"n_decoded", row.completion_tokens}}});
  return json;
}

}  // namespace

void slots(const Services& services, const HttpRequest& request,
           const std::shared_ptr<Responder>& responder) {
  const EngineStats stats = services.engine.stats();
  const int64_t context = services.engine.capabilities().context;
  const bool all_busy = int(stats.rows.size()) >= stats.max_rows;
  if (all_busy && !query_value(request.query, "fail_on_no_slot").empty())
    fail(ErrorCode::kUnavailable, "no slot available");
  Json list = Json::array();
  for (int slot = 0; slot < stats.max_rows; ++slot) list.push_back(idle(slot, context));
  for (const RowStats& row : stats.rows) list[size_t(row.slot)] = busy(row, context);
  responder->send({200, to_text(list)});
}

}  // namespace mantou::server
