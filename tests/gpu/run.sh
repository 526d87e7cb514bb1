#!/bin/bash
# Builds the engine with its CUDA backend and runs every GPU test on the GPU that is here.
#
#   tests/gpu/run.sh [LOG]
set -euo pipefail
cd "$(dirname "$0")/../.."
log=${1:-build/gpu.log}
mkdir -p build

if ! command -v nvidia-smi >/dev/null || ! nvidia-smi -L >/dev/null 2>&1; then
  echo "no GPU is here; without one: ctest -L gpu of any other preset" >&2
  exit 1
fi
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader

# For the chip that is here alone: that is faster to build.
chip=$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader | head -1 | tr -d .)
echo "building for sm_$chip; the words of the build are in $log"
start=$SECONDS
if ! { cmake --preset cuda -DDTRAIN_TESTS=ON "-DDTRAIN_TEST_LEVELS=gpu" "-DCMAKE_CUDA_ARCHITECTURES=$chip" &&
  cmake --build --preset cuda --target gpu_tests dtrain-engine; } >"$log" 2>&1; then
  tail -n 30 "$log" >&2
  exit 1
fi
echo "built in $((SECONDS - start)) s"
build/cuda/bin/gpu_tests --duration
