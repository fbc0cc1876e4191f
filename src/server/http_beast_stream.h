// The bytes of one connection, whatever carries them: TCP or a UNIX socket, with TLS or without.
//
// Owned by a Session and used on the io thread alone. One read, one write and one wait may be
// outstanding at a time; the caller keeps the Stream alive until their callbacks have run.
#pragma once

#define BOOST_ASIO_SEPARATE_COMPILATION
#include <boost/asio/buffer.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <functional>
#include <memory>

namespace boost::asio::ssl {
class context;
}

namespace mantou::server {

using Socket = boost::asio::generic::stream_protocol::socket;

class Stream {
 public:
  using Done = std::function<void(boost::system::error_code)>;
  using Moved = std::function<void(boost::system::error_code, size_t)>;

  Stream(Socket socket, boost::asio::ssl::context* tls);  // null: what is sent is what is meant
  ~Stream();

  void handshake(Done done);  // before anything else; calls back at once without TLS
  void read_some(boost::asio::mutable_buffer into, Moved moved);
  void write_some(boost::asio::const_buffer from, Moved moved);
  // Calls back at a reset by the other side, or with close().
  void wait_for_error(Done done);
  // The other side reads the end of input after what was written; it may still send.
  void finish_sending(Done done);
  void close();

 private:
  struct Tls;
  Socket socket_;
  std::unique_ptr<Tls> tls_;
};

}  // namespace mantou::server
