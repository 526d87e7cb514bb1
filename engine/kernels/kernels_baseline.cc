// For any CPU; and doubles, in which gradients are checked.
#include <algorithm>
#include <array>
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

#define DTRAIN_ISA baseline
#define DTRAIN_VECTOR_BYTES 16
#include "engine/kernels/kernel_table.h"

namespace dtrain::engine {

const Kernels<float> kBaselineKernels = baseline::kernel_table<float>("baseline");
const Kernels<double> kDoubleKernels = baseline::kernel_table<double>("baseline");

}  // namespace dtrain::engine

