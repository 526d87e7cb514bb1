// Products that are cut or reach far.
#include <doctest/doctest.h>

#include "engine/cuda/device_kernels.h"
#include "tests/gpu/device_array.h"
#include "tests/gpu/kernels/random_arrays.h"

namespace dtrain::engine::cuda {
namespace {

// A [m][k], B [k][n]: rows of each, or columns, lie `ld` apart.
struct Lying {
  int64_t m, n, k, lda, ldb, ldc;
  bool a_columns = false, b_columns = false;
};

// Whole products, and the same in two, are what the sums of bf16 are.
template <class Out, class Parts>
void check_parts(const Lying& at, bool onto, Parts parts_of) {
  const auto context = test_context();
  if (!context) return;
  CAPTURE(at.m);
  CAPTURE(at.n);
  CAPTURE(at.k);
  Random random;
  CAPTURE(random.seed);
  const auto a = back(to<Bfloat16>(random.normal((at.a_columns ? at.k : at.m) * at.lda)));
  const auto b = back(to<Bfloat16>(random.normal((at.b_columns ? at.n : at.k) * at.ldb)));
  const auto c = back(to<Out>(random.normal(at.m * at.ldc)));
  Array<Bfloat16> d_a(*context, to<Bfloat16>(a)), d_b(*context, to<Bfloat16>(b));
  Array<Out> d_onto(*context, to<Out>(c)), whole(*context, to<Out>(c)), parts(*context, to<Out>(c));
  Product<Bfloat16, Out> product{.m = at.m, .n = at.n, .k = at.k, .a = {d_a.data(), at.lda, 1}, .b = {d_b.data(), at.ldb, 1},
                                 .c = whole.data(), .ldc = at.ldc, .onto = onto ? d_onto.data() : nullptr};
  if (at.a_columns) product.a = {d_a.data(), 1, at.lda};
  if (at.b_columns) product.b = {d_b.data(), 1, at.ldb};
  std::vector<double> wanted = c;
  for (int64_t m = 0; m < at.m; ++m) {
    for (int64_t n = 0; n < at.n; ++n) {
      double sum = onto ? c[static_cast<size_t>(m * at.ldc + n)] : 0;
      for (int64_t k = 0; k < at.k; ++k) {
        sum += a[static_cast<size_t>(m * product.a.row_stride + k * product.a.column_stride)] *
               b[static_cast<size_t>(k * product.b.row_stride + n * product.b.column_stride)];
      }
      wanted[static_cast<size_t>(m * at.ldc + n)] = sum;
    }
  }
  context->gemm().run(context->stream(), product);
  check_close(back(whole.read()), wanted, 2 * kRounding<Bfloat16>);
  product.c = parts.data();
  const auto two = parts_of(product);
  REQUIRE(two);
  for (const auto& part : {two->first, two->second}) REQUIRE(std::min({part.m, part.n, part.k}) > 0);
  context->gemm().run(context->stream(), two->first);
  context->gemm().run(context->stream(), two->second);
  check_close(back(parts.read()), wanted, 2 * kRounding<Bfloat16>);
}
template <class Out>
void check_cut(const Lying& at, bool onto) {
  check_parts<Out>(at, onto, [](const auto& product) { return cut(product); });
}
template <class Out>
void check_halves(const Lying& at, bool onto, int64_t most) {
  check_parts<Out>(at, onto, [most](const auto& product) { return halves(product, most); });
}

TEST_CASE("products of an odd vocabulary are the same in two") {
  check_cut<Bfloat16>({.m = 9, .n = 75, .k = 16, .lda = 16, .ldb = 16, .ldc = 128, .b_columns = true}, false);
  check_cut<Bfloat16>({.m = 9, .n = 75, .k = 16, .lda = 16, .ldb = 80, .ldc = 128}, true);
  check_cut<Bfloat16>({.m = 9, .n = 16, .k = 75, .lda = 128, .ldb = 16, .ldc = 16}, false);
  check_cut<float>({.m = 75, .n = 16, .k = 9, .lda = 128, .ldb = 16, .ldc = 16, .a_columns = true}, false);
  check_cut<float>({.m = 75, .n = 16, .k = 9, .lda = 128, .ldb = 16, .ldc = 16, .a_columns = true}, true);
}
TEST_CASE("products are not cut where that is of no use, or not the same") {
  using P = Product<Bfloat16, Bfloat16>;
  const Bfloat16 *a = nullptr, *b = nullptr;
  CHECK_FALSE(cut(P{.m = 9, .n = 16, .k = 24, .a = {a, 24, 1}, .b = {b, 16, 1}, .ldc = 16}));   // whole
  CHECK_FALSE(cut(P{.m = 9, .n = 75, .k = 16, .a = {a, 16, 1}, .b = {b, 75, 1}, .ldc = 75}));   // rows are not aligned
  CHECK_FALSE(cut(P{.m = 9, .n = 75, .k = 17, .a = {a, 24, 1}, .b = {b, 80, 1}, .ldc = 80}));   // two of them
  CHECK_FALSE(cut(P{.m = 9, .n = 7, .k = 16, .a = {a, 16, 1}, .b = {b, 8, 1}, .ldc = 8}));      // nothing is whole
  CHECK_FALSE(cut(P{.m = 9, .n = 16, .k = 75, .a = {a, 80, 1}, .b = {b, 16, 1}, .ldc = 16, .add = true}));  // rounds twice
  CHECK_FALSE(cut(P{.m = 9, .n = 75, .k = 16, .a = {a, 16, 1}, .b = {b, 80, 1}, .ldc = 80, .after = After::Gelu}));
}

TEST_CASE("products of matrices that reach too far are the same in halves") {
  // The output, an operand's rows, its columns, and what is summed over.
  check_halves<Bfloat16>({.m = 33, .n = 9, .k = 16, .lda = 16, .ldb = 16, .ldc = 64}, false, 1000);
  check_halves<Bfloat16>({.m = 33, .n = 9, .k = 16, .lda = 64, .ldb = 16, .ldc = 16}, true, 1000);
  check_halves<Bfloat16>({.m = 9, .n = 33, .k = 16, .lda = 16, .ldb = 64, .ldc = 64, .b_columns = true}, true, 1000);
  check_halves<float>({.m = 9, .n = 16, .k = 33, .lda = 64, .ldb = 16, .ldc = 16, .a_columns = true}, false, 1000);
  check_halves<float>({.m = 9, .n = 16, .k = 33, .lda = 64, .ldb = 64, .ldc = 16, .a_columns = true}, true, 1000);
  // Of few rows, columns and terms, which are long.
  for (const int64_t few : {2, 5, 8, 9}) {
    check_halves<Bfloat16>({.m = few, .n = 9, .k = 16, .lda = 128, .ldb = 16, .ldc = 16}, true, 100);
    check_halves<Bfloat16>({.m = 9, .n = few, .k = 16, .lda = 16, .ldb = 160, .ldc = 16, .b_columns = true}, false, 150);
    check_halves<float>({.m = 9, .n = 16, .k = few, .lda = 160, .ldb = 16, .ldc = 16, .a_columns = true}, true, 150);
  }
  using P = Product<Bfloat16, Bfloat16>;
  const Bfloat16 *a = nullptr, *b = nullptr;
  CHECK_FALSE(halves(P{.m = 33, .n = 9, .k = 16, .a = {a, 16, 1}, .b = {b, 16, 1}, .ldc = 16}, 1000));
  CHECK_FALSE(halves(P{.m = 65536, .n = 32768, .k = 16, .a = {a, 16, 1}, .b = {b, 32768, 1}, .ldc = 32767}));
  CHECK(halves(P{.m = 65536, .n = 32768, .k = 16, .a = {a, 16, 1}, .b = {b, 32768, 1}, .ldc = 32768}));
}
// 4.3 GB, through one column of which an emulation would take its time.
TEST_CASE("a product reaches over more than 2^31 elements, and one sums over them") {
#ifdef DTRAIN_EMULATED_CUDA
  tests::say_skipped("so much memory is a real device's");
#else
  const auto context = test_context();
  if (!context) return;
  Random random;
  CAPTURE(random.seed);
  const int64_t m = 65536, ld = 32784;
  for (const int64_t n : {1, 9, 16}) {
    CAPTURE(n);
    constexpr int64_t k = 16;
    const auto x = back(to<Bfloat16>(random.normal(m * k))), w = back(to<Bfloat16>(random.normal(k * 16)));
    Array<Bfloat16> d_x(*context, to<Bfloat16>(x)), d_w(*context, to<Bfloat16>(w));
    Array<float> sums(*context, static_cast<size_t>(n * k));
    DeviceMemory<Bfloat16> far(m * ld);
    context->gemm().run(context->stream(), Product<Bfloat16, Bfloat16>{.m = m, .n = n, .k = k, .a = {d_x.data(), k, 1},
                                                                       .b = {d_w.data(), 16, 1}, .c = far.data(), .ldc = ld});
    context->gemm().run(context->stream(), Product<Bfloat16, float>{.m = n, .n = k, .k = m, .a = {far.data(), 1, ld},
                                                                    .b = {d_x.data(), k, 1}, .c = sums.data(), .ldc = k});
    std::vector<Bfloat16> read(static_cast<size_t>(m * n));
    context->device().check(cudaMemcpy2DAsync(read.data(), static_cast<size_t>(n) * sizeof(Bfloat16), far.data(),
                                              static_cast<size_t>(ld) * sizeof(Bfloat16), static_cast<size_t>(n) * sizeof(Bfloat16),
                                              static_cast<size_t>(m), cudaMemcpyDeviceToHost, context->stream()),
                            "copy columns");
    finish(*context);
    const auto y = back(read);
    std::vector<double> wanted(y.size()), wanted_sums(static_cast<size_t>(n * k));
    for (int64_t row = 0; row < m; ++row) {
      for (int64_t column = 0; column < n; ++column) {
        const auto at = static_cast<size_t>(row * n + column);
        for (int64_t i = 0; i < k; ++i) {
          wanted[at] += x[static_cast<size_t>(row * k + i)] * w[static_cast<size_t>(i * 16 + column)];
          wanted_sums[static_cast<size_t>(column * k + i)] += y[at] * x[static_cast<size_t>(row * k + i)];
        }
      }
    }
    check_close(y, wanted, 2 * kRounding<Bfloat16>);
    check_close(back(sums.read()), wanted_sums, kRounding<float>, 1000);
  }
#endif
}

}  // namespace
}  // namespace dtrain::engine::cuda
