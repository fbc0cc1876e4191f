// HttpServer on Boost.Asio: callbacks on one io thread. It accepts connections and ends them;
// between the two they are on their own.
#include <boost/asio/post.hpp>
#include <set>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "server/http_beast_session.h"
#include "server/http_server.h"

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

 private:
  using Sessions = std::set<std::shared_ptr<Session>>;

  void run();
  void listen();
  void accept();
  void accept_later();
  void close_idle();
  void wait_for_sessions(Clock::time_point deadline);
  void remove(const std::shared_ptr<Session>& session);

  const std::shared_ptr<asio::io_context> io_ = std::make_shared<asio::io_context>(1);
  const Session::Server shared_;
  tcp::acceptor acceptor_{*io_};
  asio::steady_timer accept_timer_{*io_}, stop_timer_{*io_};
  Sessions sessions_;                               // io thread
  bool accepting_ = true, accept_pending_ = false;  // io thread
  int port_ = 0;
  std::thread thread_;
};

HttpServer::Transport::Transport(HttpOptions options, HttpHandler handler)
    : shared_{std::move(options), std::move(handler), io_,
              [this](const std::shared_ptr<Session>& session) { remove(session); }} {
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
      resolver.resolve(shared_.options.host, std::to_string(shared_.options.port),
                       tcp::resolver::passive | tcp::resolver::numeric_service, error);
  if (error || found.empty())
    fail_param(ErrorCode::kInvalidArgument, "host", "'{}' is not an address to listen on: {}",
               shared_.options.host, error.message());
  const tcp::endpoint endpoint = found.begin()->endpoint();
  acceptor_.open(endpoint.protocol(), error);
  if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor_.bind(endpoint, error);
  if (!error) acceptor_.listen(shared_.options.backlog, error);
  if (error == asio::error::address_in_use)
    fail_param(ErrorCode::kIo, "port",
               "port {} on {} is in use by another program; choose another with --port",
               shared_.options.port, shared_.options.host);
  if (error)
    fail_param(ErrorCode::kIo, "port", "cannot listen on {} port {}: {}", shared_.options.host,
               shared_.options.port, error.message());
  port_ = acceptor_.local_endpoint().port();
}

void HttpServer::Transport::accept() {
  if (!accepting_ || accept_pending_ || int(sessions_.size()) >= shared_.options.limits.connections)
    return;
  accept_pending_ = true;
  acceptor_.async_accept([this](error_code error, tcp::socket socket) {
    accept_pending_ = false;
    if (!accepting_) return;
    if (error) return accept_later();
    socket.set_option(tcp::no_delay(true), error);
    const auto session = std::make_shared<Session>(shared_, std::move(socket));
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
