#include "server/http_beast_listener.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "server/http_server.h"

namespace mantou::server {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;
using Local = asio::local::stream_protocol;

namespace {

// 0, or why nothing can be reached behind the socket file. Never waits.
int connect_error(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.data(), path.size());
  const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
  if (fd < 0) return errno;
  ::fcntl(fd, F_SETFL, O_NONBLOCK);
  const auto* raw = reinterpret_cast<const sockaddr*>(&address);
  const int error = ::connect(fd, raw, sizeof address) == 0 ? 0 : errno;
  ::close(fd);
  return error;
}

// Removes what a server that could not end in order has left.
void remove_stale_socket(const std::string& path) {
  struct stat status{};
  if (::lstat(path.c_str(), &status) != 0) return;
  if (!S_ISSOCK(status.st_mode))
    fail_param(ErrorCode::kIo, "host",
               "'{}' is there and is no socket; remove it or choose another --host", path);
  if (const int error = connect_error(path); error != ECONNREFUSED)
    fail_param(ErrorCode::kIo, "host",
               "another program listens at {} ({}); end it or choose another --host", path,
               error == 0 ? "it answers" : std::strerror(error));
  ::unlink(path.c_str());
}

unsigned long inode_of(const std::string& path) {
  struct stat status{};
  return ::lstat(path.c_str(), &status) == 0 ? status.st_ino : 0;
}

}  // namespace

Listener::Listener(asio::io_context& io, const std::string& host, int port, int backlog)
    : io_(io), acceptor_(io) {
  if (is_socket_path(host)) {
    path_ = host;
    listen_unix(backlog);
  } else {
    listen_tcp(host, port, backlog);
  }
}

void Listener::listen_tcp(const std::string& host, int port, int backlog) {
  error_code error;
  tcp::resolver resolver(io_);
  const auto found = resolver.resolve(
      host, std::to_string(port), tcp::resolver::passive | tcp::resolver::numeric_service, error);
  if (error || found.empty())
    fail_param(ErrorCode::kInvalidArgument, "host", "'{}' is not an address to listen on: {}", host,
               error.message());
  const tcp::endpoint endpoint = found.begin()->endpoint();
  tcp::acceptor acceptor(io_);
  acceptor.open(endpoint.protocol(), error);
  if (!error) acceptor.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(backlog, error);
  if (error == asio::error::address_in_use)
    fail_param(ErrorCode::kIo, "port",
               "port {} on {} is in use by another program; choose another with --port", port,
               host);
  if (error)
    fail_param(ErrorCode::kIo, "port", "cannot listen on {} port {}: {}", host, port,
               error.message());
  port_ = acceptor.local_endpoint().port();
  acceptor_ = std::move(acceptor);
}

void Listener::listen_unix(int backlog) {
  const std::string path = path_;
  if (path.size() >= sizeof(sockaddr_un::sun_path))
    fail_param(ErrorCode::kInvalidArgument, "host",
               "the socket path '{}' has {} bytes, the system takes {}", path, path.size(),
               sizeof(sockaddr_un::sun_path) - 1);
  path_.clear();  // until the file is ours
  remove_stale_socket(path);
  error_code error;
  Local::acceptor acceptor(io_);
  acceptor.open(Local(), error);
  if (!error) acceptor.bind(Local::endpoint(path), error);
  if (!error) {
    path_ = path;
    inode_ = inode_of(path);
    // Nobody can connect before listen(), so nobody slips in between.
    if (::chmod(path.c_str(), S_IRUSR | S_IWUSR) != 0)
      error = error_code(errno, boost::system::system_category());
  }
  if (!error) acceptor.listen(backlog, error);
  if (error) {
    close();
    fail_param(ErrorCode::kIo, "host", "cannot listen at {}: {}", path, error.message());
  }
  acceptor_ = std::move(acceptor);
}

void Listener::close() {
  error_code ignored;
  acceptor_.close(ignored);
  if (!path_.empty() && inode_of(path_) == inode_) ::unlink(path_.c_str());
  path_.clear();
}

}  // namespace mantou::server
