// The emulated device itself: that it finds what a real one would suffer from.
#include <doctest/doctest.h>

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <csignal>
#include <thread>

#include "tests/gpu/device_array.h"

#ifdef DTRAIN_EMULATED_CUDA

#include "engine/cuda/launch.h"

namespace dtrain::engine::cuda {
namespace {

__global__ void diverge_kernel(int) {
  if (threadIdx.x % 2 == 0) {
    __syncthreads();
  } else {
    __syncwarp();
  }
}
__global__ void early_end_kernel(float* out) {
  if (threadIdx.x >= 40) return;
  __syncthreads();
  out[threadIdx.x] = 1;
}
__global__ void unset_kernel(float* out) { out[blockIdx.x] = shared_memory<float>()[threadIdx.x]; }
__global__ void place_kernel(float* out) {
  out[blockIdx.x * blockDim.x * blockDim.y + threadIdx.y * blockDim.x + threadIdx.x] += 1;
}
__global__ void sum_kernel(float* out) {
  const float sum = warp_sum(static_cast<float>(threadIdx.x % kWarp));
  // One after the other, in the same memory.
  out[threadIdx.x] = sum + block_sum(1.0f) + block_sum(2.0f);
}

__global__ void shuffle_kernel(float* out) {
  if (threadIdx.x >= 20) return;
  out[threadIdx.x] = warp_sum(1.0f);
}

// The signal that ended it.
int ended_by(const std::function<void()>& what) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    std::signal(SIGABRT, SIG_DFL);
    what();
    ::_exit(0);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  return WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

TEST_CASE("threads that wait at another barrier than the rest end the process") {
  CHECK(ended_by([&] {
          const auto context = test_context();
          launch(context->stream(), 1u, 64u, 0, &diverge_kernel, 0);
          static_cast<void>(context->device().wait());
        }) == SIGABRT);
}

TEST_CASE("threads that have ended are not waited for") {
  const auto context = test_context();
  Array<float> out(*context, size_t{64});
  launch(context->stream(), 1u, 64u, 0, &early_end_kernel, out.data());
  std::vector<float> wanted(64);
  std::fill_n(wanted.begin(), 40, 1.0f);
  CHECK(out.read() == wanted);
}

TEST_CASE("lanes that have ended give nothing to the others of their warp") {
  CHECK(ended_by([&] {
          const auto context = test_context();
          Array<float> out(*context, size_t{32});
          launch(context->stream(), 1u, 32u, 0, &shuffle_kernel, out.data());
          static_cast<void>(context->device().wait());
        }) == SIGABRT);
}

TEST_CASE("a launch beyond what a device has is an error of the next wait") {
  const auto of = [](dim3 grid, dim3 block, size_t shared_bytes) {
    const auto context = test_context();
    launch(context->stream(), grid, block, shared_bytes, &diverge_kernel, 0);
    const Status status = context->device().wait();
    return status.ok() ? "" : status.error().message;
  };
  CHECK(of(1u, 1u, 47 << 10) == "");
  const std::string shape = "start a kernel: cudaErrorInvalidConfiguration (cudaErrorInvalidConfiguration)";
  CHECK(of(1u, 1056u, 0) == shape);
  CHECK(of(1u, dim3(1, 1, 65), 0) == shape);
  CHECK(of(dim3(1, 65536), 1u, 0) == shape);
  CHECK(of(dim3(1, 1, 65536), 1u, 0) == shape);
  CHECK(of(1u, 1u, (47 << 10) + 16) == "start a kernel: cudaErrorInvalidValue (cudaErrorInvalidValue)");
}

TEST_CASE("what may not be done while a stream is captured breaks the capture") {
  const auto context = test_context();
  Array<float> out(*context, size_t{1});
  const cudaStream_t stream = context->stream();
  const auto capture = [&](const std::function<cudaError_t()>& work) {
    REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
    launch(stream, 1u, 1u, 0, &place_kernel, out.data());
    const cudaError_t done = work();
    cudaGraph_t graph = nullptr;
    const cudaError_t ended = cudaStreamEndCapture(stream, &graph);
    CHECK((graph != nullptr) == (ended == cudaSuccess));
    if (graph != nullptr) cudaGraphDestroy(graph);
    cudaGetLastError();
    CHECK((done == cudaSuccess ? ended == cudaSuccess : done == cudaErrorStreamCaptureUnsupported));
    return ended;
  };
  void* memory = nullptr;
  cudaEvent_t event = nullptr;
  REQUIRE(cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess);
  CHECK(capture([&] { return cudaSuccess; }) == cudaSuccess);
  CHECK(capture([&] { return cudaMalloc(&memory, 4); }) == cudaErrorStreamCaptureInvalidated);
  CHECK(capture([&] { return cudaFree(out.data()); }) == cudaErrorStreamCaptureInvalidated);
  CHECK(capture([&] { return cudaMallocHost(&memory, 4); }) == cudaErrorStreamCaptureInvalidated);
  CHECK(capture([&] { return cudaStreamQuery(stream); }) == cudaErrorStreamCaptureInvalidated);
  CHECK(capture([&] { return cudaStreamSynchronize(stream); }) == cudaErrorStreamCaptureInvalidated);
  CHECK(capture([&] { return cudaEventQuery(event); }) == cudaErrorStreamCaptureInvalidated);
  // Of another thread it is not.
  CHECK(capture([&] {
          std::thread([&] { REQUIRE(cudaMalloc(&memory, 4) == cudaSuccess); }).join();
          return cudaSuccess;
        }) == cudaSuccess);
  CHECK(cudaFree(memory) == cudaSuccess);
  cudaEventDestroy(event);
}

TEST_CASE("memory that nobody has written is no number") {
  const auto context = test_context();
  Array<float> out(*context, size_t{3});
  launch(context->stream(), 3u, 1u, 64, &unset_kernel, out.data());
  for (const float value : out.read()) CHECK(std::isnan(value));
  void* memory = nullptr;
  REQUIRE(cudaMalloc(&memory, 4) == cudaSuccess);
  float value = 0;
  CHECK(cudaMemcpyAsync(&value, memory, 4, cudaMemcpyDeviceToHost, nullptr) == cudaSuccess);
  CHECK(std::isnan(value));
  CHECK(cudaFree(memory) == cudaSuccess);
}

TEST_CASE("every thread of every block runs once, and sums reach all of them") {
  const auto context = test_context();
  Array<float> out(*context, size_t{5 * 7 * 3});
  launch(context->stream(), 5u, dim3(7, 3), 0, &place_kernel, out.data());
  CHECK(out.read() == std::vector<float>(5 * 7 * 3, 1.0f));
  Array<float> sums(*context, size_t{96});
  launch(context->stream(), 1u, 96u, 0, &sum_kernel, sums.data());
  CHECK(sums.read() == std::vector<float>(96, 31 * 16 + 3 * 96.0f));
}

TEST_CASE("what is captured runs when its graph does") {
  const auto context = test_context();
  Array<float> out(*context, size_t{21});
  const cudaStream_t stream = context->stream();
  REQUIRE(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) == cudaSuccess);
  launch(stream, 1u, dim3(7, 3), 0, &place_kernel, out.data());
  cudaGraph_t graph = nullptr;
  REQUIRE(cudaStreamEndCapture(stream, &graph) == cudaSuccess);
  CHECK(out.read() == std::vector<float>(21, 0.0f));
  cudaGraphExec_t executable = nullptr;
  REQUIRE(cudaGraphInstantiate(&executable, graph, 0) == cudaSuccess);
  for (int i = 0; i < 2; ++i) REQUIRE(cudaGraphLaunch(executable, stream) == cudaSuccess);
  CHECK(out.read() == std::vector<float>(21, 2.0f));
  cudaGraphDestroy(graph);
  cudaGraphExecDestroy(executable);
}

TEST_CASE("a stream waits for another one by an event alone") {
  const auto context = test_context();
  cudaStream_t other = nullptr;
  cudaEvent_t event = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking) == cudaSuccess);
  REQUIRE(cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess);
  Array<float> value(*context, size_t{1}), seen(*context, size_t{1});
  // What the other stream reads of three additions.
  const auto read_between = [&](bool waits) {
    context->device().check(cudaMemsetAsync(value.data(), 0, sizeof(float), context->stream()), "clear");
    finish(*context);
    for (int i = 0; i < 3; ++i) launch(context->stream(), 1u, 1u, 0, &place_kernel, value.data());
    CHECK(cudaEventRecord(event, context->stream()) == cudaSuccess);
    if (waits) CHECK(cudaStreamWaitEvent(other, event, 0) == cudaSuccess);
    CHECK(cudaMemcpyAsync(seen.data(), value.data(), sizeof(float), cudaMemcpyDeviceToDevice, other) == cudaSuccess);
    CHECK(cudaStreamSynchronize(other) == cudaSuccess);
    return seen.read()[0];
  };
  for (int i = 0; i < 100; ++i) CHECK(read_between(true) == 3);
  bool is_early = false;
  for (int i = 0; i < 10'000 && !is_early; ++i) is_early = read_between(false) < 3;
  CHECK(is_early);
  cudaEventDestroy(event);
  cudaStreamDestroy(other);
}

