#include "engine/kernels/kernels.h"

#include <cstdlib>
#include <string_view>

#include "engine/kernels/isa.h"

namespace dtrain::engine {

namespace {

#if defined(__x86_64__)
bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("fma");
}
bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"); }

const Kernels<float>& choose() {
  const char* variable = std::getenv("DTRAIN_ISA");
  const std::string_view wanted = variable == nullptr ? "avx512" : variable;
  if (wanted == "avx512" && has_avx512()) return kAvx512Kernels;
  if (wanted != "baseline" && has_avx2()) return kAvx2Kernels;
  return kBaselineKernels;
}
#else
const Kernels<float>& choose() { return kBaselineKernels; }
#endif

}  // namespace

template <>
const Kernels<float>& kernels<float>() {
  static const Kernels<float>& chosen = choose();
  return chosen;
}

template <>
const Kernels<double>& kernels<double>() {
  return kDoubleKernels;
}

}  // namespace dtrain::engine
