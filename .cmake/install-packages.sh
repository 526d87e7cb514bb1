#!/bin/sh
# The packages of Debian 12 and Ubuntu 24.04 that dtrain needs: the one list of them.
#
#   .cmake/install-packages.sh build LOG    what building and running dtrain takes
#   .cmake/install-packages.sh test LOG     and what its tests take on top
#
# Calls apt only when something is missing, as root or through sudo; apt's words go to LOG.
set -eu

build="g++ cmake ninja-build ccache mold pkg-config protobuf-compiler protobuf-compiler-grpc
  libprotobuf-dev libgrpc++-dev libnghttp2-dev libboost1.81-dev|libboost1.83-dev libsqlite3-dev libyaml-cpp-dev
  libre2-dev libfmt-dev libcli11-dev nlohmann-json3-dev libzstd-dev libssl-dev libxxhash-dev zlib1g-dev"
test="doctest-dev iproute2 rsync git inotify-tools python3 python3-venv python3-torch? openssh-client? openssh-server?
  openmpi-bin? mpich? python3-mpi4py? slurmctld? slurmd? slurm-client? munge? podman? busybox-static?"

purpose=${1:?build or test}
log=${2:?a file for the words of apt}
case $purpose in
  build) wanted=$build ;;
  test) wanted="$build $test" ;;
  *) echo "install-packages.sh: build or test, not '$purpose'" >&2; exit 2 ;;
esac

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
  echo "no apt here: make sure that these are installed, by their names in Debian:"
  echo "$wanted" | tr -s ' \n' ' ' | tr -d '?'
  echo
  exit 0
fi

installed=" $(dpkg-query -W -f '${binary:Package}=${db:Status-Status}\n' |
  sed -n 's/\(:[a-z0-9]*\)\{0,1\}=installed$//p' | tr '\n' ' ') "

# a|b: either will do; a?: where the system offers it.
has() {
  for name in $(echo "$1" | tr '|?' '  '); do
    case $installed in *" $name "*) return 0 ;; esac
  done
  return 1
}

missing=""
count=0
for package in $wanted; do
  if ! has "$package"; then
    missing="$missing $package"
    count=$((count + 1))
  fi
done
if [ -z "$missing" ]; then
  echo "all there"
  exit 0
fi

if [ "$(id -u)" = 0 ]; then
  as_root="env"
elif command -v sudo >/dev/null; then
  as_root="sudo env"
else
  echo "packages are missing, and this is neither root nor is there sudo. As root, run:" >&2
  echo "  apt-get update && apt-get install --no-install-recommends$(echo "$missing" | tr -d '?')" >&2
  exit 1
fi

apt() {
  $as_root DEBIAN_FRONTEND=noninteractive LC_ALL=C apt-get -q -o DPkg::Lock::Timeout=300 "$@"
}

fail() {
  echo "$1; the last lines of $log:" >&2
  tail -n 15 "$log" >&2
  exit 1
}

# Without lists nothing can be installed; with old ones it may still work, so go on.
apt update >>"$log" 2>&1 || echo "apt-get update failed: trying with the lists at hand"
# What an earlier run, cut off, left half installed would be in the way of anything else.
if [ -n "$(dpkg --audit 2>/dev/null)" ]; then
  $as_root DEBIAN_FRONTEND=noninteractive LC_ALL=C dpkg --configure -a >>"$log" 2>&1 ||
    echo "dpkg --configure -a failed: trying all the same"
fi
chosen=""
for package in $missing; do
  for name in $(echo "$package" | tr '|?' '  '); do
    if apt-cache show "$name" >/dev/null 2>&1; then
      chosen="$chosen $name"
      continue 2
    fi
  done
  case $package in *\?) continue ;; esac
  fail "this system offers no package $package (Debian 12 and Ubuntu 24.04 do)"
done
if [ -z "$chosen" ]; then
  echo "all there that this system offers"
  exit 0
fi
size=$(apt install --no-install-recommends --assume-no $chosen 2>/dev/null |
  sed -n 's/^Need to get \(.*\) of archives.*/\1/p' | sed 's#^[^/]*/##')
[ "$count" = 1 ] && noun=package || noun=packages
echo "installing $count $noun and what is needed for that${size:+ ($size to fetch)}"
apt install --no-install-recommends --yes $chosen >>"$log" 2>&1 || fail "apt-get install failed"
