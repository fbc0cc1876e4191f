#include "server/http_beast_session.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/post.hpp>
#include <cmath>
#include <utility>

#include "base/log.h"
#include "server/api_error.h"
#include "server/router.h"

namespace mantou::server {

namespace asio = boost::asio;
using boost::system::error_code;
using std::chrono::milliseconds;

namespace {

constexpr int kClientLeft = 499;  // in logs, as nginx has it
constexpr milliseconds kLingerTime{2000};

}  // namespace

Session::Session(const Server& server, Socket socket)
    : server_(server),
      limits_(server.options.limits),
      stream_(std::move(socket), server.tls.get()),
      timer_(*server.io),
      reader_(limits_) {}

void Session::start() {
  arm(limits_.header_time);
  stream_.handshake([this, self = shared_from_this()](error_code error) {
    if (phase_ == Phase::kClosed) return;
    if (error) {
      log_info("handshake", {{"error", error.message()}});
      return close();
    }
    become_idle();
    read();
  });
}

void Session::become_idle() {
  phase_ = Phase::kIdle;
  idle_since_ = Clock::now();
  arm(limits_.idle_time);
}

void Session::close_after_answer() {
  keep_alive_ = false;
  if (channel_) channel_->close_after();
}

void Session::begin_transfer() {
  transfer_since_ = Clock::now();
  transfer_bytes_ = 0;
}

// The next piece has `time`, all pieces together that and what the slowest rate allows.
void Session::arm_transfer(milliseconds time) {
  const milliseconds allowed{1000 * transfer_bytes_ / limits_.slowest_rate};
  const auto left = transfer_since_ + time + allowed - Clock::now();
  arm(std::clamp(std::chrono::duration_cast<milliseconds>(left), milliseconds(0), time));
}

void Session::arm(milliseconds time) {
  const uint64_t round = ++timer_round_;
  timer_.expires_after(time);
  timer_.async_wait([this, self = shared_from_this(), round](error_code error) {
    if (!error && round == timer_round_) on_timeout();
  });
}

void Session::on_timeout() {
  if (phase_ == Phase::kHeader || phase_ == Phase::kBody)
    return refuse({408, "the request did not arrive in time"});
  close();
}

void Session::close() {
  if (phase_ == Phase::kClosed) return;
  phase_ = Phase::kClosed;
  ++timer_round_;
  timer_.cancel();
  stream_.close();
  if (channel_) {
    channel_->set_gone();
    log(kClientLeft);
    channel_.reset();
  }
  server_.remove(shared_from_this());
}

void Session::read() {
  const bool full = phase_ == Phase::kResponse && input_.size() >= limits_.header_bytes;
  if (reading_ || full || client_finished_ || phase_ == Phase::kClosed) return;
  reading_ = true;
  stream_.read_some(asio::buffer(chunk_),
                    [this, self = shared_from_this()](error_code error, size_t size) {
                      reading_ = false;
                      on_read(error, size);
                    });
}

void Session::on_read(error_code error, size_t size) {
  if (phase_ == Phase::kClosed) return;
  if (error == asio::error::eof) return on_end_of_input();
  if (error) return close();
  if (phase_ != Phase::kLinger) input_.append(chunk_.data(), size);
  if (phase_ == Phase::kBody) {
    transfer_bytes_ += size;
    arm_transfer(limits_.body_time);
  }
  advance();
  read();
}

void Session::on_end_of_input() {
  client_finished_ = true;
  if (phase_ == Phase::kLinger) return close();
  if (phase_ != Phase::kResponse) return linger();
  stream_.wait_for_error([self = shared_from_this()](error_code) { self->close(); });
  if (!channel_->probe()) close();
}

void Session::advance() {
  if (phase_ == Phase::kIdle && !input_.empty()) {
    phase_ = Phase::kHeader;
    started_ = Clock::now();
    arm(limits_.header_time);
  }
  bool head_arrived = false, client_waits = false;
  while (!input_.empty() && (phase_ == Phase::kHeader || phase_ == Phase::kBody)) {
    size_t used = 0;
    const RequestReader::State state = reader_.feed(input_, used);
    input_.erase(0, used);
    if (state == RequestReader::State::kProblem) return refuse(reader_.problem());
    if (state == RequestReader::State::kDone) return dispatch(reader_.take());
    if (phase_ == Phase::kHeader && reader_.header_done()) {
      phase_ = Phase::kBody;
      head_arrived = true;
      begin_transfer();
      arm_transfer(limits_.body_time);
    }
    client_waits |= state == RequestReader::State::kContinue;
    if (used == 0) break;
  }
  if (!head_arrived) return;
  if (server_.check) {
    reader_.head().id = request_id(reader_.head());
    if (auto refusal = server_.check(reader_.head())) return answer_and_close(std::move(*refusal));
  }
  if (client_waits) {
    batch_ = {.bytes = "HTTP/1.1 100 Continue\r\n\r\n"};
    write();
  }
}

std::shared_ptr<ResponseChannel> Session::open_channel(const HttpRequest& request) {
  ResponseChannel::Options options;
  options.keep_alive = request.keep_alive && keep_alive_;
  options.http_1_0 = request.http_1_0;
  options.head_only = request.method == "HEAD";
  options.pending_limit = limits_.pending_bytes;
  options.headers = common_headers(server_.options.allowed_origins, request);
  log_id_ = request.id;
  log_method_ = request.method;
  log_path_ = request.path;
  log_bytes_ = 0;
  phase_ = Phase::kResponse;
  ++timer_round_;
  timer_.cancel();
  return std::make_shared<ResponseChannel>(std::move(options),
                                           [io = server_.io, weak = weak_from_this()] {
                                             asio::post(*io, [weak] {
                                               if (const auto self = weak.lock()) self->pump();
                                             });
                                           });
}

void Session::dispatch(HttpRequest request) {
  if (request.id.empty()) request.id = request_id(request);
  channel_ = open_channel(request);
  server_.handler(std::move(request), channel_);
  if (client_finished_ && !channel_->probe()) close();
}

void Session::refuse(const HttpProblem& problem) {
  HttpRequest& head = reader_.head();
  head.id = request_id(head);
  answer_and_close(
      error_response(problem.status, problem.message, {protocol_at(head.path), head.id}));
}

// Instead of reading on.
void Session::answer_and_close(HttpResponse response) {
  HttpRequest request = reader_.take();
  request.keep_alive = false;
  channel_ = open_channel(request);
  channel_->send(std::move(response));
}

void Session::pump() {
  if (writing_ || !channel_ || phase_ != Phase::kResponse) return;
  batch_ = channel_->take();
  if (batch_.overflow) {
    log_warn("slow client", {{"id", log_id_}, {"limit_bytes", limits_.pending_bytes}});
    return close();
  }
  if (!batch_.bytes.empty()) {
    begin_transfer();
    write();
  } else if (batch_.last) {
    response_done();
  }
}

// Writes batch_.bytes to the end; each piece the client takes renews its time.
void Session::write() {
  writing_ = true;
  if (phase_ == Phase::kResponse) arm_transfer(limits_.write_time);
  const auto rest = asio::buffer(batch_.bytes) + written_;
  stream_.write_some(rest, [this, self = shared_from_this()](error_code error, size_t size) {
    writing_ = false;
    if (phase_ == Phase::kClosed) return;
    if (error) return close();
    written_ += size;
    transfer_bytes_ += size;
    log_bytes_ += size;
    if (written_ < batch_.bytes.size()) return write();
    written_ = 0;
    batch_.bytes.clear();
    if (phase_ != Phase::kResponse) return;  // it was "100 Continue"
    ++timer_round_;
    timer_.cancel();
    if (batch_.last) return response_done();
    pump();
  });
}

void Session::response_done() {
  log(channel_->status());
  channel_.reset();
  if (batch_.close) return linger();
  batch_ = {};
  reader_ = RequestReader(limits_);
  become_idle();
  advance();
  if (client_finished_ && phase_ != Phase::kResponse) return linger();
  read();
  if (idle()) server_.idle();
}

// Lets the client read the answer before the connection goes: closing with unread input would reset
// it. What still comes in is thrown away, for a short time.
void Session::linger() {
  phase_ = Phase::kLinger;
  input_.clear();
  arm(kLingerTime);
  stream_.finish_sending([this, self = shared_from_this()](error_code) {
    if (client_finished_) close();
  });
  read();
}

void Session::log(int status) const {
  const double ms = std::chrono::duration<double, std::milli>(Clock::now() - started_).count();
  log_info("request", {{"id", log_id_},
                       {"method", log_method_},
                       {"path", log_path_},
                       {"status", status},
                       {"bytes", log_bytes_},
                       {"ms", std::round(10 * ms) / 10}});
}

}  // namespace mantou::server
