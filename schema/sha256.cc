#include "schema/sha256.h"

#include <openssl/evp.h>

namespace dtrain {

struct Sha256Stream::Context {
  EVP_MD* algorithm = EVP_MD_fetch(nullptr, "SHA256", nullptr);
  EVP_MD_CTX* context = EVP_MD_CTX_new();

  ~Context() {
    EVP_MD_CTX_free(context);
    EVP_MD_free(algorithm);
  }
  void start() {
    INVARIANT(context != nullptr && EVP_DigestInit_ex2(context, algorithm, nullptr) == 1,
              "libcrypto has SHA-256");
  }
};

Sha256Stream::Sha256Stream() : context_(std::make_unique<Context>()) {
  context_->start();
}
Sha256Stream::~Sha256Stream() = default;

void Sha256Stream::add(std::string_view bytes) {
  EVP_DigestUpdate(context_->context, bytes.data(), bytes.size());
}

Sha256 Sha256Stream::finish() {
  Sha256 digest{};
  EVP_DigestFinal_ex(context_->context, digest.data(), nullptr);
  context_->start();
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
