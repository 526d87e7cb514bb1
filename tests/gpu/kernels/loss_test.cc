// The loss and its gradient, of whole rows of logits and of slices.
#include <doctest/doctest.h>

#include <limits>

#include "engine/cuda/device_kernels.h"
#include "tests/gpu/device_array.h"
#include "tests/gpu/kernels/random_arrays.h"

namespace dtrain::engine::cuda {
namespace {

// `kinds`: of logits, which are all different if it is 0. The last ones are minus infinity, and no labels.
template <class T>
void check_loss(int64_t rows, int64_t n, int64_t ld, int slices, int kinds = 0, int64_t infinite = 0) {
  const auto context = test_context();
  if (!context) return;
  CAPTURE(n);
  CAPTURE(slices);
  Random random;
  CAPTURE(random.seed);
  std::vector<double> logits = back(to<T>(random.normal(rows * n, 4)));
  if (kinds > 0) {
    for (double& each : logits) each = std::abs(static_cast<int>(each)) % kinds;
  }
  for (int64_t row = 0; row < rows; ++row) std::fill_n(logits.begin() + (row + 1) * n - infinite, infinite, -std::numeric_limits<double>::infinity());
  const std::vector<int32_t> labels = random.below(n - infinite, rows);
  std::vector<double> gradients = logits, losses(static_cast<size_t>(rows));
  kernels<double>().softmax_cross_entropy(rows, n, labels.data(), gradients.data(), losses.data());
  int64_t correct = 0;
  for (int64_t row = 0; row < rows; ++row) {
    const auto first = logits.begin() + row * n;
    correct += std::max_element(first, first + n) - first == labels[static_cast<size_t>(row)];  // the first of several
  }

  // Each slice has some columns, in rows of its own.
  const auto first_of = [&](int slice) { return n * slice / slices; };
  std::vector<Array<T>> parts;
  Array<int32_t> d_labels(*context, labels), right(*context, labels.size());
  Array<double> d_losses(*context, losses.size());
  Array<Sum<T>> told(*context, static_cast<size_t>(slices * rows * kSliceTold));
  const cudaStream_t stream = context->stream();
  const auto index = [](int64_t row, int64_t width, int64_t column) {
    return static_cast<size_t>(row * width + column);
  };
  for (int slice = 0; slice < slices; ++slice) {
    const int64_t first = first_of(slice), width = first_of(slice + 1) - first;
    std::vector<double> part(static_cast<size_t>(rows * ld), 1e4);  // beyond the width: must not count
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t i = 0; i < width; ++i) part[index(row, ld, i)] = logits[index(row, n, first + i)];
    }
    parts.emplace_back(*context, to<T>(part));
    if (slices > 1) {
      tell_slice(stream, rows, width, ld, first, d_labels.data(), parts.back().data(),
                 told.data() + slice * rows * kSliceTold);
    }
  }
  for (int slice = 0; slice < slices; ++slice) {
    const int64_t first = first_of(slice), width = first_of(slice + 1) - first;
    T* part = parts[static_cast<size_t>(slice)].data();
    if (slices == 1) {
      softmax_cross_entropy(stream, rows, width, ld, d_labels.data(), part, d_losses.data(), right.data());
    } else {
      sliced_cross_entropy(stream, rows, width, ld, first, d_labels.data(), slices, told.data(), part, d_losses.data(),
                           right.data());
    }
    std::vector<double> wanted(static_cast<size_t>(rows * ld));
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t i = 0; i < width; ++i) wanted[index(row, ld, i)] = gradients[index(row, n, first + i)];
    }
    check_close(back(parts[static_cast<size_t>(slice)].read()), wanted, 2 * kRounding<T>);
    check_close(d_losses.read(), losses, std::max(1e-11, kRounding<Sum<T>>));
    const std::vector<int32_t> hits = right.read();
    CHECK(std::accumulate(hits.begin(), hits.end(), int64_t{0}) == correct);
  }
  const std::vector<Totals> before = {{1, 2, 3}};
  Array<Totals> totals(*context, before);
  add_totals(stream, rows, d_losses.data(), right.data(), totals.data());
  const Totals after = totals.read()[0];
  CHECK(after.loss == doctest::Approx(1 + std::accumulate(losses.begin(), losses.end(), 0.0)).epsilon(1e-5));
  CHECK(after.rows == 2 + static_cast<double>(rows));
  CHECK(after.correct == 3 + static_cast<double>(correct));
}

TEST_CASE_TEMPLATE("the loss of few classes and of many, whole and in slices", T, float, double, Bfloat16) {
  check_loss<T>(37, 10, 10, 1);
  check_loss<T>(5, 1, 8, 1);
  check_loss<T>(1100, 3, 3, 1);
  check_loss<T>(3, 301, 320, 1);
  check_loss<T>(2, 6000, 6016, 1);
  check_loss<T>(3, 4097, 4097, 1);    // rows that are not aligned
  check_loss<T>(3, 9001, 9024, 1);
  check_loss<T>(1, 66000, 66048, 1);
  check_loss<T>(2, 49152 / sizeof(T), 49152 / sizeof(T), 1);  // all that a block has without asking
  check_loss<T>(9, 300, 152, 2);
  check_loss<T>(9, 301, 128, 3);
}

TEST_CASE_TEMPLATE("what is impossible adds nothing, also where a thread sees nothing else", T, float, double, Bfloat16) {
  check_loss<T>(3, 11, 11, 1, 0, 5);
  check_loss<T>(3, 41, 48, 1, 0, 30);
  check_loss<T>(2, 6000, 6016, 1, 0, 2000);
}

TEST_CASE_TEMPLATE("of logits that are as large the first is guessed", T, float, Bfloat16) {
  check_loss<T>(64, 4, 8, 1, 2);
  check_loss<T>(64, 5, 8, 2, 2);
  check_loss<T>(64, 7, 8, 3, 3);
  check_loss<T>(64, 40, 40, 1, 1);
  check_loss<T>(4, 6000, 6016, 1, 1);
}

}  // namespace
}  // namespace dtrain::engine::cuda
