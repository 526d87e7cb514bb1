#!/usr/bin/env bash
# From a fresh Debian 12 or Ubuntu 24.04 with nothing but git and root or sudo to a distributed
# training run: one master, two workers, one parameter server, on this machine.
#
#   ./examples/quickstart.sh
#
# Run it again at any time, also after Ctrl-C: what is there already is kept. Everything lies in this
# checkout (build/, examples/digits/) and in dtrain's own directory (DTRAIN_HOME, by default below
# ~/.local/state).
set -euo pipefail

from=$PWD
root=$(cd "$(dirname "$0")/.." && pwd)
example=$root/examples/digits
log=$root/build/quickstart.log
bin=$root/build/release/bin
mkdir -p "$root/build"
: > "$log"
source "$root/.cmake/build.sh"

doing=""
stage() {
  doing=$2
  printf '[%s/4] %-9s' "$1" "$2"
}

fail() {
  printf '\n%s; the last lines of %s:\n' "$1" "$log" >&2
  tail -n 20 "$log" >&2
  exit 1
}

# Only what is whole is used the next time: ninja and dtrain-engine see to that, and an apt that was cut
# off is mended when it is needed again.
interrupted() {
  trap - INT
  printf '\nStopped at %s. Nothing is broken: run it again to go on.\n' "$doing" >&2
  exit 130
}
trap interrupted INT

# How a file of this checkout is called from where the person stands.
here() { realpath -s --relative-to "$from" "$1"; }
size_of() { echo "$(du -sh --apparent-size "$1" | cut -f1)B"; }

stage 1 packages
"$root/.cmake/install-packages.sh" build "$log"

stage 2 build
started=$SECONDS
(cd "$root" && cmake --preset release -DDTRAIN_TESTS=OFF) >> "$log" 2>&1 || fail "cmake failed"
build_targets "$root/build/release" "$log" dtrain dtrain-engine || fail "the build failed"
echo "dtrain $(size_of "$bin/dtrain"), dtrain-engine $(size_of "$bin/dtrain-engine"), $((SECONDS - started)) s"

stage 3 data
set -- "$example"/data/{train/train,test/t10k}-{images-idx3,labels-idx1}-ubyte
if [ -s "$1" ] && [ -s "$2" ] && [ -s "$3" ] && [ -s "$4" ]; then
  echo "$(size_of "$example/data") of digits are there"
else
  started=$SECONDS
  (cd "$example" && "$bin/dtrain-engine" data digits --train 40000) >> "$log" 2>&1 || fail "drawing the digits failed"
  echo "40000 + 10000 digits of 28x28, $(size_of "$example/data"), $((SECONDS - started)) s"
fi

stage 4 train
echo "LeNet, 1 master, 2 workers, 1 ps"
cd "$example"
# A daemon that was stopped by hand stays so until it is told otherwise.
"$bin/dtrain" daemon start >> "$log" 2>&1 || fail "the daemon does not start"
# --tied: Ctrl-C ends the training, too. By itself `dtrain train` leaves it running.
code=0
"$bin/dtrain" train --tied || code=$?
if [ "$code" != 0 ]; then
  printf '\nThe training failed, for the reason above.\n' >&2
  exit "$code"
fi
output=$("$bin/dtrain" output path)
id=$(basename "$output")
accuracy=$("$bin/dtrain" logs --raw "$id.master" | sed -n 's/.* accuracy=\([0-9.]*\).*/\1/p' | tail -n 1)
model=$(here "$example/runs/$id/model.safetensors")
cat <<NEXT

Test accuracy: $accuracy
The model:     $model, $(size_of "$output/model.safetensors")
In PyTorch:    safetensors.torch.load_file("$model")

What now:
  export PATH=$(printf %q "$bin"):\$PATH
  cd $(printf %q "$(here "$example")")
  dtrain train -p learning-rate=0.03
$(printf '  %-26s both side by side' "dtrain compare $id $((id + 1))")
$(printf '  %-26s ends the daemon' "dtrain daemon stop")
Then: examples/README.md, and \`dtrain init\` in a
directory of your own.
NEXT
