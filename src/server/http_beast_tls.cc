#include "server/http_beast_tls.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <boost/asio/buffer.hpp>

#include "base/error.h"
#include "base/file.h"

namespace mantou::server {

namespace asio = boost::asio;
using boost::system::error_code;

namespace {

constexpr size_t kFileLimit = 1 << 20;

// Session tickets let clients resume; a store of sessions here would only grow.
void set_protocol(asio::ssl::context& context) {
  SSL_CTX* raw = context.native_handle();
  SSL_CTX_set_min_proto_version(raw, TLS1_2_VERSION);
  SSL_CTX_set_options(raw, SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_session_cache_mode(raw, SSL_SESS_CACHE_OFF);
}

void use_certificate(asio::ssl::context& context, const std::string& file) {
  const std::string chain = read_file(file, kFileLimit);
  error_code error;
  context.use_certificate_chain(asio::buffer(chain), error);
  if (error)
    fail_param(ErrorCode::kInvalidArgument, "ssl-cert-file",
               "--ssl-cert-file: '{}' holds no certificate in PEM form: {}", file, error.message());
}

void use_key(asio::ssl::context& context, const std::string& file, const std::string& certificate) {
  const std::string key = read_file(file, kFileLimit);
  // OpenSSL would ask for the password at the terminal.
  if (key.find("ENCRYPTED") != key.npos)
    fail_param(ErrorCode::kInvalidArgument, "ssl-key-file",
               "--ssl-key-file: the key in '{}' is locked by a password; write it without one with "
               "`openssl pkey -in … -out …`",
               file);
  error_code error;
  context.use_private_key(asio::buffer(key), asio::ssl::context::pem, error);
  const bool mismatch = error && ERR_GET_LIB(error.value()) == ERR_LIB_X509;
  if (error && !mismatch)
    fail_param(ErrorCode::kInvalidArgument, "ssl-key-file",
               "--ssl-key-file: '{}' holds no private key in PEM form: {}", file, error.message());
  if (mismatch || SSL_CTX_check_private_key(context.native_handle()) != 1)
    fail_param(ErrorCode::kInvalidArgument, "ssl-key-file",
               "--ssl-key-file: the key in '{}' does not belong to the certificate in '{}'", file,
               certificate);
}

}  // namespace

std::unique_ptr<asio::ssl::context> make_tls_context(const std::string& certificate_file,
                                                     const std::string& key_file) {
  if (certificate_file.empty() && key_file.empty()) return nullptr;
  for (const auto& [file, flag] :
       {std::pair(&certificate_file, "ssl-cert-file"), std::pair(&key_file, "ssl-key-file")}) {
    if (file->empty())
      fail_param(ErrorCode::kInvalidArgument, flag,
                 "TLS needs a certificate and its key: --{} is missing", flag);
  }
  auto context = std::make_unique<asio::ssl::context>(asio::ssl::context::tls_server);
  set_protocol(*context);
  use_certificate(*context, certificate_file);
  use_key(*context, key_file, certificate_file);
  return context;
}

}  // namespace mantou::server
