// The part of CUDA's runtime and language that the engine uses, on an emulated device: what is compiled by
// nvcc for a GPU is compiled with this header for the CPU, and runs there. Threads of a block are fibers, blocks
// run one after the other in a shuffled order. What is enqueued runs later, on a thread of the device's that takes a
// step of any of its streams at random; so a wait that is missing between two streams, or a copy that is waited for
// too late, shows. What only goes wrong when blocks run at the same time does not.
#pragma once

#include <math.h>  // with the overloads for float, as CUDA has them

#include <cstddef>
#include <cstdint>

#include "emulator.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) alignas(n)
// A block runs on one thread from its beginning to its end.
#define __shared__ static thread_local

using emulated::dim3;

// Of the running thread, read where they stand.
namespace emulated {
template <dim3 Here::*what, unsigned dim3::*which>
struct Coordinate {
  operator unsigned() const { return here().*what.*which; }
};
template <dim3 Here::*what>
struct Coordinates {
  Coordinate<what, &dim3::x> x;
  Coordinate<what, &dim3::y> y;
  Coordinate<what, &dim3::z> z;
};
}  // namespace emulated
inline constexpr emulated::Coordinates<&emulated::Here::thread> threadIdx{};
inline constexpr emulated::Coordinates<&emulated::Here::block> blockIdx{};
inline constexpr emulated::Coordinates<&emulated::Here::block_size> blockDim{};
inline constexpr emulated::Coordinates<&emulated::Here::grid_size> gridDim{};

inline void __syncthreads() { emulated::sync_block(); }
inline void __syncwarp(unsigned = 0xffffffff) { emulated::sync_warp(); }
template <class T>
T __shfl_sync(unsigned, T value, int lane) {
  return emulated::exchange(value, lane);
}
template <class T>
T __shfl_xor_sync(unsigned, T value, int mask) {
  return emulated::exchange(value, emulated::lane() ^ mask);
}
inline float __expf(float x) { return expf(x); }
template <class T>
T __ldg(const T* pointer) {
  return *pointer;
}

// ---- the host's side

enum cudaError_t {
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorMemoryAllocation = 2,
  cudaErrorInvalidConfiguration = 9,
  cudaErrorInsufficientDriver = 35,
  cudaErrorNoDevice = 100,
  cudaErrorInvalidDevice = 101,
  cudaErrorInvalidResourceHandle = 400,
  cudaErrorNotReady = 600,
  cudaErrorIllegalAddress = 700,
  cudaErrorStreamCaptureUnsupported = 900,
  cudaErrorStreamCaptureInvalidated = 901,
};
using cudaStream_t = emulated::Stream*;
using cudaEvent_t = emulated::Event*;
using cudaGraph_t = emulated::Graph*;
using cudaGraphExec_t = emulated::Graph*;
enum cudaMemcpyKind { cudaMemcpyHostToDevice = 1, cudaMemcpyDeviceToHost = 2, cudaMemcpyDeviceToDevice = 3 };
enum cudaStreamCaptureMode { cudaStreamCaptureModeGlobal, cudaStreamCaptureModeThreadLocal };
inline constexpr unsigned cudaStreamNonBlocking = 1, cudaHostRegisterPortable = 1, cudaEventDefault = 0,
                          cudaEventDisableTiming = 2;

struct cudaUUID_t {
  char bytes[16];
};
struct cudaDeviceProp {
  char name[256];
  cudaUUID_t uuid;
  size_t totalGlobalMem;
  int multiProcessorCount;
};
struct cudaLaunchConfig_t {
  dim3 gridDim, blockDim;
  size_t dynamicSmemBytes = 0;
  cudaStream_t stream = nullptr;
};

namespace emulated {
// What a call that uses this stream comes to before it does anything: an error that a test asked for, or that a
// kernel's stream is not of the current device.
cudaError_t call(Stream* of_kernel = nullptr);
// The same of one that is made again and again until something is done.
cudaError_t repeated_call();
cudaError_t check(const Launch& launch);
// What blocks of a kernel may have of shared memory.
size_t shared_allowed(const void* kernel);
cudaError_t allow_shared(const void* kernel, int bytes);
}  // namespace emulated
enum cudaFuncAttribute { cudaFuncAttributeMaxDynamicSharedMemorySize = 8, cudaFuncAttributePreferredSharedMemoryCarveout = 9 };
inline constexpr int cudaSharedmemCarveoutMaxShared = 100;
template <class... P>
cudaError_t cudaFuncSetAttribute(void (*kernel)(P...), cudaFuncAttribute attribute, int bytes) {
  const cudaError_t error = emulated::call();
  return error == cudaSuccess && attribute == cudaFuncAttributeMaxDynamicSharedMemorySize ? emulated::allow_shared(reinterpret_cast<const void*>(kernel), bytes) : error;
}
template <class... P, class... A>
cudaError_t cudaLaunchKernelEx(const cudaLaunchConfig_t* config, void (*kernel)(P...), A... args) {
  if (const cudaError_t error = emulated::call(config->stream); error != cudaSuccess) return error;
  const emulated::Launch launch{config->gridDim, config->blockDim, config->dynamicSmemBytes,
                               emulated::shared_allowed(reinterpret_cast<const void*>(kernel))};
  if (const cudaError_t error = emulated::check(launch); error != cudaSuccess) return error;
  emulated::enqueue(config->stream, [=] {
    emulated::run(launch, [=] { kernel(static_cast<P>(args)...); });
    return true;
  });
  return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int* count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device);
cudaError_t cudaRuntimeGetVersion(int* version);
cudaError_t cudaMalloc(void** memory, size_t bytes);
cudaError_t cudaFree(void* memory);
cudaError_t cudaMemGetInfo(size_t* free, size_t* total);
cudaError_t cudaMallocHost(void** memory, size_t bytes);
cudaError_t cudaFreeHost(void* memory);
cudaError_t cudaHostRegister(void* memory, size_t bytes, unsigned flags);
cudaError_t cudaHostUnregister(void* memory);
cudaError_t cudaMemset(void* memory, int value, size_t bytes);
cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream);
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags);
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest);
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int priority);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags);
cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags);
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream);
cudaError_t cudaEventQuery(cudaEvent_t event);
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to);
cudaError_t cudaEventDestroy(cudaEvent_t event);
cudaError_t cudaStreamQuery(cudaStream_t stream);
cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long flags);
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable);
cudaError_t cudaGetLastError();
cudaError_t cudaPeekAtLastError();
const char* cudaGetErrorString(cudaError_t error);
const char* cudaGetErrorName(cudaError_t error);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);

namespace emulated {

// ---- for tests
// The n-th call from now on fails so, or it and all that follow, as when a kernel has ended the device's context.
// Calls that give something back, ask for errors or wait are not counted.
enum class Failing { Once, FromThenOn, OnceOfClears };  // the last: of cudaMemset() alone, which are counted instead
void fail_call(int64_t n, cudaError_t error, Failing failing = Failing::Once);
// Whether it has come to that; afterwards all is well again.
bool stop_failing();

}  // namespace emulated
