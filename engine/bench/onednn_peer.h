// oneDNN's matrix products as the peer of the engine's own, where its library is installed: in this process, by one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "engine/kernels/kernels.h"

namespace dtrain::engine {

class OneDnnPeer {
 public:
  // With no better instructions than `isa`, one of DTRAIN_ISA's names. None where there is no libdnnl.
  static std::optional<OneDnnPeer> find(std::string_view isa);

  const std::string& version() const { return version_; }
  // C (rows of n) = A[m, k] B[k, n]; of each matrix rows or columns are contiguous.
  void multiply(int64_t m, int64_t n, int64_t k, GemmA<float> a, GemmB<float> b, float* c) const;

 private:
  using Sgemm = int (*)(char, char, int64_t, int64_t, int64_t, float, const float*, int64_t, const float*, int64_t, float,
                        float*, int64_t);
  Sgemm sgemm_ = nullptr;
  std::string version_;
};

}  // namespace dtrain::engine
