#include "engine/kernels/kernels.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

#if defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "engine/environment.h"
#include "engine/kernels/choice.h"
#include "engine/kernels/isa.h"

namespace dtrain::engine {

namespace {

// Each needs what the one before needs. Zen4 is Avx512 but for what it leaves out of products.
enum class Isa { Baseline, Avx2, Avx512, Zen4, Amx };
constexpr std::array<std::string_view, 5> kNames{"baseline", "avx2", "avx512", "zen4", "amx"};
std::string_view name_of(Isa isa) { return kNames[static_cast<size_t>(isa)]; }

constexpr const char* kIsaVariable = "DTRAIN_ISA";

// What it asks for; of what is no name, nothing.
std::optional<Isa> wanted() {
  const auto at = std::ranges::find(kNames, variable(kIsaVariable));
  if (at == kNames.end()) return std::nullopt;
  return static_cast<Isa>(at - kNames.begin());
}

#if defined(__x86_64__)
bool has_avx512() {
  return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
         __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
         __builtin_cpu_supports("bmi") && __builtin_cpu_supports("fma");
}
bool has_avx2() { return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") && __builtin_cpu_supports("fma"); }

// That the processor has it is not enough: the kernel lets a process use tiles once it has asked for them.
bool has_amx() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kBfloat16 = 1u << 22, kTile = 1u << 24;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & kBfloat16) == 0 || (d & kTile) == 0) return false;
  constexpr long kAskForState = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  return ::syscall(SYS_arch_prctl, kAskForState, kTileData) == 0;
}

// A Zen 4, which multiplies vectors of AVX-512 by halves, so that what is left out is worth twice as much.
bool is_zen4() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__builtin_cpu_is("amd") || __get_cpuid(1, &a, &b, &c, &d) == 0) return false;
  const unsigned family = (a >> 8 & 0xf) + (a >> 20 & 0xff);
  return family == 0x19 && has_avx512();   // a Zen 3 has none
}

// The best that the CPU has. What is beyond `at_most` is not looked for: AMX is had for the asking, but then each
// signal saves its tiles.
Isa best(Isa at_most) {
  if (at_most < Isa::Avx512 || !has_avx512()) return at_most >= Isa::Avx2 && has_avx2() ? Isa::Avx2 : Isa::Baseline;
  if (at_most == Isa::Amx && has_amx()) return Isa::Amx;
  return at_most == Isa::Zen4 || (at_most == Isa::Amx && is_zen4()) ? Isa::Zen4 : Isa::Avx512;
}

Kernels<float> zen4_kernels() {
  Kernels<float> table = kAvx512Kernels;
  table.isa = "zen4";
  table.background = {.of_wide = 0.4f, .of_narrow = 0.4f, .of_gradient = 0.5f, .shortest_leaf = 8};
  return table;
}

const Kernels<float>& choose(bool many_rows) {
  switch (best(wanted().value_or(Isa::Amx))) {
    case Isa::Amx: {
      static const Kernels<float> few = amx_kernels(false), many = amx_kernels(true);
      return many_rows ? many : few;
    }
    case Isa::Zen4: {
      static const Kernels<float> zen4 = zen4_kernels();
      return zen4;
    }
    case Isa::Avx512: return kAvx512Kernels;
    case Isa::Avx2: return kAvx2Kernels;
    case Isa::Baseline: break;
  }
  return kBaselineKernels;
}
#else
Isa best(Isa) { return Isa::Baseline; }
const Kernels<float>& choose(bool) { return kBaselineKernels; }
#endif

}  // namespace

Status check_isa_variable() {
  if (variable(kIsaVariable).empty()) return ok();
  const auto isa = wanted();
  if (!isa) {
    return Error{Code::InvalidArgument, fmt::format("DTRAIN_ISA={} is no instruction set", variable(kIsaVariable)),
                 fmt::format("one of {}; unset, it is the best that the CPU has", fmt::join(kNames, ", "))};
  }
  if (const Isa most = best(*isa); most != *isa) {
    return Error{Code::InvalidArgument,
                 fmt::format("DTRAIN_ISA={} is more than this CPU has, which is {}", variable(kIsaVariable), name_of(most)), ""};
  }
  return ok();
}

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
