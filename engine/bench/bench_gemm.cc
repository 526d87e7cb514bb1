#include "engine/bench/bench_gemm.h"

#include <algorithm>
#include <array>
#include <chrono>

#include "engine/bench/ceilings.h"
#include "engine/buffer.h"
#include "engine/kernels/kernels.h"

namespace dtrain::engine {

namespace {

constexpr int kRounds = 22;  // half of them with either first

template <class Work>
double seconds_of(Work work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

struct Shape {
  Shape(int64_t rows, int64_t out, int64_t in, int64_t rows_of_sample)
      : kernel(kernels<float>(rows_of_sample)),
        m(rows),
        n(out),
        k(in),
        x(m * k),
        w(k * n),
        y(m * n),
        dx(m * k),
        dw(k * n) {
    for (int i = 0; i < 8; ++i) ends[static_cast<size_t>(i)] = (i + 1) * m / 8;
    fill_unevenly(x);
    fill_unevenly(w);
  }
  const Kernels<float>& kernel;
  int64_t m, n, k;
  Buffer<float> x, w, y, dx, dw;
  std::array<int64_t, 8> ends{};
  struct Times {
    std::vector<double> plain, right_transposed, left_transposed;
    ProductRates rates(double operations) const {
      if (plain.empty()) return {};
      return {operations / median(plain), operations / median(right_transposed), operations / median(left_transposed)};
    }
  };
  Times own, peers;

  void by_engine() {
    own.plain.push_back(seconds_of(
        [&] { kernel.gemm(m, n, k, {x.data(), k, 1}, {w.data(), n, 1}, y.data(), n, false, nullptr); }));
    own.right_transposed.push_back(seconds_of(
        [&] { kernel.gemm(m, k, n, {y.data(), n, 1}, {w.data(), 1, n}, dx.data(), k, false, nullptr); }));
    own.left_transposed.push_back(seconds_of([&] {
      const Leaves leaves{ends.data(), 8, m / 8};
      kernel.gemm_tree(k, n, leaves, {x.data(), 1, k}, {y.data(), n, 1}, dw.data(), n, false, nullptr, nullptr);
    }));
  }
  void by(const OneDnnPeer& peer) {
    peers.plain.push_back(seconds_of([&] { peer.multiply(m, n, k, {x.data(), k, 1}, {w.data(), n, 1}, y.data()); }));
    peers.right_transposed.push_back(
        seconds_of([&] { peer.multiply(m, k, n, {y.data(), n, 1}, {w.data(), 1, n}, dx.data()); }));
    peers.left_transposed.push_back(
        seconds_of([&] { peer.multiply(k, n, m, {x.data(), 1, k}, {y.data(), n, 1}, dw.data()); }));
  }
};

}  // namespace

GemmRates bench_gemm(const OneDnnPeer* peer) {
  std::vector<double> peaks;
  std::vector<Shape> shapes;
  // Of an MLP, and of GPTs with 64 or 128 rows a sample.
  for (const auto& [rows, out, in, rows_of_sample] :
       {std::array<int64_t, 4>{64, 128, 784, 1}, {64, 10, 128, 1}, {128, 512, 784, 1}, {128, 512, 512, 1},
        {768, 384, 128, 64}, {768, 512, 128, 64}, {1024, 768, 256, 128}}) {
    shapes.emplace_back(rows, out, in, rows_of_sample);
  }
  for (int i = 0; i < kRounds; ++i) {
    peaks.push_back(peak_operations(1));
    for (Shape& shape : shapes) {
      if (peer != nullptr && i % 2 == 0) shape.by(*peer);  // who goes first finds nothing in the cache
      shape.by_engine();
      if (peer != nullptr && i % 2 != 0) shape.by(*peer);
    }
  }
  GemmRates rates{.peak = median(peaks), .shapes = {}};
  for (Shape& shape : shapes) {
    const double operations = 2.0 * static_cast<double>(shape.m * shape.n * shape.k);
    rates.shapes.push_back(
        {shape.m, shape.n, shape.k, shape.own.rates(operations), shape.peers.rates(operations)});
  }
  return rates;
}

}  // namespace dtrain::engine
