// Values on a device, for a test: written and read whole.
#pragma once

#include <doctest/doctest.h>

#include <random>
#include <vector>

#include "engine/cuda/context.h"
#include "tests/support/skipped.h"

namespace dtrain::engine::cuda {

// A device to test on; nothing where there is none, which is said.
inline std::unique_ptr<Context> test_context(Fp32 fp32 = Fp32::Full) {
  const auto count = visible_devices();
  if (!count.ok() || *count == 0) {
    tests::say_skipped(count.ok() ? "no GPU is here" : count.error().message);
    return nullptr;
  }
  auto context = Context::open(0, fp32);
  if (!context.ok()) FAIL(context.error().message);
  return std::move(context).value();
}

// Waits for all that was enqueued; fails the test for what went wrong.
inline void finish(Context& context) {
  const Status status = context.device().wait();
  if (!status.ok()) FAIL(status.error().message);
  const Status all = context.status();
  if (!all.ok()) FAIL(all.error().message);
}

template <class T>
class Array {
 public:
  Array(Context& context, const std::vector<T>& values)
      : context_(context), memory_(static_cast<int64_t>(values.size())) {
    staged_ = values;
    context.device().copy_to_device(staged_.data(), memory_.size(), memory_.data());
  }
  Array(Context& context, size_t size) : Array(context, std::vector<T>(size)) {}

  T* data() { return memory_.data(); }
  std::vector<T> read() {
    std::vector<T> values(static_cast<size_t>(memory_.size()));
    context_.device().copy_to_host(memory_.data(), memory_.size(), values.data());
    finish(context_);
    return values;
  }

 private:
  Context& context_;
  DeviceMemory<T> memory_;
  std::vector<T> staged_;
};

template <class T>
std::vector<T> to(const std::vector<double>& values) {
  std::vector<T> out;
  for (const double value : values) out.push_back(static_cast<T>(static_cast<float>(value)));
  return out;
}
template <>
inline std::vector<double> to<double>(const std::vector<double>& values) {
  return values;
}
template <class T>
std::vector<double> back(const std::vector<T>& values) {
  std::vector<double> out;
  for (const T value : values) out.push_back(static_cast<double>(static_cast<Sum<T>>(value)));
  return out;
}

// What the type loses by rounding once.
template <class T>
constexpr double kRounding = 1e-5;
template <>
inline constexpr double kRounding<double> = 1e-11;
template <>
inline constexpr double kRounding<Bfloat16> = 1.0 / 256;

}  // namespace dtrain::engine::cuda
