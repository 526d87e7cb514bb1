#include "engine/bench/onednn_peer.h"

#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <utility>

#include "engine/library.h"

namespace dtrain::engine {

namespace {

struct Version {
  int major, minor, patch;  // and more
};

// It asks the environment the first time that it is called. Of float32 it multiplies nothing by AMX.
void allow(std::string_view isa) {
  constexpr std::array<std::pair<std::string_view, const char*>, 5> kNames{
      {{"amx", "AVX512_CORE"}, {"zen4", "AVX512_CORE"}, {"avx512", "AVX512_CORE"}, {"avx2", "AVX2"}, {"baseline", "SSE41"}}};
  for (const auto& [ours, name] : kNames) {
    if (ours != isa) continue;
    for (const char* variable : {"DNNL_MAX_CPU_ISA", "ONEDNN_MAX_CPU_ISA"}) ::setenv(variable, name, 1);
  }
}

}  // namespace

std::optional<OneDnnPeer> OneDnnPeer::find(std::string_view isa) {
  allow(isa);
  ::setenv("OMP_NUM_THREADS", "1", 1);
  const auto library = Library::open({"libdnnl.so.3", "libdnnl.so.2"}, "libdnnl");
  if (!library.ok()) return std::nullopt;
  OneDnnPeer peer;
  const Version* (*version)() = nullptr;
  if (!library->find("dnnl_sgemm", peer.sgemm_).ok() || !library->find("dnnl_version", version).ok()) return std::nullopt;
  peer.version_ = fmt::format("{}.{}.{}", version()->major, version()->minor, version()->patch);
  return peer;
}

void OneDnnPeer::multiply(int64_t m, int64_t n, int64_t k, GemmA<float> a, GemmB<float> b, float* c) const {
  const bool a_is_transposed = a.column_stride != 1, b_is_transposed = b.column_stride != 1;
  sgemm_(a_is_transposed ? 'T' : 'N', b_is_transposed ? 'T' : 'N', m, n, k, 1, a.data,
         a_is_transposed ? a.column_stride : a.row_stride, b.data, b_is_transposed ? b.column_stride : b.row_stride, 0, c, n);
}

}  // namespace dtrain::engine
