// Which products leave a background out. Run for each instruction set (discover.cmake).
#include <doctest/doctest.h>

#include <string_view>
#include <vector>

#include "engine/models/host_kernels.h"
#include "tests/engine/kernels/random_matrix.h"

namespace dtrain::engine {
namespace {

constexpr float kBackground = -0.7f;
constexpr int64_t kRows = 64, kInputs = 784;

// A third is background.
std::vector<float> images() {
  std::vector<float> pixels = random_matrix(kRows * kInputs, 1);
  for (size_t i = 0; i < pixels.size(); i += 3) pixels[i] = kBackground;
  return pixels;
}

// Whatever a matrix is, a product that leaves its background out has other bits than one that doesn't.
bool leaves_out(int64_t columns, float share) {
  const HostKernels<float> kernels;
  const std::vector<float> a = images(), b = random_matrix(kInputs * columns, 2), bias = random_matrix(columns, 3);
  std::vector<float> all(static_cast<size_t>(kRows * columns)), found(all);
  kernels.gemm_bias(kRows, columns, kInputs, {a.data(), kInputs, 1}, {b.data(), columns, 1}, bias.data(), all.data());
  kernels.gemm_bias(kRows, columns, kInputs, {a.data(), kInputs, 1, {kBackground, share}}, {b.data(), columns, 1}, bias.data(), found.data());
  return found != all;
}

bool gradient_leaves_out(int64_t leaf, float share) {
  const HostKernels<float> kernels;
  constexpr int64_t kColumns = 128;
  const std::vector<float> a = images(), b = random_matrix(kRows * kColumns, 2);
  std::vector<int64_t> ends;
  for (int64_t end = leaf; end <= kRows; end += leaf) ends.push_back(end);
  const Leaves leaves{ends.data(), static_cast<int>(ends.size()), leaf};
  std::vector<float> all(static_cast<size_t>(kInputs * kColumns)), found(all);
  kernels.gemm_tree(kInputs, kColumns, leaves, {a.data(), 1, kInputs}, {b.data(), kColumns, 1}, all.data(), kColumns, false);
  kernels.gemm_tree(kInputs, kColumns, leaves, {a.data(), 1, kInputs, {kBackground, share}}, {b.data(), kColumns, 1}, found.data(), kColumns, false);
  return found != all;
}

TEST_CASE("a background is left out where so much of the images is that it pays with this instruction set") {
  const std::string_view isa = kernels<float>().isa;
  const BackgroundShares shares = kernels<float>().background;
  const bool can = isa != "baseline";
  CHECK(leaves_out(512, 0.8f) == can);
  CHECK(leaves_out(128, 0.8f) == can);
  CHECK(leaves_out(512, 0.42f) == (isa == "avx2" || isa == "zen4"));
  CHECK(leaves_out(128, 0.42f) == (isa == "zen4"));
  for (const int64_t columns : {512, 128}) CHECK_FALSE(leaves_out(columns, 0.2f));
  // With AMX gradients of so long leaves are by tiles.
  CHECK(gradient_leaves_out(16, 0.8f) == (can && isa != "amx"));
  CHECK(gradient_leaves_out(8, 0.8f) == (isa == "zen4"));
  for (const int64_t leaf : {8, 16}) CHECK_FALSE(gradient_leaves_out(leaf, shares.of_gradient - 0.1f));
}

}  // namespace
}  // namespace dtrain::engine
