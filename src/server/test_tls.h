// For tests: certificates made on the spot, and TestClient over TLS.
#pragma once

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509.h>

#include <csignal>
#include <memory>
#include <stdexcept>
#include <string>

#include "server/test_client.h"

namespace mantou::server {

struct Identity {
  std::string certificate, key;  // PEM
};

// A self-signed certificate of localhost. With a password the key is locked by it.
inline Identity make_identity(bool rsa = false, const char* password = nullptr) {
  const auto text_of = [](BIO* bio) {
    char* data = nullptr;
    const long size = BIO_get_mem_data(bio, &data);
    std::string text(data, size_t(size));
    BIO_free(bio);
    return text;
  };
  const std::unique_ptr<EVP_PKEY, void (*)(EVP_PKEY*)> key(
      rsa ? EVP_RSA_gen(2048) : EVP_EC_gen("P-256"), EVP_PKEY_free);
  const std::unique_ptr<X509, void (*)(X509*)> certificate(X509_new(), X509_free);
  X509_set_version(certificate.get(), 2);
  ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -3600);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), 3600);
  X509_set_pubkey(certificate.get(), key.get());
  X509_NAME* name = X509_get_subject_name(certificate.get());
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>("localhost"), -1, -1, 0);
  X509_set_issuer_name(certificate.get(), name);
  X509_sign(certificate.get(), key.get(), EVP_sha256());

  Identity identity;
  BIO* bio = BIO_new(BIO_s_mem());
  PEM_write_bio_X509(bio, certificate.get());
  identity.certificate = text_of(bio);
  bio = BIO_new(BIO_s_mem());
  PEM_write_bio_PrivateKey(bio, key.get(), password ? EVP_aes_256_cbc() : nullptr, nullptr, 0,
                           nullptr, const_cast<char*>(password));
  identity.key = text_of(bio);
  return identity;
}

// Trusts any server. Throws with OpenSSL's reason when the handshake fails.
class TlsClient final : public TestClient {
 public:
  explicit TlsClient(int port, int newest_version = 0)
      : TestClient(port), context_(SSL_CTX_new(TLS_client_method()), SSL_CTX_free) {
    ::signal(SIGPIPE, SIG_IGN);  // OpenSSL writes without MSG_NOSIGNAL
    SSL_CTX_set_security_level(context_.get(), 0);
    SSL_CTX_set_min_proto_version(context_.get(), TLS1_VERSION);
    SSL_CTX_set_max_proto_version(context_.get(), newest_version);
    ssl_.reset(SSL_new(context_.get()));
    SSL_set_fd(ssl_.get(), fd_);
    ERR_clear_error();
    if (SSL_connect(ssl_.get()) != 1) {
      const char* reason = ERR_reason_error_string(ERR_get_error());
      throw std::runtime_error(reason ? reason : "closed during the handshake");
    }
  }
  void finish_sending() override { SSL_shutdown(ssl_.get()); }
  // Whether the server said that it ends, rather than that the connection broke.
  bool ended_in_order() const { return SSL_get_shutdown(ssl_.get()) & SSL_RECEIVED_SHUTDOWN; }

 private:
  ssize_t transmit(std::string_view bytes) override {
    return SSL_write(ssl_.get(), bytes.data(), int(bytes.size()));
  }
  ssize_t receive(char* into, size_t size) override {
    return SSL_read(ssl_.get(), into, int(size));
  }

  std::unique_ptr<SSL_CTX, void (*)(SSL_CTX*)> context_;
  std::unique_ptr<SSL, void (*)(SSL*)> ssl_{nullptr, SSL_free};
};

}  // namespace mantou::server
