// Operations by themselves, of sizes and kinds that the models of models_test.cc do not reach.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "engine/buffer.h"
#include "engine/cuda/device_kernels.h"
#include "engine/optimizer.h"
#include "tests/gpu/device_array.h"

namespace dtrain::engine::cuda {
namespace {

struct Random {
  Random() : seed(std::random_device{}()), engine(seed) {}
  std::vector<double> normal(int64_t count, double scale = 1) {
    std::normal_distribution<double> distribution(0, scale);
    std::vector<double> values(static_cast<size_t>(count));
    for (double& value : values) value = distribution(engine);
    return values;
  }
  std::vector<int32_t> below(int64_t limit, int64_t count) {
    std::vector<int32_t> values(static_cast<size_t>(count));
    for (int32_t& value : values) value = static_cast<int32_t>(engine() % static_cast<uint64_t>(limit));
    return values;
  }
  const uint64_t seed;
  std::mt19937_64 engine;
};

// `terms`: the length of what was summed, where it may cancel out.
void check_close(const std::vector<double>& got, const std::vector<double>& wanted, double tolerance,
                 double terms = 0) {
  REQUIRE(got.size() == wanted.size());
  double apart = 0, length = 0, largest = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    apart += std::pow(got[i] - wanted[i], 2);
    length += std::pow(wanted[i], 2);
    largest = std::max(largest, std::abs(got[i] - wanted[i]));
  }
  CHECK(std::isfinite(apart));
  CHECK(std::sqrt(apart) <= tolerance * (std::sqrt(length) + terms));
  CHECK(largest <= 100 * tolerance * (1 + terms + std::sqrt(length / static_cast<double>(got.size()))));
}

enum class By { OwnKernels, Library };

template <class T>
void check_attention(const AttentionShape& shape, int64_t samples, By by = By::OwnKernels) {
  const auto context = test_context();
  if (!context) return;
  CAPTURE(shape.context);
  CAPTURE(shape.width / shape.heads);
  Random random;
  CAPTURE(random.seed);
  const int64_t rows = samples * shape.context;
  const std::vector<double> qkv = back(to<T>(random.normal(rows * 3 * shape.width)));
  const std::vector<double> dout = back(to<T>(random.normal(rows * shape.width)));
  const size_t size = static_cast<size_t>(rows * shape.width);
  std::vector<double> out(size), log_sums(static_cast<size_t>(rows * shape.heads)), dqkv(3 * size);
  const Kernels<double>& host = kernels<double>();
  host.attention(shape, samples, qkv.data(), out.data(), log_sums.data());
  host.attention_backward(shape, samples, qkv.data(), log_sums.data(), dout.data(), dqkv.data());

  Array<T> d_qkv(*context, to<T>(qkv)), d_dout(*context, to<T>(dout)), d_out(*context, size), d_dqkv(*context, 3 * size);
  Array<Sum<T>> d_log_sums(*context, log_sums.size()), work(*context, log_sums.size());
  const cudaStream_t stream = context->stream();
  if (by == By::OwnKernels) {
    attention(stream, shape, samples, d_qkv.data(), d_out.data(), d_log_sums.data());
    attention_backward(stream, shape, samples, d_qkv.data(), d_out.data(), d_log_sums.data(), d_dout.data(),
                       d_dqkv.data(), work.data());
  } else if (const auto library = FusedAttention::open(context->device()); !library.ok()) {
    return tests::say_skipped(library.error().message);
  } else {
    const Status taken = library.value()->takes(shape, samples);
    if (!taken.ok()) FAIL(taken.error().message);
    const DeviceKernels<T> kernels(*context);
    kernels.attention(shape, samples, d_qkv.data(), d_out.data(), d_log_sums.data());
    kernels.attention_backward(shape, samples, d_qkv.data(), d_out.data(), d_log_sums.data(), d_dout.data(), d_dqkv.data());
  }
  check_close(back(d_out.read()), out, kRounding<T>);
  check_close(back(d_log_sums.read()), log_sums, kRounding<T>);
  check_close(back(d_dqkv.read()), dqkv, 4 * kRounding<T>);
}

TEST_CASE_TEMPLATE("attention of every width and length", T, float, double, Bfloat16) {
  check_attention<T>({.context = 1, .heads = 3, .width = 24}, 2);
  check_attention<T>({.context = 33, .heads = 1, .width = 5}, 2);
  check_attention<T>({.context = 70, .heads = 2, .width = 64}, 1);
  check_attention<T>({.context = 17, .heads = 1, .width = 64}, 1);
}
#ifndef DTRAIN_EMULATED_CUDA  // which would take minutes for so many blocks
TEST_CASE("attention of more samples than a grid has in its second and third dimension") {
  check_attention<float>({.context = 1, .heads = 1, .width = 1}, 65'536);
}
#endif
TEST_CASE("attention of the widest heads") {
  check_attention<float>({.context = 40, .heads = 1, .width = kMaxHeadWidth}, 1);
  check_attention<Bfloat16>({.context = 40, .heads = 1, .width = kMaxHeadWidth}, 1);
}
TEST_CASE("attention by the library") {
  check_attention<Bfloat16>({.context = 2, .heads = 3, .width = 24}, 2, By::Library);
  check_attention<Bfloat16>({.context = 33, .heads = 2, .width = 32}, 3, By::Library);
  check_attention<Bfloat16>({.context = 70, .heads = 3, .width = 192}, 2, By::Library);
}
TEST_CASE("attention of a large batch by the library's fastest kernels is that of own kernels") {
#ifdef DTRAIN_EMULATED_CUDA
  tests::say_skipped("so much attention takes an emulation minutes");
#else
  const auto context = test_context();
  if (!context) return;
  const AttentionShape shape{.context = 1024, .heads = 12, .width = 768};
  const int64_t samples = 16, rows = samples * shape.context, size = rows * shape.width;
  if (context->fused_attention(shape, samples) == nullptr) return tests::say_skipped("cuDNN is not here");
  Random random;
  CAPTURE(random.seed);
  Array<Bfloat16> qkv(*context, to<Bfloat16>(random.normal(3 * size))), dout(*context, to<Bfloat16>(random.normal(size)));
  struct Answer {
    std::vector<double> out, log_sums, dqkv;
  };
  const auto answer = [&](auto forward, auto backward) {
    Array<Bfloat16> out(*context, static_cast<size_t>(size)), dqkv(*context, static_cast<size_t>(3 * size));
    Array<float> log_sums(*context, static_cast<size_t>(rows * shape.heads));
    forward(out.data(), log_sums.data());
    backward(out.data(), log_sums.data(), dqkv.data());
    return Answer{back(out.read()), back(log_sums.read()), back(dqkv.read())};
  };
  const cudaStream_t stream = context->stream();
  Array<float> work(*context, static_cast<size_t>(rows * shape.heads));
  const Answer own = answer(
      [&](Bfloat16* out, float* log_sums) { attention(stream, shape, samples, qkv.data(), out, log_sums); },
      [&](Bfloat16* out, float* log_sums, Bfloat16* dqkv) {
        attention_backward(stream, shape, samples, qkv.data(), out, log_sums, dout.data(), dqkv, work.data());
      });
  const DeviceKernels<Bfloat16> kernels(*context);
  for (int times = 0; times < 2; ++times) {  // the first time kernels are timed
    const Answer library = answer(
        [&](Bfloat16* out, float* log_sums) { kernels.attention(shape, samples, qkv.data(), out, log_sums); },
        [&](Bfloat16* out, float* log_sums, Bfloat16* dqkv) {
          kernels.attention_backward(shape, samples, qkv.data(), out, log_sums, dout.data(), dqkv);
        });
    check_close(library.out, own.out, kRounding<Bfloat16>);
    check_close(library.log_sums, own.log_sums, kRounding<Bfloat16>);
    check_close(library.dqkv, own.dqkv, 4 * kRounding<Bfloat16>);
  }
#endif
}
TEST_CASE("what the library does not take, own kernels do") {
  const auto context = test_context();
  if (!context) return;
  CHECK(context->fused_attention({.context = 20, .heads = 2, .width = 10}, 1) == nullptr);
}

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
  for (const int64_t n : {8, 31, 32, 64, 100, 128, 384, 520, 1024, 1032, 2100}) check_layer_norm<T>(n > 500 ? 5 : 19, n);
  check_layer_norm<T>(300, 64);  // more rows than a block has warps, and than there are partial sums of
}

template <class T>
void check_convolution(const ConvShape& shape, int64_t blocks) {
  const auto context = test_context();
  if (!context) return;
  CAPTURE(shape.in_channels);
  CAPTURE(shape.out_channels);
  CAPTURE(shape.kernel);
  Random random;
  CAPTURE(random.seed);
  const int64_t filters_size = shape.out_channels * shape.in_channels * shape.kernel * shape.kernel;
  const auto in = back(to<T>(random.normal(blocks * shape.in_size()))), filters = back(to<T>(random.normal(filters_size)));
  auto dout = back(to<T>(random.normal(blocks * shape.dout_size())));
  for (size_t at = 0; at < dout.size(); ++at) {
    const int64_t pixel = static_cast<int64_t>(at) / kBlockImages;
    const int64_t x = pixel % shape.dout_width() - shape.dout_padding, y = pixel / shape.dout_width() % shape.dout_height() - shape.dout_padding;
    if (x < 0 || x >= shape.out_width() || y < 0 || y >= shape.out_height()) dout[at] = 0;
  }
  const auto sums_before = random.normal(filters_size + shape.out_channels);
  std::vector<double> out(static_cast<size_t>(blocks * shape.out_size())), sums = sums_before;
  const Kernels<double>& host = kernels<double>();
  std::vector<double> room(static_cast<size_t>(host.filter_room(shape)));
  for (int64_t block = 0; block < blocks; ++block) {
    host.conv(shape, in.data() + block * shape.in_size(), host.ready_filters(shape, filters.data(), room.data()),
              out.data() + block * shape.out_size());
  }
  host.conv_filter_gradient(shape, {&blocks, 1}, in.data(), dout.data(), sums.data(), true);
  host.conv_bias_gradient(shape, {&blocks, 1}, dout.data(), sums.data() + filters_size, true);

  const cudaStream_t stream = context->stream();
  Array<T> d_in(*context, to<T>(in)), d_filters(*context, to<T>(filters)), d_dout(*context, to<T>(dout)), d_out(*context, out.size());
  Array<Sum<T>> d_sums(*context, to<Sum<T>>(sums_before)), work(*context, static_cast<size_t>(conv_gradients_workspace(shape, blocks)));
  conv(stream, shape, blocks, d_in.data(), d_filters.data(), d_out.data());
  conv_gradients(stream, shape, blocks, d_in.data(), d_dout.data(), d_sums.data(), d_sums.data() + filters_size, true, work.data());
  check_close(back(d_out.read()), out, kRounding<T>);
  const auto sums_read = back(d_sums.read());
  check_close(sums_read, sums, std::is_same_v<T, Bfloat16> ? kRounding<float> : kRounding<T>, static_cast<double>(blocks * shape.out_size()));
}

TEST_CASE_TEMPLATE("convolutions of every kernel, of few channels and of many", T, float, double, Bfloat16) {
  check_convolution<T>({1, 6, 5, 12, 11, 0}, 2);
  check_convolution<T>({6, 5, 5, 7, 9, 2}, 1);
  check_convolution<T>({2, 3, 3, 4, 3, 1}, 3);
  check_convolution<T>({3, 9, 1, 3, 12, 0}, 1);
  check_convolution<T>({2, 2, 7, 8, 9, 3}, 1);
  check_convolution<T>({130, 3, 3, 4, 5, 0}, 1);  // more channels than are there at once
}

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

template <class T>
void check_loss(int64_t rows, int64_t n, int64_t ld, int slices) {
  const auto context = test_context();
  if (!context) return;
  CAPTURE(n);
  CAPTURE(slices);
  Random random;
  CAPTURE(random.seed);
  const std::vector<double> logits = back(to<T>(random.normal(rows * n, 4)));
  const std::vector<int32_t> labels = random.below(n, rows);
  std::vector<double> gradients = logits, losses(static_cast<size_t>(rows));
  const int64_t correct =
      kernels<double>().softmax_cross_entropy(rows, n, labels.data(), gradients.data(), losses.data());

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
    // Of bf16 logits two may be the same.
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
  check_loss<T>(3, 301, 320, 1);
  check_loss<T>(2, 6000, 6016, 1);
  check_loss<T>(3, 4097, 4097, 1);    // rows that are not aligned
  check_loss<T>(3, 9001, 9024, 1);
  check_loss<T>(1, 66000, 66048, 1);  // more than threads keep
  check_loss<T>(2, 49152 / sizeof(T), 49152 / sizeof(T), 1);  // all that a block has without asking
  check_loss<T>(9, 300, 152, 2);
  check_loss<T>(9, 301, 128, 3);
}

TEST_CASE("rows are sorted by their token, in their order") {
  const auto context = test_context();
  if (!context) return;
  Random random;
  CAPTURE(random.seed);
  for (const int64_t vocabulary : {1, 2, 300, 70'000}) {
    for (const int64_t rows : {1, 1023, 1024, 1025, 3000}) {
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

TEST_CASE("updates have the bits of the CPU's") {
  const auto context = test_context();
  if (!context) return;
  Random random;
  CAPTURE(random.seed);
  OptimizerSpec spec;
  SUBCASE("plain") {}
  SUBCASE("momentum and decay") { spec = {.momentum = 0.9, .weight_decay = 0.01}; }
  SUBCASE("nesterov") { spec = {.momentum = 0.9, .nesterov = true}; }
  SUBCASE("adam") { spec = {.kind = Optimizer::Adam, .learning_rate = 0.001, .weight_decay = 0.1}; }
  SUBCASE("adamw") { spec = {.kind = Optimizer::AdamW, .learning_rate = 0.001, .weight_decay = 0.1}; }
  Layout layout;
  layout.add({.name = "w", .shape = {1003}});
  const OptimizerKernel optimizer(spec, layout);
  const int64_t count = layout.size();
  std::vector<float> params = to<float>(random.normal(count)), grads = to<float>(random.normal(count, 20));
  std::vector<float> first(params.size()), second(params.size());
  Array<float> d_params(*context, params), d_grads(*context, grads), d_first(*context, first), d_second(*context, second);
  Array<Bfloat16> copy(*context, params.size());
  Array<Totals> totals(*context, std::vector<Totals>{{1.5, 40, 0}});
  Array<StepScale> scale(*context, std::vector<StepScale>(1));
  const cudaStream_t stream = context->stream();
  for (int64_t step = 1; step <= 3; ++step) {
    const OptimizerStep at{.learning_rate = spec.learning_rate, .gradient_scale = 1.0 / 40, .step = step};
    optimizer.update({0, count}, at, params.data(), grads.data(), first.data(), second.data());
    step_scale(stream, totals.data(), 0, scale.data());
    optimizer.for_runs({0, count}, [&](Range range, bool decays) {
      const int64_t b = range.begin;
      if (spec.kind == Optimizer::Sgd) {
        const SgdConstants c = optimizer.sgd(at, decays);
        update_sgd(stream, range.size(), {c.decay, c.momentum, c.minus_rate, spec.nesterov}, scale.data(),
                   d_params.data() + b, d_grads.data() + b, optimizer.states() > 0 ? d_first.data() + b : nullptr,
                   copy.data() + b);
      } else {
        const AdamConstants c = optimizer.adam(at, decays);
        update_adam(stream, range.size(),
                    {c.l2, c.shrink, c.take1, c.beta2, c.take2, c.root_correction, c.epsilon, c.minus_step_size},
                    scale.data(), d_params.data() + b, d_grads.data() + b, d_first.data() + b, d_second.data() + b,
                    copy.data() + b);
      }
    });
  }
  CHECK(d_params.read() == params);
  if (optimizer.states() > 0) CHECK(d_first.read() == first);
  if (optimizer.states() > 1) CHECK(d_second.read() == second);
  CHECK(back(copy.read()) == back(to<Bfloat16>(back(params))));
}

TEST_CASE("nothing is updated when a number is none, and clipping takes from the scale") {
  const auto context = test_context();
  if (!context) return;
  const cudaStream_t stream = context->stream();
  const int64_t count = 3 * 4096 + 100;
  std::vector<float> grads(static_cast<size_t>(count), 2);
  const double nan = std::nan("");
  const auto scale_of = [&](const Totals& totals, double clip) {
    Array<float> d_grads(*context, grads);
    Array<double> squares(*context, size_t{4});
    Array<Totals> d_totals(*context, std::vector<Totals>{totals});
    Array<StepScale> scale(*context, std::vector<StepScale>(1));
    block_squares(stream, count, d_grads.data(), squares.data());
    CHECK(squares.read() == std::vector<double>{4 * 4096, 4 * 4096, 4 * 4096, 400});
    add_squares(stream, 4, squares.data(), d_totals.data());
    CHECK(d_totals.read()[0].squares == totals.squares + 4 * static_cast<double>(count));
    step_scale(stream, d_totals.data(), clip, scale.data());
    return scale.read()[0];
  };
  CHECK(scale_of({1, 10, 0}, 0).scale == 0.1f);
  CHECK(scale_of({1, 10, 0}, 1000).scale == 0.1f);
  const double norm = 2 * std::sqrt(static_cast<double>(count)) / 10;
  CHECK(scale_of({1, 10, 0}, 3).scale == doctest::Approx(0.1 * 3 / norm).epsilon(1e-5));
  CHECK(scale_of({1, 10, 0, 12 * static_cast<double>(count)}, 3).scale == doctest::Approx(0.05 * 3 / norm).epsilon(1e-5));
  CHECK(scale_of({1, 10, 0}, 3).finite == 1);
  CHECK(scale_of({nan, 10, 0}, 3).finite == 0);
  CHECK(scale_of({INFINITY, 10, 0}, 0).finite == 0);

  Array<StepScale> broken(*context, std::vector<StepScale>{{1, 0}});
  Array<float> params(*context, grads), d_grads(*context, grads);
  update_sgd(stream, count, {0, 0, -1, false}, broken.data(), params.data(), d_grads.data(), nullptr, nullptr);
  CHECK(params.read() == grads);
}

TEST_CASE_TEMPLATE("sums over rows of every shape, and of none", T, float, double, Bfloat16) {
  const auto context = test_context();
  if (!context) return;
  Random random;
  CAPTURE(random.seed);
  for (const int64_t rows : {0, 1, 7, 300, 2100}) {
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

}  // namespace
}  // namespace dtrain::engine::cuda
