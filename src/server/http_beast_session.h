// One connection of the HTTP server, on the io thread: reads requests, writes their answers.
//
// A connection always has one read outstanding, also while an answer is written: so a client that
// leaves is noticed at once, and pipelined requests wait in `input_`.
//
// A client that has shut down its sending side (curl and some proxies do) still gets its answers,
// but one that closed its socket looks the same until something is written to it. So that is done
// at once: "100 Continue", which every HTTP/1.1 client has to skip, or a comment in an event
// stream, see ResponseChannel::probe(). The system of a client that left answers with a reset, and
// its generation stops one round trip after it left. HTTP/1.0 knows nothing that could be written
// before an answer: there the end of input counts as leaving. One that leaves later than its end of
// input is noticed with the next piece of its answer.
#pragma once

#define BOOST_ASIO_SEPARATE_COMPILATION
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/http_beast_stream.h"
#include "server/http_server.h"
#include "server/response_channel.h"

namespace mantou::server {

class Session : public std::enable_shared_from_this<Session> {
 public:
  // What all connections of a server share; outlives them.
  struct Server {
    const HttpOptions options;
    const HttpHandler handler;
    const HeadCheck check;
    // Shared with the channels, which may be written to after the server is gone.
    const std::shared_ptr<boost::asio::io_context> io;
    const std::unique_ptr<boost::asio::ssl::context> tls;         // null: plain
    std::function<void()> idle;                                   // a connection is idle now
    std::function<void(const std::shared_ptr<Session>&)> remove;  // called by close()
  };
  using Clock = std::chrono::steady_clock;

  Session(const Server& server, Socket socket);

  void start();
  bool idle() const { return phase_ == Phase::kIdle; }  // between two requests
  Clock::time_point idle_since() const { return idle_since_; }
  void close_after_answer();  // that to the next request, when it is idle
  void close();

 private:
  enum class Phase { kHandshake, kIdle, kHeader, kBody, kResponse, kLinger, kClosed };

  void become_idle();
  void arm(std::chrono::milliseconds time);
  void begin_transfer();
  void arm_transfer(std::chrono::milliseconds time);
  void on_timeout();
  void read();
  void on_read(boost::system::error_code error, size_t size);
  void on_end_of_input();
  void advance();
  void dispatch(HttpRequest request);
  void answer_and_close(HttpResponse response);
  void refuse(const HttpProblem& problem);
  std::shared_ptr<ResponseChannel> open_channel(const HttpRequest& request);
  void pump();
  void write();
  void response_done();
  void linger();
  void log(int status) const;

  const Server& server_;
  const HttpLimits& limits_;
  Stream stream_;
  boost::asio::steady_timer timer_;
  uint64_t timer_round_ = 0;  // a timer that fires late is told by its round
  RequestReader reader_;
  Phase phase_ = Phase::kHandshake;
  bool reading_ = false, writing_ = false, keep_alive_ = true;
  bool client_finished_ = false;  // sends nothing more, may still listen
  std::vector<char> chunk_ = std::vector<char>(16 << 10);
  std::string input_;  // read, not yet consumed
  std::shared_ptr<ResponseChannel> channel_;
  ResponseChannel::Batch batch_;      // being written
  size_t written_ = 0;                // of batch_.bytes
  Clock::time_point transfer_since_;  // the body being read, or the batch being written …
  size_t transfer_bytes_ = 0;         // … and how much of it has moved
  std::string log_method_, log_path_, log_id_;
  size_t log_bytes_ = 0;  // of the answer, as they left
  Clock::time_point started_, idle_since_;
};

}  // namespace mantou::server