TEST_CASE("an event is reached when all before it is done, and nothing after it need be") {
  const auto context = test_context();
  const cudaStream_t stream = context->stream();
  cudaEvent_t event = nullptr;
  REQUIRE(cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess);
  CHECK(cudaEventQuery(event) == cudaSuccess);  // never recorded
  PinnedMemory<float> seen(1);
  Array<float> value(*context, std::vector<float>{1});
  finish(*context);
  for (int i = 0; i < 100; ++i) {
    *seen = 0;
    emulated::hang(0);
    launch(stream, 1u, 1u, 0, &place_kernel, value.data());
    context->device().copy_to_host(value.data(), 1, seen.data());
    REQUIRE(cudaEventRecord(event, stream) == cudaSuccess);
    CHECK(cudaEventQuery(event) == cudaErrorNotReady);
    // What the stream never comes to the end of while the event is waited for.
    std::atomic<bool> over = false;
    emulated::enqueue(stream, [&] { return over.load(); });
    emulated::recover();
    emulated::stir();
    CHECK(context->device().wait(event, {}).ok());
    CHECK(*seen == static_cast<float>(i + 2));
    CHECK(cudaStreamQuery(stream) == cudaErrorNotReady);
    over = true;
    emulated::stir();
    finish(*context);
  }
  cudaEventDestroy(event);
}

