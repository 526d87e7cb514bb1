#!/usr/bin/env bash
# From a fresh Debian 12 or Ubuntu 24.04 with nothing but git and root or sudo to a distributed
# training run: one master, two workers, one parameter server, on this machine.
#
#   ./examples/quickstart.sh
#
# Run it again at any time: what is there already is kept. Everything lies in this checkout (build/)
# and in dtrain's own directory (DTRAIN_HOME, by default below ~/.local/state).
set -euo pipefail

root=$(cd "$(dirname "$0")/.." && pwd)
example=$root/examples/parameter-server
log=$root/build/quickstart.log
dtrain=$root/build/release/bin/dtrain
mkdir -p "$root/build"
: > "$log"

stage() { printf '[%s/4] %-9s' "$1" "$2"; }

fail() {
  printf '\n%s; the last lines of %s:\n' "$1" "$log" >&2
  tail -n 20 "$log" >&2
  exit 1
}

stage 1 packages
"$root/.cmake/install-packages.sh" build "$log"

stage 2 build
started=$SECONDS
(cd "$root" && cmake --preset release -DDTRAIN_TESTS=OFF) >> "$log" 2>&1 || fail "cmake failed"
source "$root/.cmake/build.sh"
build_target "$root/build/release" dtrain "$log" || fail "the build failed"
size=$(du -h --apparent-size "$dtrain" | cut -f1)
echo "build/release/bin/dtrain, ${size}B, in $((SECONDS - started)) s"

stage 3 data
if [ -s "$example/digits/train-images-idx3-ubyte.gz" ]; then
  echo "examples/parameter-server/digits is there"
else
  (cd "$example" && python3 digits.py digits) >> "$log" 2>&1 || fail "drawing the digits failed"
  echo "6000 + 1000 digits of 12x12, $(du -sh --apparent-size "$example/digits" | cut -f1)B, drawn into" \
       "examples/parameter-server/digits"
fi

stage 4 train
echo "dtrain train, in examples/parameter-server"
cd "$example"
"$dtrain" train
output=$("$dtrain" output path)
python3 - "$output/model.json" <<'REPORT'
import json, sys
model = json.load(open(sys.argv[1]))
print("\ntest accuracy %.1f %%, model in %s" % (100 * model["accuracy"], sys.argv[1]))
REPORT
cat <<NEXT
What now:  export PATH=$root/build/release/bin:\$PATH
           dtrain status        what ran            dtrain logs     what it said
           dtrain init          a dtrain.yml for your own directory
           dtrain daemon stop   end the daemon that \`dtrain train\` started
NEXT
