// HttpServer on Boost.Asio: callbacks on one io thread.
//
// A connection always has one read outstanding, also while an answer is written: so a client that
// leaves is noticed at once, and pipelined requests wait in `input_`.
#define BOOST_ASIO_SEPARATE_COMPILATION
#include <boost/asio/buffer.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <set>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "server/api_error.h"
#include "server/http_server.h"
#include "server/response_channel.h"

namespace mantou::server {

namespace asio = boost::asio;
using boost::system::error_code;
using tcp = asio::ip::tcp;
using Clock = std::chrono::steady_clock;

class HttpServer::Transport {
 public:
  Transport(HttpOptions options, HttpHandler handler);
  ~Transport() { stop(std::chrono::milliseconds(0)); }
  int port() const { return port_; }
  void stop_accepting() {
    asio::post(*io_, [this] { close_idle(); });
  }
  void stop(std::chrono::milliseconds grace);

  class Session;
  using Sessions = std::set<std::shared_ptr<Session>>;

 private:
  void run();
  void listen();
  void accept();
  void accept_later();
  void close_idle();
  void wait_for_sessions(Clock::time_point deadline);
  void remove(const std::shared_ptr<Session>& session);

  const HttpOptions options_;
  const HttpHandler handler_;
  // Shared with the channels, which may be written to after this server is gone.
  const std::shared_ptr<asio::io_context> io_ = std::make_shared<asio::io_context>(1);
  tcp::acceptor acceptor_{*io_};
  asio::steady_timer accept_timer_{*io_}, stop_timer_{*io_};
  Sessions sessions_;                               // io thread
  bool accepting_ = true, accept_pending_ = false;  // io thread
  int port_ = 0;
  std::thread thread_;
};

class HttpServer::Transport::Session : public std::enable_shared_from_this<Session> {
 public:
  Session(Transport& server, tcp::socket socket)
      : server_(server),
        limits_(server.options_.limits),
        socket_(std::move(socket)),
        timer_(*server.io_),
        reader_(limits_) {}

  void start() {
    arm(limits_.idle_time);
    read();
  }
  // Ends the connection now when it is idle, otherwise after the answer.
  void close_when_idle() {
    if (channel_) return channel_->close_after();
    if (phase_ == Phase::kIdle) close();
    keep_alive_ = false;
  }
  void close();

 private:
  enum class Phase { kIdle, kHeader, kBody, kResponse, kLinger, kClosed };

  void arm(std::chrono::milliseconds time);
  void on_timeout();
  void read();
  void on_read(error_code error, size_t size);
  void advance();
  void dispatch(HttpRequest request);
  void refuse(const HttpProblem& problem);
  std::shared_ptr<ResponseChannel> open_channel(const HttpRequest& request);
  void pump();
  void write();
  void response_done();
  void linger();
  void log(std::string_view key, std::string_view value) const {
    log_info("request", {{"id", log_id_},
                         {"method", log_method_},
                         {"path", log_path_},
                         {"status", channel_->status()},
                         {key, value}});
  }

