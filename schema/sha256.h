// SHA-256, the name of everything whose content names it: blobs, manifests, snapshots.
#pragma once

#include <array>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>

#include "schema/result.h"

namespace dtrain {

using Sha256 = std::array<unsigned char, 32>;

Sha256 sha256(std::string_view bytes);
std::string to_hex(const Sha256& digest);
std::string to_bytes(const Sha256& digest);                // as messages carry it
Result<Sha256> sha256_from_bytes(std::string_view bytes);  // InvalidArgument unless 32 bytes
Result<Sha256> sha256_from_hex(
    std::string_view hex);  // InvalidArgument unless 64 lower-case digits

// A digest is random already: its first bytes are a hash.
struct Sha256Hash {
  size_t operator()(const Sha256& digest) const noexcept {
    size_t hash;
    std::memcpy(&hash, digest.data(), sizeof hash);
    return hash;
  }
};

// Hashes one stream after another; making one is the costly part.
class Sha256Stream {
 public:
  Sha256Stream();
  ~Sha256Stream();
  Sha256Stream(const Sha256Stream&) = delete;
  Sha256Stream& operator=(const Sha256Stream&) = delete;

  void add(std::string_view bytes);
  Sha256 finish();  // and starts over

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

}  // namespace dtrain
