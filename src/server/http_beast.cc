// HttpServer on Boost.Asio: callbacks on one io thread. It accepts connections and ends them;
// between the two they are on their own.
#include <sys/resource.h>

#include <algorithm>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <set>
#include <thread>

#include "base/error.h"
#include "base/log.h"
#include "server/http_beast_listener.h"
#include "server/http_beast_session.h"
#include "server/http_beast_tls.h"
#include "server/http_server.h"

namespace mantou::server {

namespace asio = boost::asio;
using boost::system::error_code;
using tcp = asio::ip::tcp;
using Clock = std::chrono::steady_clock;

namespace {

// One descriptor a connection, and some for the rest of the program. Systems' defaults are low for
// programs that would break above 1024, which this one does not.
void allow_descriptors(int connections) {
  constexpr rlim_t kOthers = 256;
  const rlim_t wanted = rlim_t(connections) + kOthers;
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= wanted) return;
  limit.rlim_cur = std::min(wanted, limit.rlim_max);
  ::setrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur < wanted)
    log_warn("few descriptors", {{"connections", connections}, {"limit", limit.rlim_cur}});
}

}  // namespace

class HttpServer::Transport {
 public:
  Transport(const HttpOptions& options, HttpHandler handler, HeadCheck check);
  ~Transport() { stop(std::chrono::milliseconds(0)); }
  int port() const { return listener_.port(); }
  std::string url() const;
  void stop_accepting() {
    asio::post(*io_, [this] { drain(); });
  }
  void stop(std::chrono::milliseconds grace);

 private:
  using Sessions = std::set<std::shared_ptr<Session>>;

  void run();
  std::shared_ptr<Session> longest_idle() const;
  void accept();
  void accept_later();
  void admit();
  void drain();
  void close_idle();
  void wait_for_sessions(Clock::time_point deadline);
  void remove(const std::shared_ptr<Session>& session);

  const std::shared_ptr<asio::io_context> io_ = std::make_shared<asio::io_context>(1);
  const Session::Server shared_;
  Listener listener_;
  asio::steady_timer accept_timer_{*io_}, stop_timer_{*io_};
  // Of the io thread alone:
  Sessions sessions_;
  std::optional<Socket> waiting_;  // accepted, but there is no room yet
  bool accepting_ = true;
  std::thread thread_;
};

HttpServer::Transport::Transport(const HttpOptions& options, HttpHandler handler, HeadCheck check)
    : shared_{.options = options,
              .handler = std::move(handler),
              .check = std::move(check),
              .io = io_,
              .tls = make_tls_context(options.certificate_file, options.key_file),
              .idle = [this] { admit(); },
              .remove = [this](const std::shared_ptr<Session>& session) { remove(session); }},
      listener_(*io_, options.host, options.port, options.backlog) {
  allow_descriptors(options.limits.connections);
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

std::string HttpServer::Transport::url() const {
  const HttpOptions& options = shared_.options;
  if (is_socket_path(options.host)) return "unix:" + options.host;
  const bool v6 = options.host.find(':') != std::string::npos;
  return fmt::format("{}://{}{}{}:{}", shared_.tls ? "https" : "http", v6 ? "[" : "", options.host,
                     v6 ? "]" : "", port());
}

std::shared_ptr<Session> HttpServer::Transport::longest_idle() const {
  std::shared_ptr<Session> found;
  for (const auto& session : sessions_) {
    if (session->idle() && (!found || session->idle_since() < found->idle_since())) found = session;
  }
  return found;
}

void HttpServer::Transport::accept() {
  if (!accepting_) return;
  listener_.acceptor().async_accept([this](error_code error, Socket socket) {
    if (!accepting_) return;
    if (error) return accept_later();
    socket.set_option(tcp::no_delay(true), error);  // fails where it means nothing
    waiting_.emplace(std::move(socket));
    admit();
  });
}

// Out of descriptors, most likely: the next attempt comes when some may be free.
void HttpServer::Transport::accept_later() {
  accept_timer_.expires_after(std::chrono::milliseconds(100));
  accept_timer_.async_wait([this](error_code) { accept(); });
}

// Of the connections that are allowed, idle ones give way; when all are busy, new ones wait: one
// here, the others in the backlog.
void HttpServer::Transport::admit() {
  if (!waiting_) return;
  if (int(sessions_.size()) >= shared_.options.limits.connections) {
    if (const auto idle = longest_idle()) idle->close();  // and remove() comes here again
    return;
  }
  const auto session = std::make_shared<Session>(shared_, std::move(*waiting_));
  waiting_.reset();
  sessions_.insert(session);
  session->start();
  accept();
}

void HttpServer::Transport::remove(const std::shared_ptr<Session>& session) {
  sessions_.erase(session);
  admit();
}

void HttpServer::Transport::drain() {
  accepting_ = false;
  listener_.close();
  accept_timer_.cancel();
  waiting_.reset();
  for (const auto& session : sessions_) session->close_after_answer();
}

void HttpServer::Transport::close_idle() {
  for (const auto& session : Sessions(sessions_)) {
    if (session->idle()) session->close();
  }
}

void HttpServer::Transport::wait_for_sessions(Clock::time_point deadline) {
  close_idle();
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
    drain();
    wait_for_sessions(deadline);
  });
  thread_.join();  // the io_context runs out of work
}

HttpServer::HttpServer(const HttpOptions& options, HttpHandler handler, HeadCheck check)
    : transport_(std::make_unique<Transport>(options, std::move(handler), std::move(check))) {}
HttpServer::~HttpServer() = default;
int HttpServer::port() const { return transport_->port(); }
std::string HttpServer::url() const { return transport_->url(); }
void HttpServer::stop_accepting() { transport_->stop_accepting(); }
void HttpServer::stop(std::chrono::milliseconds grace) { transport_->stop(grace); }

}  // namespace mantou::server
