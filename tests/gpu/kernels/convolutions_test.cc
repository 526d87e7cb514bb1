// Convolutions and their gradients, of every kernel.
#include <doctest/doctest.h>

#include "engine/cuda/device_kernels.h"
#include "tests/gpu/device_array.h"
#include "tests/gpu/kernels/random_arrays.h"

namespace dtrain::engine::cuda {
namespace {

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

}  // namespace
}  // namespace dtrain::engine::cuda
