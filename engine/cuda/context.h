// What the operations of one participant have in common on its GPU: the device, the libraries of products
// and of attention, memory to work in, and what came of a step.
#pragma once

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "engine/cuda/device.h"
#include "engine/cuda/fused_attention.h"
#include "engine/cuda/gemm.h"
#include "engine/cuda/memory.h"

namespace dtrain::engine::cuda {

class Context {
 public:
  // ResourceExhausted: the device has not enough memory.
  static Result<std::unique_ptr<Context>> open(int ordinal, Fp32 fp32) {
    TRY(auto device, Device::open(ordinal));
    const std::string name = device->name();
    try {
      TRY(auto gemm, Gemm::open(*device, fp32));
      return std::unique_ptr<Context>(new Context(std::move(device), std::move(gemm)));
    } catch (const std::bad_alloc&) {
      return lacks_memory(name, "anything", "nvidia-smi shows who else computes on it");
    }
  }

  Device& device() { return *device_; }
  Gemm& gemm() { return *gemm_; }
  // nullptr: there is none, or it does not take these; why is said once. Looked for when it is first asked for,
  // since it is large.
  FusedAttention* fused_attention(const AttentionShape& shape, int64_t samples) {
    if (!attention_) attention_.emplace(FusedAttention::open(*device_));
    const Error* why = attention_->ok() ? nullptr : &attention_->error();
    if (why == nullptr) {
      const Status& taken = attention_->value()->takes(shape, samples);
      if (taken.ok()) return attention_->value().get();
      why = &taken.error();
    }
    if (!std::exchange(told_why_, true)) {
      fmt::print(stderr, "{}: attention without tensor cores: {}\n", device_->described(), why->message);
    }
    return nullptr;
  }
  cudaStream_t stream() const { return device_->stream(); }
  // Of all samples since it was cleared; what a model's forward() adds to.
  Totals* totals() { return totals_.data(); }

  // Memory that an operation works in until the next one asks. It grows, which must not be while a graph is
  // captured: what is captured has run before. What it was stays, for graphs still work in it.
  template <class T>
  T* work(int64_t count) {
    const int64_t bytes = count * static_cast<int64_t>(sizeof(T));
    if (work_.empty() || work_.back().size() < bytes) work_.emplace_back(bytes);
    return reinterpret_cast<T*>(work_.back().data());
  }

  // Of all that was enqueued.
  Status status() const {
    TRY(device_->status());
    if (attention_ && attention_->ok()) TRY(attention_->value()->status());
    return gemm_->status();
  }

 private:
  Context(std::unique_ptr<Device> device, std::unique_ptr<Gemm> gemm)
      : device_(std::move(device)), gemm_(std::move(gemm)), totals_(1) {}

  std::unique_ptr<Device> device_;
  std::unique_ptr<Gemm> gemm_;
  std::optional<Result<std::unique_ptr<FusedAttention>>> attention_;  // once it was looked for
  bool told_why_ = false;
  DeviceMemory<Totals> totals_;
  std::vector<DeviceMemory<unsigned char>> work_;
};

}  // namespace dtrain::engine::cuda
