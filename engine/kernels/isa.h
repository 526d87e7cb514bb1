// The kernel tables that this program was built with.
#pragma once

#include "engine/kernels/kernels.h"

namespace dtrain::engine {

extern const Kernels<float> kAvx512Kernels, kAvx2Kernels, kBaselineKernels;
extern const Kernels<double> kDoubleKernels;
// AVX-512's with products by tiles where that pays.
Kernels<float> amx_kernels(bool many_rows);

}  // namespace dtrain::engine