  Transport& server_;
  const HttpLimits& limits_;
  tcp::socket socket_;
  asio::steady_timer timer_;
  uint64_t timer_round_ = 0;  // a timer that fires late is told by its round
  RequestReader reader_;
  Phase phase_ = Phase::kIdle;
  bool reading_ = false, writing_ = false, keep_alive_ = true;
  std::vector<char> chunk_ = std::vector<char>(16 << 10);
  std::string input_;  // read, not yet consumed
  std::shared_ptr<ResponseChannel> channel_;
  ResponseChannel::Batch batch_;  // being written
  size_t written_ = 0;            // of batch_.bytes
  std::string log_method_, log_path_, log_id_;
  Clock::time_point started_;
};

using Session = HttpServer::Transport::Session;

void Session::arm(std::chrono::milliseconds time) {
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
  error_code ignored;
  socket_.close(ignored);
  if (channel_) {
    channel_->set_gone();
    log("client", "gone");
    channel_.reset();
  }
  server_.remove(shared_from_this());
}

void Session::read() {
  const bool full = phase_ == Phase::kResponse && input_.size() >= limits_.header_bytes;
  if (reading_ || full || phase_ == Phase::kClosed) return;
  reading_ = true;
  socket_.async_read_some(asio::buffer(chunk_),
                          [this, self = shared_from_this()](error_code error, size_t size) {
                            reading_ = false;
                            on_read(error, size);
                          });
}

void Session::on_read(error_code error, size_t size) {
  if (phase_ == Phase::kClosed) return;
  if (error) return close();
  if (phase_ != Phase::kLinger) input_.append(chunk_.data(), size);
  if (phase_ == Phase::kBody) arm(limits_.body_time);
  advance();
  read();
}

void Session::advance() {
  if (phase_ == Phase::kIdle && !input_.empty()) {
    phase_ = Phase::kHeader;
    started_ = Clock::now();
    arm(limits_.header_time);
  }
  while (!input_.empty() && (phase_ == Phase::kHeader || phase_ == Phase::kBody)) {
    size_t used = 0;
    const RequestReader::State state = reader_.feed(input_, used);
    input_.erase(0, used);
    if (state == RequestReader::State::kProblem) return refuse(reader_.problem());
    if (state == RequestReader::State::kDone) return dispatch(reader_.take());
    if (phase_ == Phase::kHeader && reader_.header_done()) {
      phase_ = Phase::kBody;
      arm(limits_.body_time);
    }
    if (state == RequestReader::State::kContinue) {
      batch_ = {.bytes = "HTTP/1.1 100 Continue\r\n\r\n"};
      write();
    } else if (used == 0) {
      return;
    }
  }
}

std::shared_ptr<ResponseChannel> Session::open_channel(const HttpRequest& request) {
  ResponseChannel::Options options;
  options.keep_alive = request.keep_alive && keep_alive_;
  options.http_1_0 = request.http_1_0;
  options.head_only = request.method == "HEAD";
  options.pending_limit = limits_.pending_bytes;
  options.headers = common_headers(server_.options_.allowed_origins, request);
  log_id_ = request.id;
  log_method_ = request.method;
  log_path_ = request.path;
  phase_ = Phase::kResponse;
  ++timer_round_;
  timer_.cancel();
  return std::make_shared<ResponseChannel>(std::move(options),
                                           [io = server_.io_, weak = weak_from_this()] {
                                             asio::post(*io, [weak] {
                                               if (const auto self = weak.lock()) self->pump();
                                             });
                                           });
}

void Session::dispatch(HttpRequest request) {
  request.id = request_id(request);
  channel_ = open_channel(request);
  server_.handler_(std::move(request), channel_);
}

void Session::refuse(const HttpProblem& problem) {
  HttpRequest request = reader_.take();
  request.keep_alive = false;
  request.id = request_id(request);
  channel_ = open_channel(request);
  channel_->send(error_response(problem.status, problem.message));
}

void Session::pump() {
  if (writing_ || !channel_ || phase_ != Phase::kResponse) return;
  batch_ = channel_->take();
  if (batch_.overflow) {
    log_warn("slow client", {{"id", log_id_}, {"limit_bytes", limits_.pending_bytes}});
    return close();
  }
  if (!batch_.bytes.empty()) {
    write();
  } else if (batch_.last) {
    response_done();
  }
}

// Writes batch_.bytes to the end; each piece the client takes renews its time.
void Session::write() {
  writing_ = true;
  if (phase_ == Phase::kResponse) arm(limits_.write_time);
  const auto rest = asio::buffer(batch_.bytes) + written_;
  socket_.async_write_some(rest, [this, self = shared_from_this()](error_code error, size_t size) {
    writing_ = false;
    if (phase_ == Phase::kClosed) return;
    if (error) return close();
    written_ += size;
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
  const auto ms = std::chrono::duration<double, std::milli>(Clock::now() - started_).count();
  log("ms", fmt::format("{:.1f}", ms));
  channel_.reset();
  if (batch_.close) return linger();
  batch_ = {};
  reader_ = RequestReader(limits_);
  phase_ = Phase::kIdle;
  arm(limits_.idle_time);
  advance();
  read();
}

// Lets the client read the answer before the connection goes: closing with unread input would reset
// it. What still comes in is thrown away, for a short time.
void Session::linger() {
  phase_ = Phase::kLinger;
  input_.clear();
  error_code ignored;
  socket_.shutdown(tcp::socket::shutdown_send, ignored);
  arm(std::chrono::milliseconds(2000));
  read();
}

HttpServer::Transport::Transport(HttpOptions options, HttpHandler handler)
    : options_(std::move(options)), handler_(std::move(handler)) {
  listen();
  accept();
  thread_ = std::thread([this] { run(); });
}

// A connection whose handler fails (out of memory, say) is left to its timer; the others go on.
void HttpServer::Transport::run() {
  for (;;) {
    try {
      io_->run();
      return;
    } catch (const std::exception& failure) {
      log_error("io", {{"error", failure.what()}});
    }
  }
}

void HttpServer::Transport::listen() {
  error_code error;
  tcp::resolver resolver(*io_);
  const auto found =
      resolver.resolve(options_.host, std::to_string(options_.port),
                       tcp::resolver::passive | tcp::resolver::numeric_service, error);
  if (error || found.empty())
    fail_param(ErrorCode::kInvalidArgument, "host", "'{}' is not an address to listen on: {}",
               options_.host, error.message());
  const tcp::endpoint endpoint = found.begin()->endpoint();
  acceptor_.open(endpoint.protocol(), error);
  if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor_.bind(endpoint, error);
  if (!error) acceptor_.listen(options_.backlog, error);
  if (error == asio::error::address_in_use)
    fail_param(ErrorCode::kIo, "port",
               "port {} on {} is in use by another program; choose another with --port",
               options_.port, options_.host);
  if (error)
    fail_param(ErrorCode::kIo, "port", "cannot listen on {} port {}: {}", options_.host,
               options_.port, error.message());
  port_ = acceptor_.local_endpoint().port();
}

void HttpServer::Transport::accept() {
  if (!accepting_ || accept_pending_ || int(sessions_.size()) >= options_.limits.connections)
    return;
  accept_pending_ = true;
  acceptor_.async_accept([this](error_code error, tcp::socket socket) {
    accept_pending_ = false;
    if (!accepting_) return;
    if (error) return accept_later();
    socket.set_option(tcp::no_delay(true), error);
    const auto session = std::make_shared<Session>(*this, std::move(socket));
    sessions_.insert(session);
    session->start();
    accept();
  });
}

// Out of descriptors, most likely: the next attempt comes when some may be free.
void HttpServer::Transport::accept_later() {
  accept_pending_ = true;
  accept_timer_.expires_after(std::chrono::milliseconds(100));
  accept_timer_.async_wait([this](error_code) {
    accept_pending_ = false;
    accept();
  });
}

void HttpServer::Transport::remove(const std::shared_ptr<Session>& session) {
  sessions_.erase(session);
  accept();
}

void HttpServer::Transport::close_idle() {
  accepting_ = false;
  error_code ignored;
  acceptor_.close(ignored);
  accept_timer_.cancel();
  for (const auto& session : Sessions(sessions_)) session->close_when_idle();
}

void HttpServer::Transport::wait_for_sessions(Clock::time_point deadline) {
  if (sessions_.empty()) return;
  if (Clock::now() >= deadline) {
    for (const auto& session : Sessions(sessions_)) session->close();
    return;
  }
  stop_timer_.expires_after(std::chrono::milliseconds(5));
  stop_timer_.async_wait([this, deadline](error_code) { wait_for_sessions(deadline); });
}

void HttpServer::Transport::stop(std::chrono::milliseconds grace) {
  if (!thread_.joinable()) return;
  const auto deadline = Clock::now() + grace;
  asio::post(*io_, [this, deadline] {
    close_idle();
    wait_for_sessions(deadline);
  });
  thread_.join();  // the io_context runs out of work
}

HttpServer::HttpServer(HttpOptions options, HttpHandler handler)
    : transport_(std::make_unique<Transport>(std::move(options), std::move(handler))) {}
HttpServer::~HttpServer() = default;
int HttpServer::port() const { return transport_->port(); }
void HttpServer::stop_accepting() { transport_->stop_accepting(); }
void HttpServer::stop(std::chrono::milliseconds grace) { transport_->stop(grace); }

}  // namespace mantou::server
