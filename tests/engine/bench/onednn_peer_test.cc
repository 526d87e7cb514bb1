#include "engine/bench/onednn_peer.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "tests/support/skipped.h"

namespace dtrain::engine {
namespace {

TEST_CASE("oneDNN multiplies what the engine multiplies") {
  const Kernels<float>& k = kernels<float>();
  const auto peer = OneDnnPeer::find(k.isa);
  if (!peer) return tests::say_skipped("there is no libdnnl");
  CHECK(std::count(peer->version().begin(), peer->version().end(), '.') == 2);
  constexpr int64_t m = 17, n = 40, inner = 33;
  std::mt19937 random(1);
  std::normal_distribution<float> normal;
  std::vector<float> a(m * inner), b(inner * n);
  for (float& each : a) each = normal(random);
  for (float& each : b) each = normal(random);
  // The same numbers as matrices of either layout.
  const GemmA<float> as[] = {{a.data(), inner, 1}, {a.data(), 1, m}};
  const GemmB<float> bs[] = {{b.data(), n, 1}, {b.data(), 1, inner}};
  for (const GemmA<float>& left : as) {
    for (const GemmB<float>& right : bs) {
      std::vector<float> own(m * n), peers(m * n);
      k.gemm(m, n, inner, left, right, own.data(), n, false, nullptr);
      peer->multiply(m, n, inner, left, right, peers.data());
      float largest = 0, off = 0;
      for (size_t i = 0; i < own.size(); ++i) {
        largest = std::max(largest, std::abs(own[i]));
        off = std::max(off, std::abs(own[i] - peers[i]));
      }
      CHECK(largest > 5);
      CHECK(off < 1e-4f);
    }
  }
}

}  // namespace
}  // namespace dtrain::engine
