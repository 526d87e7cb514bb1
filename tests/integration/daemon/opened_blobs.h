// Blobs below a folder, and what cases put there.
#pragma once

#include <doctest/doctest.h>

#include <filesystem>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <utility>

#include "daemon/blobs.h"

namespace dtrain::daemon {

// No blob of a case is larger.
inline constexpr uint64_t kBlobMax = 64 << 20;

inline std::unique_ptr<Blobs> open_blobs(const std::filesystem::path& folder) {
  auto blobs = Blobs::open(folder);
  if (!blobs.ok()) FAIL(blobs.error().message);
  return std::move(blobs).value();
}

inline Status put(PackWriter& pack, const std::string& bytes) {
  BlobEncoder encoder;
  const Sha256 name = sha256(bytes);
  return encoder.encode(bytes, [&](std::string_view part, bool last) {
    return pack.add(name, bytes.size(), part, last);
  });
}

inline std::string random_bytes(size_t size, uint32_t seed) {
  std::mt19937 random(seed);
  std::string bytes(size, '\0');
  for (char& c : bytes) c = static_cast<char>(random());
  return bytes;
}

inline size_t files_in(const std::filesystem::path& folder) {
  return static_cast<size_t>(
      std::distance(std::filesystem::directory_iterator(folder), std::filesystem::directory_iterator()));
}

}  // namespace dtrain::daemon
