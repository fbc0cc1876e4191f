#include "hub/download/digest.h"

#include <openssl/evp.h>

#include <span>

#include "base/error.h"

namespace mantou::hub {
namespace {

void check(int result) {
  if (result != 1) fail(ErrorCode::kInternal, "OpenSSL cannot compute a checksum");
}

}  // namespace

struct Digest::State {
  State() : context(EVP_MD_CTX_new()) { check(context != nullptr); }
  ~State() { EVP_MD_CTX_free(context); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  EVP_MD_CTX* context;
};

Digest::Digest(std::unique_ptr<State> state) : state_(std::move(state)) {}
Digest::~Digest() = default;
Digest::Digest(Digest&&) noexcept = default;
Digest& Digest::operator=(Digest&&) noexcept = default;

Digest Digest::like(std::string_view hex, uint64_t size) {
  constexpr size_t kSha1Digits = 40;
  const bool git = hex.size() == kSha1Digits;
  Digest digest(std::make_unique<State>());
  check(EVP_DigestInit_ex(digest.state_->context, git ? EVP_sha1() : EVP_sha256(), nullptr));
  if (git) {
    digest.add(fmt::format("blob {}", size));
    digest.add(std::string_view("\0", 1));
  }
  return digest;
}

void Digest::add(std::string_view bytes) {
  check(EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()));
}

std::string Digest::hex() const {
  State copy;
  check(EVP_MD_CTX_copy_ex(copy.context, state_->context));
  unsigned char value[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  check(EVP_DigestFinal_ex(copy.context, value, &size));
  std::string out;
  for (const unsigned char byte : std::span(value, size)) out += fmt::format("{:02x}", byte);
  return out;
}

}  // namespace mantou::hub
