// For CPUs with AVX2 and FMA.
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
#pragma GCC target("avx2,bmi,fma")
#define DTRAIN_ISA avx2
#define DTRAIN_VECTOR_BYTES 32
#include "engine/kernels/kernel_table.h"

namespace dtrain::engine {

const Kernels<float> kAvx2Kernels = avx2::kernel_table<float>("avx2", {.of_wide = 0.4f});

}  // namespace dtrain::engine

#pragma GCC pop_options
#endif
