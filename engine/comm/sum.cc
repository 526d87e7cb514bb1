#include "engine/comm/sum.h"

// Each clone is compiled for one instruction set and the loader picks. The thread sanitizer is not
// up yet when it does.
#if defined(__SANITIZE_THREAD__)
#define DTRAIN_CLONES
#else
#define DTRAIN_CLONES __attribute__((target_clones("arch=skylake-avx512", "avx2", "default")))
#endif

namespace dtrain::engine {

// Iterations are independent even where `out` is an operand: each reads what it writes, before.
DTRAIN_CLONES void add(float* out, const float* a, const float* b, int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) out[i] = a[i] + b[i];
}

DTRAIN_CLONES void add(float* out, const float* a, const float* b, const float* c, const float* d,
                       int64_t count) {
#pragma GCC ivdep
  for (int64_t i = 0; i < count; ++i) out[i] = (a[i] + b[i]) + (c[i] + d[i]);
}

}  // namespace dtrain::engine
