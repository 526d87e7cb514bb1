#include <type_traits>

#include "engine/cuda/launch.h"

namespace dtrain::engine::cuda {

namespace {

constexpr unsigned kMostThreads = 1024;

// Rows of a few classes take a warp each, those of a vocabulary a block of many.
unsigned threads_for(int64_t n) {
  const int64_t each = n >= 4096 ? 16 : 4;
  const int64_t threads = (n / each + kWarp - 1) / kWarp * kWarp;
  return static_cast<unsigned>(std::clamp<int64_t>(threads, kWarp, kMostThreads));
}

// A vocabulary has so many of them that they take longer than its memory. What becomes bf16 need not have all bits.
template <class T>
__device__ Sum<T> exponential(Sum<T> x) {
  if constexpr (std::is_same_v<T, Bfloat16>) {
    return __expf(x);
  } else {
    return exp(x);
  }
}

// What exponentials of values are taken beside, of which `most` is the largest: where that is minus infinity they are 0.
template <class S>
__device__ S beside(S most) {
  return most == -INFINITY ? S(0) : most;
}

// The largest of some values, and the sum of exp(value - it).
template <class S>
struct Exponentials {
  S most, sum;
};
template <class T>
__device__ Exponentials<Sum<T>> joined(Exponentials<Sum<T>> a, Exponentials<Sum<T>> b) {
  using S = Sum<T>;
  const S most = a.most > b.most ? a.most : b.most;
  // Of nothing yet the sum is 0, and minus infinity less itself is no number.
  const S from_a = a.sum == S(0) ? S(0) : a.sum * exponential<T>(a.most - most);
  const S from_b = b.sum == S(0) ? S(0) : b.sum * exponential<T>(b.most - most);
  return {most, from_a + from_b};
}
template <class T>
__device__ Exponentials<Sum<T>> warp_exponentials(Exponentials<Sum<T>> mine) {
  for (int mask = kWarp / 2; mask > 0; mask /= 2) {
    mine = joined<T>(mine, {__shfl_xor_sync(0xffffffff, mine.most, mask), __shfl_xor_sync(0xffffffff, mine.sum, mask)});
  }
  return mine;
}
template <class T>
__device__ Exponentials<Sum<T>> block_exponentials(Exponentials<Sum<T>> mine) {
  using S = Sum<T>;
  __shared__ S most[kWarp], sums[kWarp];
  const unsigned warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp, warps = blockDim.x / kWarp;
  mine = warp_exponentials<T>(mine);
  if (lane == 0) {
    most[warp] = mine.most;
    sums[warp] = mine.sum;
  }
  __syncthreads();
  const Exponentials<S> of_lane = lane < warps ? Exponentials<S>{most[lane], sums[lane]} : Exponentials<S>{-INFINITY, 0};
  const Exponentials<S> all = warp_exponentials<T>(of_lane);
  __syncthreads();
  return all;
}

// Of a row of n logits, by a whole block. Reads packs from where they are aligned.
template <class T>
__device__ Exponentials<Sum<T>> exponentials_of(const T* row, int64_t n) {
  using S = Sum<T>;
  constexpr int N = kPack<T>;
  S most = -INFINITY;
  S sum = 0;
  const auto take = [&](const auto& values, int count) {
    S largest = wide(values[0]);
    for (int k = 1; k < count; ++k) largest = wide(values[k]) > largest ? wide(values[k]) : largest;
    if (largest > most) {
      sum *= exponential<T>(most - largest);  // of nothing yet 0 by 0
      most = largest;
    }
    const S from = beside(most);
    for (int k = 0; k < count; ++k) sum += exponential<T>(wide(values[k]) - from);
  };
  const bool packs = reinterpret_cast<uintptr_t>(row) % 16 == 0;
  const int64_t whole = packs ? n / N * N : 0;
  for (int64_t i = static_cast<int64_t>(threadIdx.x) * N; i < whole; i += static_cast<int64_t>(blockDim.x) * N) {
    take(load<N>(row + i), N);
  }
  for (int64_t i = whole + threadIdx.x; i < n; i += blockDim.x) take(row + i, 1);
  return block_exponentials<T>({most, sum});
}

// Whether a row's largest logit is the label's, and no other one before it: of several that are as large, as those of
// bf16 often are, the first is guessed. By a whole block, which has seen the row's end of block_exponentials().
template <class T>
__device__ bool guesses(const T* row, int64_t label, Sum<T> of_label, Sum<T> most) {
  if (!(of_label == most)) return false;
  int before = 0;
  for (int64_t i = threadIdx.x; i < label; i += blockDim.x) before += wide(row[i]) == most ? 1 : 0;
  return block_sum(before) == 0;
}

// logit -> exp(logit - log_sum) - (1 at the label); zeros beyond n.
template <class T>
__device__ void become_gradients(T* row, int64_t n, int64_t ld, int64_t label, Sum<T> log_sum) {
  using S = Sum<T>;
  const auto gradient = [&](int64_t i, S value) {
    if (i >= n) return S(0);
    return exponential<T>(value - log_sum) - (i == label ? S(1) : S(0));
  };
  constexpr int N = kPack<T>;
  const bool packs = reinterpret_cast<uintptr_t>(row) % 16 == 0;
  const int64_t whole = packs ? ld / N * N : 0;
  for (int64_t i = static_cast<int64_t>(threadIdx.x) * N; i < whole; i += static_cast<int64_t>(blockDim.x) * N) {
    auto values = load<N>(row + i);
    for (int k = 0; k < N; ++k) values[k] = static_cast<T>(gradient(i + k, wide(values[k])));
    store(row + i, values);
  }
  for (int64_t i = whole + threadIdx.x; i < ld; i += blockDim.x) {
    row[i] = static_cast<T>(gradient(i, wide(row[i])));
  }
}

template <class T>
__global__ void __launch_bounds__(kMostThreads) softmax_cross_entropy_kernel(int64_t n, int64_t ld, const int32_t* labels, T* logits, double* losses,
                                             int32_t* right) {
  const int64_t row = blockIdx.x;
  T* at = logits + row * ld;
  const int64_t label = labels[row];
  const Sum<T> of_label = wide(at[label]);
  const Exponentials<Sum<T>> all = exponentials_of(at, n);  // ends with a barrier: the label's logit was read
  const Sum<T> log_of_sum = log(all.sum);
  const bool is_right = guesses(at, label, of_label, all.most);
  if (threadIdx.x == 0) {
    losses[row] = static_cast<double>(log_of_sum) + static_cast<double>(all.most - of_label);
    right[row] = is_right ? 1 : 0;
  }
  become_gradients(at, n, ld, label, all.most + log_of_sum);
}

// The same for rows of many logits, which are read once, into shared memory, so that two rows are worked on side by side:
// while one is on its way the other is computed. A thread reads there what it has written itself, but for guesses().
constexpr unsigned kHoldingThreads = 512;
constexpr int kPacksAtOnce = 8;
template <class T>
__global__ void __launch_bounds__(kHoldingThreads, 2) softmax_cross_entropy_held_kernel(int n, int ld, const int32_t* labels, T* logits,
                                                                                        double* losses, int32_t* right) {
  using S = Sum<T>;
  constexpr int N = kPack<T>, kStep = static_cast<int>(kHoldingThreads) * N;
  const int64_t row = blockIdx.x;
  T* at = logits + row * ld;
  T* const kept = shared_memory<T>();
  const int32_t label = labels[row];
  const S of_label = wide(at[label]);
  const int begin = static_cast<int>(threadIdx.x) * N;
  // visit(value) for those of a pack that are of the row.
  const auto for_each = [n](const Held<T, N>& pack, int first, auto visit) {
#pragma unroll
    for (int k = 0; k < N; ++k) {
      if (first + N <= n || first + k < n) visit(pack[k]);
    }
  };
  S most = -INFINITY, sum = 0;
  for (int some = begin; some < n; some += kPacksAtOnce * kStep) {
    Held<T, N> packs[kPacksAtOnce] = {};
#pragma unroll
    for (int c = 0; c < kPacksAtOnce; ++c) {
      if (some + c * kStep < n) packs[c] = hold<N>(at + some + c * kStep);
    }
#pragma unroll
    for (int c = 0; c < kPacksAtOnce; ++c) {
      const int first = some + c * kStep;
      if (first >= n) continue;
      keep(kept + first, packs[c]);
      for_each(packs[c], first, [&](S value) { most = fmax(value, most); });
    }
  }
  const S from = beside(most);
#pragma unroll 4
  for (int first = begin; first < n; first += kStep) {
    for_each(hold<N>(kept + first), first, [&](S value) { sum += exponential<T>(value - from); });
  }
  const Exponentials<S> all = block_exponentials<T>({most, sum});  // with a barrier: the label's logit was read
  const S log_of_sum = log(all.sum), log_sum = all.most + log_of_sum;
  const bool is_right = guesses(kept, label, of_label, all.most);
  if (threadIdx.x == 0) {
    losses[row] = static_cast<double>(log_of_sum) + static_cast<double>(all.most - of_label);
    right[row] = is_right ? 1 : 0;
  }
#pragma unroll 4
  for (int first = begin; first < ld; first += kStep) {
    Pack<T, N> gradients = {};
    if (first < n) {
      const auto pack = hold<N>(kept + first);
#pragma unroll
      for (int k = 0; k < N; ++k) gradients[k] = static_cast<T>(exponential<T>(pack[k] - log_sum));
      if (first + N > n || (label >= first && label < first + N)) {
#pragma unroll
        for (int k = 0; k < N; ++k) {
          if (first + k == label) gradients[k] = static_cast<T>(exponential<T>(pack[k] - log_sum) - S(1));
          if (first + k >= n) gradients[k] = static_cast<T>(S(0));
        }
      }
    }
    store(at + first, gradients);
  }
}

template <class T>
__global__ void __launch_bounds__(kMostThreads) tell_slice_kernel(int64_t n, int64_t ld, int64_t first, const int32_t* labels, const T* logits,
                                  Sum<T>* told) {
  const int64_t row = blockIdx.x;
  const T* at = logits + row * ld;
  const Exponentials<Sum<T>> all = exponentials_of(at, n);
  const int64_t label = labels[row] - first;
  const bool is_here = label >= 0 && label < n;
  const Sum<T> of_label = is_here ? wide(at[label]) : static_cast<Sum<T>>(-INFINITY);
  const bool is_right = is_here && guesses(at, label, of_label, all.most);
  if (threadIdx.x != 0) return;
  told += row * kSliceTold;
  told[0] = all.most;
  told[1] = all.most + log(all.sum);
  told[2] = of_label;
  told[3] = is_right ? 1 : 0;
}

template <class T>
__global__ void __launch_bounds__(kMostThreads) sliced_cross_entropy_kernel(int64_t rows, int64_t n, int64_t ld, int64_t first, const int32_t* labels,
                                            int slices, const Sum<T>* all, T* logits, double* losses, int32_t* right) {
  using S = Sum<T>;
  const int64_t row = blockIdx.x;
  S most = -INFINITY, largest = -INFINITY, of_label = -INFINITY;
  for (int slice = 0; slice < slices; ++slice) {
    const S* told = all + (slice * rows + row) * kSliceTold;
    most = told[0] > most ? told[0] : most;
    largest = told[1] > largest ? told[1] : largest;
    of_label = told[2] > of_label ? told[2] : of_label;
  }
  S sum = 0;
  bool is_right = false, is_taken = false;  // by a slice before
  for (int slice = 0; slice < slices; ++slice) {
    const S* told = all + (slice * rows + row) * kSliceTold;
    sum += exp(told[1] - largest);
    is_right = is_right || (!is_taken && told[0] == most && told[3] != S(0));
    is_taken = is_taken || told[0] == most;
  }
  const S log_sum = log(sum) + largest;
  if (threadIdx.x == 0) {
    losses[row] = static_cast<double>(log_sum) - static_cast<double>(of_label);
    right[row] = is_right ? 1 : 0;
  }
  become_gradients(logits + row * ld, n, ld, labels[row] - first, log_sum);
}

__global__ void __launch_bounds__(kMostThreads) add_totals_kernel(int64_t rows, const double* losses, const int32_t* right, Totals* totals) {
  double loss = 0, correct = 0;
  for (int64_t row = threadIdx.x; row < rows; row += blockDim.x) {
    loss += losses[row];
    correct += right[row];
  }
  loss = block_sum(loss);
  correct = block_sum(correct);
  if (threadIdx.x != 0) return;
  totals->loss += loss;
  totals->rows += static_cast<double>(rows);
  totals->correct += correct;
}

}  // namespace

template <class T>
void softmax_cross_entropy(cudaStream_t stream, int64_t rows, int64_t n, int64_t ld, const int32_t* labels, T* logits,
                           double* losses, int32_t* right) {
  const auto bytes = static_cast<size_t>(ld) * sizeof(T);
  if (n >= 4096 && bytes <= INT32_MAX && takes_packs<T>(ld, logits) && may_share(&softmax_cross_entropy_held_kernel<T>, bytes)) {
    return launch(stream, static_cast<unsigned>(rows), kHoldingThreads, bytes, &softmax_cross_entropy_held_kernel<T>, n, ld, labels,
                  logits, losses, right);
  }
  launch(stream, static_cast<unsigned>(rows), threads_for(n), 0, &softmax_cross_entropy_kernel<T>, n, ld, labels,
         logits, losses, right);
}
template <class T>
void tell_slice(cudaStream_t stream, int64_t rows, int64_t n, int64_t ld, int64_t first, const int32_t* labels,
                const T* logits, Sum<T>* told) {
  launch(stream, static_cast<unsigned>(rows), threads_for(n), 0, &tell_slice_kernel<T>, n, ld, first, labels, logits,
         told);
}
template <class T>
void sliced_cross_entropy(cudaStream_t stream, int64_t rows, int64_t n, int64_t ld, int64_t first,
                          const int32_t* labels, int slices, const Sum<T>* all, T* logits, double* losses,
                          int32_t* right) {
  launch(stream, static_cast<unsigned>(rows), threads_for(n), 0, &sliced_cross_entropy_kernel<T>, rows, n, ld, first,
         labels, slices, all, logits, losses, right);
}
void add_totals(cudaStream_t stream, int64_t rows, const double* losses, const int32_t* right, Totals* totals) {
  launch(stream, 1u, kMostThreads, 0, &add_totals_kernel, rows, losses, right, totals);
}

#define DTRAIN_LOSS(T)                                                                                               \
  template void softmax_cross_entropy(cudaStream_t, int64_t, int64_t, int64_t, const int32_t*, T*, double*,          \
                                      int32_t*);                                                                     \
  template void tell_slice(cudaStream_t, int64_t, int64_t, int64_t, int64_t, const int32_t*, const T*, Sum<T>*);     \
  template void sliced_cross_entropy(cudaStream_t, int64_t, int64_t, int64_t, int64_t, const int32_t*, int,          \
                                     const Sum<T>*, T*, double*, int32_t*);
DTRAIN_LOSS(float)
DTRAIN_LOSS(double)
DTRAIN_LOSS(Bfloat16)

}  // namespace dtrain::engine::cuda
