// For CPUs with AMX and bfloat16 beside AVX-512: large products by tiles, the rest as with AVX-512.
#if defined(__x86_64__)
#include <immintrin.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "engine/gradient_taker.h"
#include "engine/kernels/crew.h"
#include "engine/kernels/isa.h"
#include "engine/kernels/scratch.h"

// Below here alone: what is included above must run on any machine.
#pragma GCC push_options
#pragma GCC target("amx-tile,amx-bf16,avx512f,avx512vl,avx512bw,avx512dq,avx2,bmi,fma,prfchw")
#define DTRAIN_ISA amx
#define DTRAIN_VECTOR_BYTES 64
#include "engine/kernels/amx_products.h"

namespace dtrain::engine {

template <bool kMany>
Kernels<float> with_products() {
  Kernels<float> table = kAvx512Kernels;
  table.isa = "amx";
  // Four fifths of MNIST's pixels are black: a first layer of 512 takes three quarters of the time that tiles take.
  table.background.of_wide = 0.75f;
  table.gemm = &amx::gemm<kMany>;
  table.gemm_then = &amx::gemm_then<kMany>;
  table.gemm_tree = &amx::gemm_tree<kMany>;
  return table;
}
Kernels<float> amx_kernels(bool many_rows) { return many_rows ? with_products<true>() : with_products<false>(); }

}  // namespace dtrain::engine

#pragma GCC pop_options
#endif
