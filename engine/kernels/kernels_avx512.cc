// For CPUs with AVX-512 (F, VL, BW, DQ).
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
#include "engine/kernels/trial.h"

// Below here alone: what is included above must run on any machine.
#pragma GCC push_options
#pragma GCC target("avx512f,avx512vl,avx512bw,avx512dq,avx2,bmi,fma,prfchw")
#define DTRAIN_ISA avx512
#define DTRAIN_VECTOR_BYTES 64
#include "engine/kernels/kernel_table.h"

namespace dtrain::engine {

const Kernels<float> kAvx512Kernels = avx512::kernel_table<float>("avx512");

}  // namespace dtrain::engine

#pragma GCC pop_options
#endif
