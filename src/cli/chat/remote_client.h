// A server that speaks the OpenAI protocol, seen by its client: which models it has, and answers as
// a stream. The chat's door to other servers. One thread, which a call blocks.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/stop_flag.h"
#include "hub/download/transport.h"

namespace mantou::cli {

struct RemoteModel {
  std::string id;
  int64_t context = 0;  // tokens; 0: the server does not say
};

struct RemoteUsage {
  std::optional<int64_t> prompt_tokens, cached_tokens, completion_tokens;
};

// How an answer ended. What was said before an error stands.
struct RemoteEnd {
  std::string finish_reason;  // "stop", "length", …; empty: it did not come to its end
  bool stopped = false;       // by the flag
  std::optional<Error> error = {};
  RemoteUsage usage = {};
};

struct RemoteDelta {
  std::string_view content, reasoning;
};

// "http://host:port/v1" of what a user writes: a scheme is added where there is none, "/v1" where
// there is no path. kInvalidArgument with param "--url" when it is no address.
std::string base_url(std::string_view given);

class RemoteClient {
 public:
  // `transport` is for tests; without one the network.
  RemoteClient(std::string_view url, std::string api_key,
               std::unique_ptr<hub::Transport> transport = nullptr);

  const std::string& url() const { return url_; }

  // GET /models. Errors name the address: kIo when nobody answers, kNotFound when there is no such
  // list, otherwise what the server says.
  std::vector<RemoteModel> models();

  // POST /chat/completions. `body` is a request that streams; a server that answers with one JSON
  // is understood, too. Errors are in the end.
  RemoteEnd chat(const nlohmann::ordered_json& body,
                 const std::function<void(const RemoteDelta&)>& on_delta, const StopFlag& stop);

 private:
  hub::HttpRequest request(std::string_view path) const;

  std::string url_, api_key_;
  std::unique_ptr<hub::Transport> transport_;
};

}  // namespace mantou::cli
