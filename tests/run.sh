#!/usr/bin/env bash
# Installs what the tests need, builds, runs every test, and ends with one line:
#
#   N passed, N failed, N skipped
#
# What a machine can't run (no root, no GPU) is skipped and listed with the reason. Exits non-zero when
# anything failed. Works on a fresh Debian 12 or Ubuntu 24.04 with git and root or sudo.
#
#   ./tests/run.sh            release with all tests, then the sanitizers
#   ./tests/run.sh --quick    release only
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
log=$root/build/tests.log
mkdir -p build
: > "$log"
presets=(release asan)
case ${1:-} in
  "") ;;
  --quick) presets=(release) ;;
  *) echo "usage: tests/run.sh [--quick]" >&2; exit 2 ;;
esac
stages=$((2 + 2 * ${#presets[@]}))
stage=0
# What runs on a GPU is compiled and linked wherever that is possible, for one chip; tests/gpu/run.sh runs it.
nvcc=$(command -v nvcc || ls /usr/local/cuda/bin/nvcc 2>/dev/null || true)
builds=("${presets[@]}")
[ -z "$nvcc" ] || builds+=(cuda)

stage() {
  stage=$((stage + 1))
  printf '[%d/%d] %-9s' "$stage" "$stages" "$1"
}

fail() {
  printf '\n%s; the last lines of %s:\n' "$1" "$log" >&2
  tail -n 40 "$log" >&2
  echo "0 passed, 1 failed, 0 skipped"
  exit 1
}

stage packages
.cmake/install-packages.sh test "$log" || fail "packages that the tests need are missing"
source .cmake/build.sh

# A python with the packages that the engine's files and sums are held to: the system's, for PyTorch is its. Without
# it those tests are skipped.
if [ -z "${DTRAIN_TEST_PYTHON:-}" ]; then
  peers=build/peers
  packages="numpy safetensors tensorboard prometheus-client"
  if [ "$(cat $peers/.complete 2> /dev/null)" != "$packages" ]; then
    rm -rf $peers
    if /usr/bin/python3 -m venv --system-site-packages $peers >> "$log" 2>&1 &&
        $peers/bin/pip install $packages >> "$log" 2>&1; then
      echo "$packages" > $peers/.complete
    fi
  fi
  [ ! -e $peers/.complete ] || export DTRAIN_TEST_PYTHON=$root/$peers/bin/python
fi

build_preset() {
  local options=() targets=all
  if [ "$1" = cuda ]; then
    options=(-DDTRAIN_TEST_LEVELS=gpu -DCMAKE_CUDA_ARCHITECTURES=90)
    targets="dtrain-engine gpu_tests"
  fi
  cmake --preset "$1" -DDTRAIN_TESTS=ON "${options[@]}" && NINJA_STATUS='[%f/%t %e] ' ninja -C "build/$1" -j "$(build_jobs)" $targets
}
export -f build_preset build_jobs

# Tests wait more than they compute, those of whole clusters most of all: meanwhile the next preset is built, in a
# session of its own, so that it gives way to what tests start in others, too.
ahead=''
build_ahead() {
  : > "build/$1.log"   # that of a run before
  setsid nice -n 19 bash -c 'echo 19 > /proc/self/autogroup || true; build_preset "$1"' - "$1" >> "build/$1.log" 2>&1 &
  ahead=$!
}
trap '[ -z "$ahead" ] || kill -- -"$ahead" 2> /dev/null' EXIT   # whatever ends it

wait_for_build() {
  local show=show_fifths
  [ -t 1 ] && show=show_steps
  tail -f -n +1 --pid="$ahead" "build/$1.log" | tee -a "$log" | "$show"
  wait "$ahead" || fail "the build of $1 failed"
  ahead=''
}

results=()
build_ahead "${builds[0]}"
for ((i = 0; i < ${#builds[@]}; ++i)); do
  preset=${builds[i]}
  if [ "$preset" = cuda ]; then stage cuda; else stage build; fi
  started=$SECONDS
  wait_for_build "$preset"
  echo "$preset, waited $((SECONDS - started)) s for it"
  if ((i + 1 < ${#builds[@]})); then build_ahead "${builds[i + 1]}"; fi
  [ "$preset" != cuda ] || break

  # The sanitizers see each process on its own: what starts whole clusters runs in release only.
  labels=(-L 'unit|sim|integration|engine|gpu|e2e|fuzz')
  [ "$preset" = asan ] && labels=(-L 'unit|sim|integration|engine|gpu|fuzz')
  stage tests
  started=$SECONDS
  rm -f "build/$preset/Testing/Temporary/LastTest.log"
  # One test more than there are processors, where they wait.
  at_once=$(nproc)
  [ "$preset" = asan ] || at_once=$((at_once + 1))
  ctest --test-dir "build/$preset" "${labels[@]}" -j "$at_once" --timeout 300 >> "$log" 2>&1 || true
  echo "$preset, in $((SECONDS - started)) s"
  results+=("$preset=build/$preset/Testing/Temporary/LastTest.log")
done

if [ -z "$nvcc" ]; then
  stage cuda
  echo "skipped: no nvcc is here"
else
  # What needs no GPU but the library of its driver, for which the toolkit's stub will do.
  stub=$(ls "$(dirname "$(readlink -f "$nvcc")")"/../lib*/stubs/libcuda.so 2>/dev/null | head -1 || true)
  if [ -n "$stub" ] && ctest --test-dir build/cuda -N -R '^gpu/cudnn_plan$' | grep -q 'Total Tests: 1'; then
    mkdir -p build/cuda/stubs
    ln -sf "$stub" build/cuda/stubs/libcuda.so.1
    rm -f build/cuda/Testing/Temporary/LastTest.log
    LD_LIBRARY_PATH=$root/build/cuda/stubs ctest --test-dir build/cuda -R '^gpu/cudnn_plan$' --timeout 300 >> "$log" 2>&1 || true
    results+=("cuda=build/cuda/Testing/Temporary/LastTest.log")
  fi
fi

python3 tests/support/summary.py "${results[@]}"
