// One HTTP exchange, as fetching models and talking to other servers need it: GET, HEAD and POST,
// ranges, redirects, a token that only its own host sees.
//
// The interface is what clients talk to (hub_client.h, the chat's remote client);
// curl_transport.cc is the implementation. A transfer blocks its thread; one Transport serves one
// thread at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/stop_flag.h"

namespace mantou::hub {

struct HttpRequest {
  std::string url;
  std::string token;       // bearer; redirects to another scheme, host or port do not carry it
  bool head = false;       // headers only
  bool leave_host = true;  // false: a redirect to another host is returned, not followed
  std::string enough;      // a redirect with this header (lower case) is returned, not followed
  uint64_t from = 0;       // > 0: the bytes from here on (Range)
  std::string if_range;    // strong ETag that the range must belong to; empty: any
  std::optional<std::string> post;  // JSON: sent with POST, whose redirects are returned
  const StopFlag* stop = nullptr;   // ends the transfer as a failure; a signal that sets it is
                                    // noticed at once
};

struct HttpAnswer {
  int status = 0;                              // of the last hop; 0: no answer came
  std::map<std::string, std::string> headers;  // of the last hop, names in lower case
  std::string failure;                         // why the transfer is not whole; empty: it is
  bool passing = false;                        // the failure may go away: a cut, a timeout

  // Empty when there is no such header.
  std::string_view header(const std::string& name) const {
    const auto found = headers.find(name);
    return found == headers.end() ? std::string_view() : std::string_view(found->second);
  }
};

// Takes the last hop's answer. Either function ends the transfer by returning false (which is no
// failure) or by an exception, which exchange() passes on.
struct BodySink {
  std::function<bool(const HttpAnswer&)> begin;  // status and headers, before the first byte
  std::function<bool(std::string_view)> take;
};

class Transport {
 public:
  virtual ~Transport() = default;
  // kInvalidArgument for a URL that the rules forbid; what the network does is in the answer.
  virtual HttpAnswer exchange(const HttpRequest& request, const BodySink& sink) = 0;
};

struct TransportOptions {
  // Where requests begin. An http:// base permits http to its own host and among loopback
  // addresses; with an https:// base every hop must be https.
  std::string base;
  std::chrono::milliseconds connect_timeout{15'000};
  std::chrono::seconds low_speed_time{30};  // slower than 1 KiB/s for so long: the transfer ends;
                                            // 0: it may be silent for as long as it likes
  std::string base_name = "HF_ENDPOINT";    // what gave the base, for messages
};

std::unique_ptr<Transport> make_curl_transport(const TransportOptions& options);

}  // namespace mantou::hub
