// What the server listens on: an address and port, or the path of a UNIX socket.
//
// Owned by the transport; made on main's thread, used on the io thread.
#pragma once

#define BOOST_ASIO_SEPARATE_COMPILATION
#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <string>

namespace mantou::server {

class Listener {
 public:
  using Acceptor = boost::asio::basic_socket_acceptor<boost::asio::generic::stream_protocol>;

  // Listens when it returns. `host` is a path when is_socket_path() says so. A socket file that
  // nobody listens on any more is replaced; only the user who runs the server may connect to the
  // new one. kIo or kInvalidArgument naming host or port.
  Listener(boost::asio::io_context& io, const std::string& host, int port, int backlog);
  ~Listener() { close(); }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  Acceptor& acceptor() { return acceptor_; }
  int port() const { return port_; }  // 0: a UNIX socket
  void close();                       // removes the socket file, too

 private:
  void listen_tcp(const std::string& host, int port, int backlog);
  void listen_unix(int backlog);

  boost::asio::io_context& io_;
  Acceptor acceptor_;
  int port_ = 0;
  std::string path_;         // of the socket; empty: TCP, or removed
  unsigned long inode_ = 0;  // of that file, so that no other one is removed
};

}  // namespace mantou::server