TEST_CASE("a copy from memory that a device reads by itself takes what is there later") {
  const auto context = test_context();
  Array<float> out(*context, size_t{1});
  PinnedMemory<float> pinned(1);
  bool is_late = false;
  for (int i = 0; i < 10'000 && !is_late; ++i) {
    *pinned = 1;
    for (int k = 0; k < 3; ++k) launch(context->stream(), 1u, 1u, 0, &place_kernel, out.data());
    context->device().copy_to_device(pinned.data(), 1, out.data());
    *pinned = 2;
    is_late = out.read()[0] == 2;
  }
  CHECK(is_late);
  float paged = 1;
  context->device().copy_to_device(&paged, 1, out.data());
  paged = 2;
  CHECK(out.read()[0] == 1);
}

TEST_CASE("a copy between the wrong kinds of memory is an error") {
  const auto context = test_context();
  Array<float> on_device(*context, size_t{4});
  float host[4] = {};
  CHECK(cudaMemcpyAsync(host, on_device.data(), 16, cudaMemcpyHostToDevice, nullptr) == cudaErrorInvalidValue);
  CHECK(cudaMemcpyAsync(on_device.data(), host, 16, cudaMemcpyDeviceToDevice, nullptr) == cudaErrorInvalidValue);
  CHECK(cudaMemcpyAsync(on_device.data(), host, 32, cudaMemcpyHostToDevice, nullptr) == cudaErrorInvalidValue);
  CHECK(cudaGetLastError() == cudaErrorInvalidValue);
}

TEST_CASE("a kernel and an event go to streams of their own device alone") {
  emulated::set_device_count(2);
  const auto context = test_context();
  Array<float> out(*context, size_t{21});
  cudaEvent_t event = nullptr;
  REQUIRE(cudaEventCreateWithFlags(&event, cudaEventDefault) == cudaSuccess);
  REQUIRE(cudaSetDevice(1) == cudaSuccess);
  launch(context->stream(), 1u, dim3(7, 3), 0, &place_kernel, out.data());
  CHECK(cudaGetLastError() == cudaErrorInvalidResourceHandle);
  cudaStream_t other = nullptr;
  REQUIRE(cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking) == cudaSuccess);
  CHECK(cudaEventRecord(event, other) == cudaErrorInvalidResourceHandle);
  // Copies and waits may be of any.
  float value = 1;
  CHECK(cudaMemcpyAsync(out.data(), &value, sizeof value, cudaMemcpyHostToDevice, context->stream()) == cudaSuccess);
  CHECK(cudaStreamWaitEvent(other, event, 0) == cudaSuccess);
  float milliseconds = 0;
  CHECK(cudaEventElapsedTime(&milliseconds, event, event) == cudaErrorInvalidResourceHandle);  // never recorded
  cudaStreamDestroy(other);
  cudaEventDestroy(event);
  REQUIRE(cudaSetDevice(0) == cudaSuccess);
  emulated::set_device_count(1);
}

TEST_CASE("a stream or an event that was destroyed is not used any more") {
  CHECK(ended_by([&] {
          cudaStream_t stream = nullptr;
          cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
          cudaStreamDestroy(stream);
          cudaStreamQuery(stream);
        }) == SIGABRT);
  CHECK(ended_by([&] {
          cudaEvent_t event = nullptr;
          cudaEventCreateWithFlags(&event, cudaEventDefault);
          cudaEventDestroy(event);
          cudaEventRecord(event, nullptr);
        }) == SIGABRT);
}

TEST_CASE("a call fails when a test asks for it, and all after it if it asks for that") {
  using emulated::Failing;
  void* memory = nullptr;
  emulated::fail_call(2, cudaErrorMemoryAllocation);
  REQUIRE(cudaMalloc(&memory, 4) == cudaSuccess);
  CHECK(cudaMemsetAsync(memory, 0, 4, nullptr) == cudaErrorMemoryAllocation);
  CHECK(cudaMemsetAsync(memory, 0, 4, nullptr) == cudaSuccess);
  CHECK(emulated::stop_failing());
  emulated::fail_call(1, cudaErrorIllegalAddress, Failing::FromThenOn);
  for (int i = 0; i < 2; ++i) CHECK(cudaMemsetAsync(memory, 0, 4, nullptr) == cudaErrorIllegalAddress);
  CHECK(emulated::stop_failing());
  CHECK(cudaGetLastError() == cudaErrorIllegalAddress);
  CHECK(cudaFree(memory) == cudaSuccess);
  CHECK(!emulated::stop_failing());
}

}  // namespace
}  // namespace dtrain::engine::cuda

#endif
