// The server's certificate and key as a TLS context. Made once at the start; io thread afterwards.
#pragma once

#define BOOST_ASIO_SEPARATE_COMPILATION
#include <boost/asio/ssl/context.hpp>
#include <memory>
#include <string>

namespace mantou::server {

// TLS 1.2 or newer with the certificate chain and the private key of these PEM files; null when
// both names are empty. kInvalidArgument or kIo with the flag as param and the file in the message:
// one without the other, not readable, not PEM, locked by a password, or a key that is another
// certificate's.
std::unique_ptr<boost::asio::ssl::context> make_tls_context(const std::string& certificate_file,
                                                            const std::string& key_file);

}  // namespace mantou::server
