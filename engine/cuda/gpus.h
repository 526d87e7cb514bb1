// The engine's CUDA backend, as the rest of the engine asks for it.
#pragma once

#include "engine/training/gpus.h"

namespace dtrain::engine::cuda {

const Gpus& gpus();

}  // namespace dtrain::engine::cuda
