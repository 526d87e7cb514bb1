// Operations on rows: layer norm, sums over rows, and rows sorted by their token.
#include <doctest/doctest.h>

#include <algorithm>
#include <numeric>

#include "engine/cuda/device_kernels.h"
#include "tests/gpu/device_array.h"
#include "tests/gpu/kernels/random_arrays.h"

namespace dtrain::engine::cuda {
namespace {

template <class T>
void check_layer_norm(int64_t rows, int64_t n) {
  const auto context = test_context();
  if (!context) return;
  CAPTURE(rows);
  CAPTURE(n);
  Random random;
  CAPTURE(random.seed);
  const auto round = [](const std::vector<double>& values) { return back(to<T>(values)); };
  std::vector<double> x = round(random.normal(rows * n)), dy = round(random.normal(rows * n));
  const std::vector<double> gain = round(random.normal(n)), bias = round(random.normal(n));
  const std::vector<double> before = round(random.normal(rows * n)), sums = random.normal(n);
  for (double& value : x) value += 3;
  x = round(x);
  std::vector<double> y(x.size()), mean(static_cast<size_t>(rows)), rstd(mean), dx = before, dgain = sums, dbias = sums;
  const Kernels<double>& host = kernels<double>();
  host.layer_norm(rows, n, x.data(), gain.data(), bias.data(), y.data(), mean.data(), rstd.data());
  host.layer_norm_backward(n, {&rows, 1}, x.data(), gain.data(), mean.data(), rstd.data(), dy.data(), dx.data(),
                           dgain.data(), dbias.data(), true);

  Array<T> d_x(*context, to<T>(x)), d_dy(*context, to<T>(dy)), d_gain(*context, to<T>(gain)),
      d_bias(*context, to<T>(bias)), d_y(*context, x.size()), d_dx(*context, to<T>(before));
  Array<Sum<T>> d_mean(*context, mean.size()), d_rstd(*context, mean.size()), d_dgain(*context, to<Sum<T>>(sums)),
      d_dbias(*context, to<Sum<T>>(sums)), work(*context, static_cast<size_t>(row_workspace(n)));
  const cudaStream_t stream = context->stream();
  layer_norm(stream, rows, n, d_x.data(), d_gain.data(), d_bias.data(), d_y.data(), d_mean.data(), d_rstd.data());
  layer_norm_backward(stream, rows, n, d_x.data(), d_gain.data(), d_mean.data(), d_rstd.data(), d_dy.data(), d_dx.data(),
                      d_dgain.data(), d_dbias.data(), true, work.data());
  const double tolerance = 4 * kRounding<T>;
  check_close(back(d_y.read()), y, tolerance);
  check_close(back(d_dx.read()), dx, tolerance);
  check_close(back(d_dgain.read()), dgain, tolerance);
  check_close(back(d_dbias.read()), dbias, tolerance);
}

TEST_CASE_TEMPLATE("layer norm of every width", T, float, double, Bfloat16) {
  for (const int64_t n : {8, 31, 32, 64, 100, 128, 384, 520, 1024, 1032, 2056, 2100}) check_layer_norm<T>(n > 500 ? 5 : 19, n);
  check_layer_norm<T>(8 * kPartialRows + 300, 64);  // more rows than one for each warp of all blocks that there are sums of
}

TEST_CASE_TEMPLATE("sums over rows of every shape, and of none", T, float, double, Bfloat16) {
  const auto context = test_context();
  if (!context) return;
  Random random;
  CAPTURE(random.seed);
  for (const int64_t rows : {0, 1, 7, 300, 2100, 7000}) {
    for (const int64_t n : {1, 33, 80}) {
      CAPTURE(rows);
      CAPTURE(n);
      const std::vector<double> x = back(to<T>(random.normal(rows * n))), before = random.normal(n);
      std::vector<double> wanted = back(to<Sum<T>>(before));
      for (int64_t i = 0; i < rows * n; ++i) wanted[static_cast<size_t>(i % n)] += x[static_cast<size_t>(i)];
      Array<T> d_x(*context, to<T>(x));
      Array<Sum<T>> out(*context, to<Sum<T>>(before)), work(*context, static_cast<size_t>(row_workspace(n)));
      sum_rows(context->stream(), rows, n, d_x.data(), out.data(), true, work.data());
      check_close(back(out.read()), wanted, std::is_same_v<T, double> ? 1e-12 : 1e-4,
                  std::sqrt(static_cast<double>(rows * n)));
    }
  }
}

TEST_CASE("rows are sorted by their token, in their order") {
  const auto context = test_context();
  if (!context) return;
  Random random;
  CAPTURE(random.seed);
  for (const int64_t vocabulary : {1, 2, 300, 70'000}) {
    for (const int64_t rows : {1, 1023, 1024, 1025, 3000, 9000}) {
      CAPTURE(vocabulary);
      CAPTURE(rows);
      const std::vector<int32_t> ids = random.below(vocabulary, rows);
      Array<int32_t> d_ids(*context, ids), order(*context, ids.size()), begin(*context, static_cast<size_t>(vocabulary + 1)),
          work(*context, static_cast<size_t>(token_order_workspace(rows, vocabulary)));
      order_by_token(context->stream(), rows, vocabulary, d_ids.data(), order.data(), begin.data(), work.data());
      std::vector<int32_t> wanted(ids.size());
      std::iota(wanted.begin(), wanted.end(), 0);
      std::stable_sort(wanted.begin(), wanted.end(), [&](int32_t a, int32_t b) {
        return ids[static_cast<size_t>(a)] < ids[static_cast<size_t>(b)];
      });
      CHECK(order.read() == wanted);
      const std::vector<int32_t> begins = begin.read();
      bool right = true;
      for (int64_t token = 0; token <= vocabulary; ++token) {
        const auto smaller = std::count_if(ids.begin(), ids.end(), [&](int32_t id) { return id < token; });
        if (vocabulary > 1000 && token % 997 != 0) continue;
        right = right && begins[static_cast<size_t>(token)] == smaller;
      }
      CHECK(right);
    }
  }
}

}  // namespace
}  // namespace dtrain::engine::cuda
