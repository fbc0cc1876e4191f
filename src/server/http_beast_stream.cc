#include "server/http_beast_stream.h"

#include <boost/asio/ssl/stream.hpp>
#include <utility>

namespace mantou::server {

namespace asio = boost::asio;
using boost::system::error_code;

struct Stream::Tls {
  asio::ssl::stream<Socket&> stream;
};

Stream::Stream(Socket socket, asio::ssl::context* tls) : socket_(std::move(socket)) {
  if (tls) tls_ = std::make_unique<Tls>(Tls{asio::ssl::stream<Socket&>(socket_, *tls)});
}

Stream::~Stream() = default;

void Stream::handshake(Done done) {
  if (!tls_) return done({});
  tls_->stream.async_handshake(asio::ssl::stream_base::server, std::move(done));
}

void Stream::read_some(asio::mutable_buffer into, Moved moved) {
  if (tls_)
    tls_->stream.async_read_some(into, std::move(moved));
  else
    socket_.async_read_some(into, std::move(moved));
}

void Stream::write_some(asio::const_buffer from, Moved moved) {
  if (tls_)
    tls_->stream.async_write_some(from, std::move(moved));
  else
    socket_.async_write_some(from, std::move(moved));
}

void Stream::wait_for_error(Done done) { socket_.async_wait(Socket::wait_error, std::move(done)); }

void Stream::finish_sending(Done done) {
  if (tls_) return tls_->stream.async_shutdown(std::move(done));
  error_code error;
  socket_.shutdown(Socket::shutdown_send, error);
  done(error);
}

void Stream::close() {
  error_code ignored;
  socket_.close(ignored);
}

}  // namespace mantou::server
