// Attention, by own kernels and by the library, of what the models of models_test.cc do not reach.
#include <doctest/doctest.h>

#include "engine/cuda/device_kernels.h"
#include "tests/gpu/device_array.h"
#include "tests/gpu/kernels/random_arrays.h"

namespace dtrain::engine::cuda {
namespace {

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
    const Status taken = library.value()->takes(shape, std::min(samples, samples_at_once(shape)));
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
TEST_CASE("attention by the library of more samples than it takes at once") {
  check_attention<Bfloat16>({.context = 2, .heads = 1, .width = 8}, 65'537, By::Library);
  CHECK(samples_at_once({.context = 1024, .heads = 12, .width = 768}) == 908);
  CHECK(samples_at_once({.context = 1 << 20, .heads = 12, .width = 768}) == 1);
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

}  // namespace
}  // namespace dtrain::engine::cuda
