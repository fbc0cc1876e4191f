#include "cli/chat/remote_client.h"

#include <array>
#include <utility>

#include "base/ascii.h"
#include "base/json.h"
#include "base/json_builder.h"
#include "cli/chat/sse_reader.h"
#include "hub/json_file.h"
#include "text/strip.h"

namespace mantou::cli {
namespace {

using nlohmann::ordered_json;

constexpr size_t kLargestBody = size_t{16} << 20;

// Null when the text is no JSON, or one that nobody means.
ordered_json parse(std::string_view text) try {
  return build_json<ordered_json>(text);
} catch (const JsonDefect&) {
  return nullptr;
}

// The member at the end of the path; null when there is none.
const ordered_json& at(const ordered_json& json, std::initializer_list<const char*> path) {
  static const ordered_json kNull;
  const ordered_json* here = &json;
  for (const char* const key : path) {
    if (!here->is_object()) return kNull;
    const auto found = here->find(key);
    if (found == here->end()) return kNull;
    here = &*found;
  }
  return *here;
}

std::string_view text_of(const ordered_json& json) {
  return json.is_string() ? std::string_view(json.get_ref<const std::string&>()) : "";
}

std::optional<int64_t> count_of(const ordered_json& json) {
  if (!json.is_number_integer() || json.get<int64_t>() < 0) return std::nullopt;
  return json.get<int64_t>();
}

// What a server says is wrong: OpenAI's {"error": {"message"}}, or one of the other shapes in use.
std::string complaint_of(const ordered_json& json) {
  for (const ordered_json* said : {&at(json, {"error", "message"}), &at(json, {"error"}),
                                   &at(json, {"message"}), &at(json, {"detail"})})
    if (said->is_string()) return hub::printable(text_of(*said));
  return hub::printable(to_text(json));
}

ErrorCode code_of(int status) {
  if (status == 404) return ErrorCode::kNotFound;
  if (status == 429) return ErrorCode::kResourceExhausted;
  return status >= 500 ? ErrorCode::kUnavailable : ErrorCode::kInvalidArgument;
}

// Of an answer that is no success.
Error refusal(const std::string& url, const hub::HttpAnswer& answer, std::string_view body) {
  if (answer.status == 0)
    return {ErrorCode::kIo, fmt::format("cannot reach {}: {}", url, answer.failure), "--url"};
  std::string why;
  if (answer.status >= 300 && answer.status < 400)
    why = fmt::format("it has moved to {}", hub::printable(answer.header("location")));
  else if (const ordered_json json = parse(body); !json.is_null())
    why = complaint_of(json);
  else
    why = hub::printable(text::strip(body));
  if (answer.status == 401 || answer.status == 403) why += " (--api-key gives the key)";
  return {code_of(answer.status), fmt::format("{} answers {}: {}", url, answer.status, why)};
}

bool is_success(int status) { return status >= 200 && status < 300; }

// An answer on its way in: a stream of events, or one JSON that is read at its end.
class AnswerReader {
 public:
  AnswerReader(RemoteEnd& end, const std::function<void(const RemoteDelta&)>& on_delta)
      : end_(end), on_delta_(on_delta), events_([this](const SseEvent& event) { take(event); }) {}

  bool begin(const hub::HttpAnswer& answer) {
    streams_ = is_success(answer.status) &&
               contains_in_any_case(answer.header("content-type"), "text/event-stream");
    return true;
  }
  bool push(std::string_view bytes) {
    if (streams_) {
      events_.push(bytes);
      return !done_ && !end_.error;
    }
    body_ += bytes;
    return body_.size() <= kLargestBody;
  }
  void finish(const std::string& url, const hub::HttpAnswer& answer) {
    if (end_.error) return;
    if (!is_success(answer.status)) {
      end_.error = refusal(url, answer, body_);
      return;
    }
    if (!streams_ && answer.failure.empty()) take_whole(url);
    if (end_.error || done_ || !end_.finish_reason.empty()) return;
    end_.error =
        Error(ErrorCode::kIo,
              fmt::format("{}: the answer broke off: {}", url,
                          answer.failure.empty() ? "the server ended it early" : answer.failure));
  }

 private:
  void take(const SseEvent& event) {
    if (done_ || end_.error) return;
    if (event.data == "[DONE]") {
      done_ = true;
      return;
    }
    const ordered_json json = parse(event.data);
    if (!at(json, {"error"}).is_null() || event.name == "error") {
      end_.error =
          Error(ErrorCode::kUnavailable,
                fmt::format("the server ended the answer: {}",
                            json.is_null() ? hub::printable(event.data) : complaint_of(json)));
      return;
    }
    if (!json.is_object())
      fail(ErrorCode::kCorruptData, "an event of the stream is no JSON object: {}",
           hub::printable(event.data));
    take_json(json, "delta");
  }

  void take_whole(const std::string& url) {
    const ordered_json json = parse(body_);
    if (!at(json, {"choices"}).is_array()) {
      end_.error = Error(ErrorCode::kCorruptData,
                         fmt::format("{} answers something else than OpenAI's JSON: {}", url,
                                     hub::printable(body_)));
      return;
    }
    take_json(json, "message");
    done_ = true;
  }

