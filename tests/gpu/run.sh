#!/bin/bash
# Runs every GPU test on the GPU that is here, and times what a step consists of and whole trainings, beside
# PyTorch where PYTHON (python3) has it.
#
#   tests/gpu/run.sh [check|device|step]...    all of them, if none is named
#   tests/gpu/run.sh sanitize                  the kernels' tests under compute-sanitizer
#   tests/gpu/run.sh profile                   what each kernel takes in a training of GPT-2, by ncu
#   tests/gpu/run.sh build                     builds what they need into build/gpu, which takes no GPU
#
# It builds first unless build/gpu has the programs. A machine that lacks the packages to build (or a network to get them
# by) takes them from another one: copy the repository there with build/gpu, 40 MB.
# CHIP is what to build for, 90 (Hopper) unless a GPU is here; LIMIT how many seconds all may take, 540.
set -uo pipefail
cd "$(dirname "$0")/../.."
log=build/gpu.log
programs=build/gpu
python=${PYTHON:-python3}
mkdir -p build

build() {
  # For one chip alone: that is faster to build.
  local chip=${CHIP:-$(nvidia-smi --query-gpu=compute_cap --format=csv,noheader 2>/dev/null | head -1 | tr -d .)}
  chip=${chip:-90}
  echo "building for sm_$chip; the words of the build are in $log"
  if ! { cmake --preset cuda -DDTRAIN_TESTS=ON -DDTRAIN_TEST_LEVELS=gpu "-DCMAKE_CUDA_ARCHITECTURES=$chip" &&
    cmake --build --preset cuda --target gpu_tests dtrain-engine; } >"$log" 2>&1; then
    tail -n 30 "$log" >&2
    return 1
  fi
  mkdir -p "$programs" && strip -o "$programs/gpu_tests" build/cuda/bin/gpu_tests &&
    strip -o "$programs/dtrain-engine" build/cuda/bin/dtrain-engine && echo "built in $SECONDS s"
}

# cuBLASLt, cuDNN and NCCL may lie in python's packages or the toolkit alone, where nobody looks.
find_libraries() {
  local folder
  while read -r folder; do
    LD_LIBRARY_PATH=${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}$folder
  done < <("$python" -c '
import glob, sysconfig
print(*sorted(glob.glob(sysconfig.get_path("platlib") + "/nvidia/*/lib")), sep="\n")' 2>/dev/null | grep .
    for folder in "${CUDA_HOME:-/usr/local/cuda}"/lib64; do [[ -d $folder ]] && echo "$folder"; done)
  export LD_LIBRARY_PATH=${LD_LIBRARY_PATH:-}
  "$python" -c '
import ctypes
for name in "libcuda.so.1", "libcublasLt.so.13", "libcudnn.so.9", "libnccl.so.2":
    try:
        ctypes.CDLL(name)
        print(next(line.split()[-1] for line in open("/proc/self/maps") if "/" + name.split(".so")[0] + ".so" in line))
    except OSError as why:
        print(name, "MISSING:", why)'
}

failed=0
# within(share of what is left of the limit, command...)
within() {
  local seconds=$(((${LIMIT:-540} - SECONDS) * $1 / 100)) code=0
  shift
  if ((seconds < 5)); then
    echo "no time is left for: $*" >&2
    return 1
  fi
  # A training takes TERM for the end of its step, to which a GPU that hangs never comes.
  timeout --kill-after=10 "$seconds" "$@" || code=$?
  if ((code > 0)); then echo "$( ((code == 124 || code == 137)) && echo "took more than $seconds s, or was killed" || echo "ended with code $code"): $*" >&2; fi
  echo "$SECONDS s so far"
  return "$code"
}
# Each file in a process of its own, side by side: an error of one doesn't leave the device broken for others.
check() {
  rm -rf build/gpu-tests && mkdir build/gpu-tests
  local each pids=()
  for each in tests/gpu/*_test.cc tests/gpu/kernels/*_test.cc; do
    "$programs/gpu_tests" --list-test-cases "-sf=*/$each" | grep -q ' filters: 0$' && continue  # of the emulation
    within 50 "$programs/gpu_tests" --duration "-sf=*/$each" >"build/gpu-tests/$(basename "$each" _test.cc).txt" 2>&1 &
    pids+=($!)
  done
  if ((${#pids[@]} == 0)); then echo "$programs/gpu_tests has none of the tests that are here" >&2; failed=1; return; fi
  for each in "${pids[@]}"; do wait "$each" || failed=1; done
  for each in build/gpu-tests/*; do
    echo "== $(basename "$each" .txt)"
    grep -v '^\(memory\|epoch\|model\|resumed\|skipped\)' "$each"
  done
  # Without a GPU every test is skipped, and nothing has been checked.
  if grep -h '^skipped: ' build/gpu-tests/* | sort -u; then failed=1; fi
}
sanitize() {
  local tool
  for tool in memcheck racecheck; do
    # cuDNN's kernels wait for each other in ways that it takes for races.
    within 80 compute-sanitizer --tool "$tool" --kernel-name-exclude kernel_substring=cudnn --error-exitcode 1 --print-limit 20 "$programs/gpu_tests" "-sf=*/gpu/kernels/*" || failed=1
  done
}
# Past the first steps, in which products are planned.
profile() {
  within 90 ncu --clock-control none --target-processes all --metrics gpu__time_duration.sum --csv --log-file build/gpu-profile.csv \
    --launch-skip 2500 --launch-count 900 "$programs/dtrain-engine" bench step --gpu --rounds 1 --seconds 0.01 --alone gpt || failed=1
  python3 tests/gpu/profile.py build/gpu-profile.csv
}
device() { within 60 "$programs/dtrain-engine" bench device --csv build/gpu-device.csv || failed=1; }
# One round: each way that PyTorch compiles takes half a minute or so. What matters most comes first.
step() {
  local options=(bench step --gpu --rounds 1 --seconds 3 ${PYTHON:+--python "$PYTHON"})
  within 70 "$programs/dtrain-engine" "${options[@]}" gpt --csv build/gpu-step-gpt.csv || failed=1
  within 100 "$programs/dtrain-engine" "${options[@]}" mlp lenet --csv build/gpu-step-small.csv || failed=1
}

if [[ ${1:-} == build ]]; then
  build
  exit
fi
for phase in "$@"; do
  if [[ ! $phase =~ ^(check|sanitize|device|step|profile)$ ]]; then
    sed -n '2,/^set/{/^#/p}' "$0" >&2
    exit 2
  fi
done
if ! nvidia-smi -L >/dev/null 2>&1; then
  echo "no GPU is here; without one: ctest -L gpu of any other preset" >&2
  exit 1
fi
nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader
if [[ -x $programs/gpu_tests && -x $programs/dtrain-engine ]]; then
  echo "taking $programs as built on $(date -r "$programs/gpu_tests" '+%F %T')"
else
  build || exit 1
fi
find_libraries
for phase in ${@:-check device step}; do "$phase"; done
echo "all in $SECONDS s; figures in build/gpu-*.csv"
exit $failed
