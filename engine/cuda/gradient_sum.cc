#include "engine/cuda/gradient_sum.h"

namespace dtrain::engine::cuda {

std::vector<Range> buckets_of(const Layout& layout, int64_t bytes) {
  std::vector<Range> buckets;
  int64_t end = layout.size();
  for (size_t i = layout.parameters().size(); i-- > 0;) {
    const int64_t begin = i == 0 ? 0 : layout.parameters()[i].offset;
    if (i > 0 && (end - begin) * static_cast<int64_t>(sizeof(float)) < bytes) continue;
    buckets.push_back({begin, end});
    end = begin;
  }
  return buckets;
}

GradientSum::GradientSum(Device& device, Communicator& copies, const Layout& layout, float* gradients, double bucket_mb)
    : device_(device),
      copies_(copies),
      gradients_(gradients),
      buckets_(buckets_of(layout, static_cast<int64_t>(bucket_mb * 1e6))) {
  if (!overlaps()) return;
  // What waits for other GPUs goes first: it is little work, and long on its way.
  int least = 0, greatest = 0;
  device_.check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "ask for priorities");
  device_.check(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, greatest), "open a stream");
  for (cudaEvent_t* each : {&computed_, &summed_}) {
    device_.check(cudaEventCreateWithFlags(each, cudaEventDisableTiming), "make an event");
  }
}

GradientSum::~GradientSum() {
  device_.use();
  for (const cudaEvent_t each : {computed_, summed_}) {
    if (each != nullptr) cudaEventDestroy(each);
  }
  if (stream_ != nullptr) cudaStreamDestroy(stream_);
}

void GradientSum::ready(int64_t offset) {
  if (!overlaps() || started_ == buckets_.size() || buckets_[started_].begin < offset) return;
  device_.check(cudaEventRecord(computed_, device_.stream()), "mark what is computed");
  device_.check(cudaStreamWaitEvent(stream_, computed_, 0), "wait for what is computed");
  for (; started_ < buckets_.size() && buckets_[started_].begin >= offset; ++started_) {
    copies_.all_reduce(stream_, gradients_ + buckets_[started_].begin, buckets_[started_].size());
  }
}

void GradientSum::finish() {
  if (!overlaps()) {
    for (const Range bucket : buckets_) copies_.all_reduce(device_.stream(), gradients_ + bucket.begin, bucket.size());
    return;
  }
  ready(0);
  started_ = 0;
  device_.check(cudaEventRecord(summed_, stream_), "mark what is summed");
  device_.check(cudaStreamWaitEvent(device_.stream(), summed_, 0), "wait for what is summed");
}

}  // namespace dtrain::engine::cuda
