// GET /stats: the numbers of GET /metrics for people and scripts, with what runs now.
#include <ctime>

#include "base/json.h"
#include "server/endpoints/endpoints.h"
#include "server/json_fields.h"
#include "server/metrics.h"

namespace mantou::server {
namespace {

Json summary(const Histogram& times) {
  return {{"count", times.count()},
          {"mean", times.mean()},
          {"p50", times.quantile(.5)},
          {"p90", times.quantile(.9)},
          {"p99", times.quantile(.99)}};
}

Json row_json(const RowStats& row) {
  return {{"slot", row.slot},
          {"id", row.id},
          {"prompt_tokens", row.prompt_tokens},
          {"cached_tokens", row.cached_tokens},
          {"stored_tokens", row.stored_tokens},
          {"completion_tokens", row.completion_tokens},
          {"max_tokens", row.max_tokens},
          {"seconds", row.seconds}};
}

Json requests_json(const EngineStats& stats) {
  return {{"running", stats.rows.size()},
          {"waiting", stats.waiting},
          {"at_once", stats.max_rows},
          {"refused", stats.refused},
          {"ended",
           {{"stop", stats.count(FinishReason::kStop)},
            {"length", stats.count(FinishReason::kLength)},
            {"cancelled", stats.count(FinishReason::kCancelled)},
            {"error", stats.count(FinishReason::kError)},
            {"invalid", stats.invalid}}}};
}

}  // namespace

void stats(const Services& services, const HttpRequest&,
           const std::shared_ptr<Responder>& responder) {
  const EngineStats now = services.engine.stats();
  const RateWindow::Rates rates = now.rates.at(RateWindow::Clock::now());
  const bool unlimited = now.state_budget == std::numeric_limits<uint64_t>::max();
  Json json = {
      {"model", services.model_id},
      {"uptime_seconds", std::max<int64_t>(int64_t(std::time(nullptr)) - services.created, 0)},
      {"requests", requests_json(now)},
      {"tokens",
       {{"prompt", now.prompt_tokens + now.cached_tokens},
        {"prompt_cached", now.cached_tokens},
        {"generated", now.completion_tokens},
        {"prompt_per_second", rates.prompt},
        {"generated_per_second", rates.generated},
        {"longest", now.longest}}},
      {"steps",
       {{"count", now.steps},
        {"rows_mean", now.steps > 0 ? double(now.rows_of_steps) / double(now.steps) : 0}}},
      {"seconds",
       {{"first_token", summary(now.first_token)},
        {"between_tokens", summary(now.between_tokens)},
        {"queue", summary(now.queue)},
        {"prefill", summary(now.prefill)},
        {"decode", summary(now.decode)},
        {"request", summary(now.requests)}}},
      {"kv_memory",
       {{"reserved_bytes", now.state_reserved},
        {"budget_bytes", unlimited ? Json(nullptr) : Json(now.state_budget)},
        {"used", state_usage(now)}}},
      {"prefix_cache",
       {{"entries", now.cache.entries},
        {"bytes", now.cache.bytes},
        {"capacity_bytes", now.cache.capacity},
        {"evicted", now.cache.evicted},
        {"queried_tokens", now.cache_queries},
        {"hit_tokens", now.cached_tokens}}},
      {"rows", Json::array()}};
  for (const RowStats& row : now.rows) json["rows"].push_back(row_json(row));
  responder->send({200, to_text(json)});
}

}  // namespace mantou::server
