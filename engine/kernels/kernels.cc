#include "engine/kernels/kernels.h"

#include <cstdlib>
#include <string_view>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

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

// That the processor has it is not enough: the kernel lets a process use tiles once it has asked for them.
bool has_amx() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kBfloat16 = 1u << 22, kTile = 1u << 24;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & kBfloat16) == 0 || (d & kTile) == 0) return false;
  constexpr long kAskForState = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return ::syscall(SYS_arch_prctl, kAskForState, kTileData) == 0;
}

const Kernels<float>& choose(bool many_rows) {
  const char* variable = std::getenv("DTRAIN_ISA");
  const std::string_view wanted = variable == nullptr ? "amx" : variable;
  const bool may_avx512 = (wanted == "amx" || wanted == "avx512") && has_avx512();
  if (wanted == "amx" && may_avx512 && has_amx()) {
    static const Kernels<float> few = amx_kernels(false), many = amx_kernels(true);
    return many_rows ? many : few;
  }
  if (may_avx512) return kAvx512Kernels;
  if (wanted != "baseline" && has_avx2()) return kAvx2Kernels;
  return kBaselineKernels;
}
#else
const Kernels<float>& choose(bool) { return kBaselineKernels; }
#endif

}  // namespace

template <>
const Kernels<float>& kernels<float>(int64_t rows_of_sample) {
  constexpr int64_t kMany = 32;
  static const Kernels<float>&few = choose(false), &many = choose(true);
  return rows_of_sample < kMany ? few : many;
}

template <>
const Kernels<double>& kernels<double>(int64_t /*rows_of_sample*/) {
  return kDoubleKernels;
}

}  // namespace dtrain::engine
