#!/bin/bash
# Builds the engine with its CUDA backend, runs every GPU test on the GPU that is here, and times what a step
# consists of and whole trainings, beside PyTorch where PYTHON (python3) has it.
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

build/cuda/bin/dtrain-engine bench device --csv build/gpu-device.csv
# Each of torch.compile's modes compiles for half a minute or so: one round leaves time for the rest.
build/cuda/bin/dtrain-engine bench step --gpu --rounds 1 --seconds 3 ${PYTHON:+--python "$PYTHON"} --csv build/gpu-step.csv
echo "all in $((SECONDS - start)) s; figures in build/gpu-device.csv and build/gpu-step.csv"
