// How kernels are started, and what they have in common. Included by *.cu alone.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "engine/cuda/kernels.h"

namespace dtrain::engine::cuda {

inline constexpr int kWarp = 32;
inline constexpr unsigned kThreads = 256;  // of a block, where nothing else is said

inline unsigned blocks_for(int64_t count, int64_t each) {
  return static_cast<unsigned>((count + each - 1) / each);
}

// An error of the launch stays with the runtime, where Device::wait() finds it.
template <class... P, class... A>
void launch(cudaStream_t stream, dim3 grid, dim3 block, size_t shared_bytes, void (*kernel)(P...), A... args) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return;
  cudaLaunchConfig_t config = {};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  static_cast<void>(cudaLaunchKernelEx(&config, kernel, static_cast<P>(args)...));
}

// Whether blocks of it may have so much shared memory: more than 48 KiB, with what the kernel has by name, has to be asked
// for, and not every chip has it.
template <class... P>
bool may_share(void (*kernel)(P...), size_t bytes) {
  if (bytes <= 32 << 10) return true;
  if (cudaPeekAtLastError() != cudaSuccess) return false;   // of a launch before: it stays to be found
  const bool allowed =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)) == cudaSuccess &&
      // Of what serves both, the cache gets the rest: else a multiprocessor might have room for one block alone.
      cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared) == cudaSuccess;
  if (!allowed) cudaGetLastError();  // done without
  return allowed;
}

// The block's memory of the size that its launch asked for.
template <class T>
__device__ T* shared_memory() {
#ifdef DTRAIN_EMULATED_CUDA
  return static_cast<T*>(emulated::shared_memory());
#else
  extern __shared__ __align__(32) unsigned char shared_bytes[];  // of four doubles at once
  return reinterpret_cast<T*>(shared_bytes);
#endif
}

// ---- N values that are read and written at once: 16 bytes where that goes

template <class T>
inline constexpr int kPack = 16 / static_cast<int>(sizeof(T));

template <class T, int N>
struct __align__(sizeof(T) * N) Pack {
  T values[N];
  __device__ T& operator[](int i) { return values[i]; }
  __device__ const T& operator[](int i) const { return values[i]; }
};
template <int N, class T>
__device__ Pack<T, N> load(const T* from) {
  return *reinterpret_cast<const Pack<T, N>*>(from);
}
template <int N, class T>
__device__ void store(T* to, const Pack<T, N>& pack) {
  *reinterpret_cast<Pack<T, N>*>(to) = pack;
}

// The same in as few registers as they are bytes: a thread that keeps many of a pack's bfloat16 would have each in a
// register of its own. Elements are read wide.
template <class T, int N>
struct Held {
  static_assert(sizeof(T) * N % sizeof(uint32_t) == 0);
  static constexpr int kWords = static_cast<int>(sizeof(T)) * N / static_cast<int>(sizeof(uint32_t));
  Pack<uint32_t, kWords> words;

  __device__ Sum<T> operator[](int i) const {
    Sum<T> value;
    if constexpr (sizeof(T) == 2) {
      const uint32_t bits = i % 2 == 0 ? words[i / 2] << 16 : words[i / 2] & 0xffff0000u;
      std::memcpy(&value, &bits, sizeof value);
    } else if constexpr (sizeof(T) == 4) {
      const uint32_t bits = words[i];
      std::memcpy(&value, &bits, sizeof value);
    } else {
      const uint64_t bits = uint64_t{words[2 * i + 1]} << 32 | words[2 * i];
      std::memcpy(&value, &bits, sizeof value);
    }
    return value;
  }
};
template <int N, class T>
__device__ Held<T, N> hold(const T* from) {
  return {load<Held<T, N>::kWords>(reinterpret_cast<const uint32_t*>(from))};
}

template <class T, int N>
__device__ void keep(T* to, const Held<T, N>& pack) {
  store(reinterpret_cast<uint32_t*>(to), pack.words);
}

// Whether rows of n, and all of these pointers, can be read in whole packs.
template <class T, class... Pointers>
bool takes_packs(int64_t n, const Pointers*... pointers) {
  const bool aligned = ((reinterpret_cast<uintptr_t>(pointers) % (kPack<T> * sizeof(Pointers)) == 0) && ...);
  return n % kPack<T> == 0 && aligned;
}

// ---- for every element: op.run<N>(i) does elements [i, i + N) of a row of n, `column` being where in its
// row the first is

template <int N, class Op>
__global__ void each_kernel(int64_t rows, int64_t n, Op op) {
  for (int64_t row = blockIdx.y; row < rows; row += gridDim.y) {
    for (int64_t column = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) * N; column < n;
         column += static_cast<int64_t>(gridDim.x) * blockDim.x * N) {
      op.template run<N>(row * n + column, column);
    }
  }
}
template <int N, class Op>
void each(cudaStream_t stream, int64_t rows, int64_t n, Op op) {
  if (rows == 0 || n == 0) return;
  const int64_t packs = (n + N - 1) / N;
  const auto threads = static_cast<unsigned>(std::min<int64_t>(kThreads, (packs + kWarp - 1) / kWarp * kWarp));
  const dim3 grid(std::min(blocks_for(packs, threads), 1u << 20),
                  static_cast<unsigned>(std::min<int64_t>(rows, 65535)));
  launch(stream, grid, threads, 0, &each_kernel<N, Op>, rows, n, op);
}
template <class T, class Op, class... Pointers>
void each_row(cudaStream_t stream, int64_t rows, int64_t n, Op op, const Pointers*... pointers) {
  if (takes_packs<T>(n, pointers...)) {
    each<kPack<T>>(stream, rows, n, op);
  } else {
    each<1>(stream, rows, n, op);
  }
}

// ---- sums over a warp or a block, in a fixed order, for all of its threads

template <class S>
__device__ S warp_sum(S value) {
  for (int mask = kWarp / 2; mask > 0; mask /= 2) value += __shfl_xor_sync(0xffffffff, value, mask);
  return value;
}
// What is no number is the largest: all threads see it, or none.
template <class S>
__device__ S warp_max(S value) {
  for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    const S other = __shfl_xor_sync(0xffffffff, value, mask);
    value = other > value || other != other ? other : value;
  }
  return value;
}
// Of blocks of whole warps in one dimension.
template <class S>
__device__ S block_sum(S value) {
  __shared__ S sums[kWarp];
  const unsigned warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, warps = blockDim.x / kWarp;
  value = warp_sum(value);
  __syncthreads();  // nobody still reads what was there
  if (lane == 0) sums[warp] = value;
  __syncthreads();
  S sum = 0;
  for (unsigned i = 0; i < warps; ++i) sum += sums[i];
  return sum;
}

template <class T>
__device__ Sum<T> wide(T value) {
  return static_cast<Sum<T>>(value);
}

}  // namespace dtrain::engine::cuda
