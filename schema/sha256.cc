#include "schema/sha256.h"

// OpenSSL 3 would rather be asked through EVP, and then reads its configuration and gathers its
// algorithms first: a millisecond of every command.
#define OPENSSL_SUPPRESS_DEPRECATED
#include <openssl/sha.h>

namespace dtrain {

struct Sha256Stream::Context {
  SHA256_CTX state;
};

Sha256Stream::Sha256Stream() : context_(std::make_unique<Context>()) {
  SHA256_Init(&context_->state);
}
Sha256Stream::~Sha256Stream() = default;

void Sha256Stream::add(std::string_view bytes) {
  SHA256_Update(&context_->state, bytes.data(), bytes.size());
}

Sha256 Sha256Stream::finish() {
  Sha256 digest{};
  SHA256_Final(digest.data(), &context_->state);
  SHA256_Init(&context_->state);
  return digest;
}

Sha256 sha256(std::string_view bytes) {
  Sha256Stream stream;
  stream.add(bytes);
  return stream.finish();
}

std::string to_hex(const Sha256& digest) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string hex;
  hex.reserve(2 * digest.size());
  for (const unsigned char byte : digest) {
    hex += kDigits[byte >> 4];
    hex += kDigits[byte & 15];
  }
  return hex;
}

std::string to_bytes(const Sha256& digest) {
  return std::string(reinterpret_cast<const char*>(digest.data()), digest.size());
}

Result<Sha256> sha256_from_bytes(std::string_view bytes) {
  Sha256 digest;
  if (bytes.size() != digest.size()) {
    return Error{Code::InvalidArgument,
                 fmt::format("a SHA-256 has {} bytes, not {}", digest.size(), bytes.size()), ""};
  }
  std::memcpy(digest.data(), bytes.data(), bytes.size());
  return digest;
}

Result<Sha256> sha256_from_hex(std::string_view hex) {
  Sha256 digest{};
  bool good = hex.size() == 2 * digest.size();
  for (size_t i = 0; good && i < hex.size(); ++i) {
    const char c = hex[i];
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
    good = digit >= 0;
    digest[i / 2] = static_cast<unsigned char>(digest[i / 2] << 4 | (digit & 15));
  }
  if (!good) return Error{Code::InvalidArgument, "not a SHA-256 in 64 lower-case hex digits", ""};
  return digest;
}

}  // namespace dtrain