  // A chunk ("delta") or a whole answer ("message").
  void take_json(const ordered_json& json, const char* part) {
    if (const ordered_json& usage = at(json, {"usage"}); usage.is_object())
      end_.usage = {count_of(at(usage, {"prompt_tokens"})),
                    count_of(at(usage, {"prompt_tokens_details", "cached_tokens"})),
                    count_of(at(usage, {"completion_tokens"}))};
    const ordered_json& choices = at(json, {"choices"});
    if (!choices.is_array() || choices.empty()) return;
    const ordered_json& choice = choices[0];
    RemoteDelta delta;
    delta.content = text_of(at(choice, {part, "content"}));
    if (delta.content.empty()) delta.content = text_of(at(choice, {part, "refusal"}));
    delta.reasoning = text_of(at(choice, {part, "reasoning_content"}));
    if (delta.reasoning.empty()) delta.reasoning = text_of(at(choice, {part, "reasoning"}));
    if (!delta.content.empty() || !delta.reasoning.empty()) on_delta_(delta);
    if (const std::string_view why = text_of(at(choice, {"finish_reason"})); !why.empty())
      end_.finish_reason = why;
  }

  RemoteEnd& end_;
  const std::function<void(const RemoteDelta&)>& on_delta_;
  SseReader events_;
  bool streams_ = false;
  bool done_ = false;
  std::string body_;  // of what does not stream
};

hub::TransportOptions transport_options(const std::string& url) {
  hub::TransportOptions options;
  options.base = url;
  options.base_name = "--url";
  options.low_speed_time = std::chrono::seconds(0);  // a long prompt is read in silence
  return options;
}

}  // namespace

std::string base_url(std::string_view given) {
  std::string url(text::strip(given));
  if (url.find("://") == std::string::npos) url = "http://" + url;
  const size_t host = url.find("://") + 3;
  while (url.size() > host && url.ends_with('/')) url.pop_back();
  if (host >= url.size() || url.find_first_of(" \t\r\n?#") != std::string::npos)
    fail_param(ErrorCode::kInvalidArgument, "--url",
               "--url: \"{}\" is no address such as http://127.0.0.1:8080", hub::printable(given));
  return url.find('/', host) == std::string::npos ? url + "/v1" : url;
}

RemoteClient::RemoteClient(std::string_view url, std::string api_key,
                           std::unique_ptr<hub::Transport> transport)
    : url_(base_url(url)),
      api_key_(std::move(api_key)),
      transport_(transport ? std::move(transport)
                           : hub::make_curl_transport(transport_options(url_))) {}

hub::HttpRequest RemoteClient::request(std::string_view path) const {
  hub::HttpRequest request;
  request.url = url_ + std::string(path);
  request.token = api_key_;
  return request;
}

std::vector<RemoteModel> RemoteClient::models() {
  const hub::HttpRequest get = request("/models");
  std::string body;
  const hub::HttpAnswer answer = transport_->exchange(get, {{}, [&](std::string_view bytes) {
                                                              body += bytes;
                                                              return body.size() <= kLargestBody;
                                                            }});
  if (!is_success(answer.status)) throw refusal(get.url, answer, body);
  if (!answer.failure.empty())
    fail(ErrorCode::kIo, "{}: the list of models broke off: {}", get.url, answer.failure);
  const ordered_json json = parse(body);
  const ordered_json& data = at(json, {"data"});
  if (!data.is_array())
    fail(ErrorCode::kCorruptData, "{} is no list of models: {}", get.url, hub::printable(body));
  std::vector<RemoteModel> models;
  for (const ordered_json& model : data) {
    if (text_of(at(model, {"id"})).empty()) continue;
    RemoteModel found{std::string(text_of(at(model, {"id"})))};
    // Of this server, llama-server, vLLM and others.
    for (const ordered_json* said : {&at(model, {"context_window"}), &at(model, {"meta", "n_ctx"}),
                                     &at(model, {"max_model_len"}), &at(model, {"context_length"})})
      if (found.context == 0) found.context = count_of(*said).value_or(0);
    models.push_back(std::move(found));
  }
  return models;
}

RemoteEnd RemoteClient::chat(const ordered_json& body,
                             const std::function<void(const RemoteDelta&)>& on_delta,
                             const StopFlag& stop) {
  hub::HttpRequest post = request("/chat/completions");
  post.post = to_text(body);
  post.stop = &stop;
  RemoteEnd end;
  AnswerReader reader(end, on_delta);
  try {
    const hub::HttpAnswer answer = transport_->exchange(
        post, {[&](const hub::HttpAnswer& head) { return reader.begin(head); },
               [&](std::string_view bytes) { return reader.push(bytes) && !stop.is_set(); }});
    end.stopped = stop.is_set();
    if (!end.stopped) reader.finish(post.url, answer);
  } catch (const Error& error) {
    end.error = error;
  }
  return end;
}

}  // namespace mantou::cli
