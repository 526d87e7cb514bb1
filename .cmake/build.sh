# Sourced by quickstart.sh and run.sh.

# As many compilers at once as there are cores, but no more than one for each 1.5 GB of memory: the
# files that include gRPC take that much.
build_jobs() {
  local cores memory_mb fitting
  cores=$(nproc)
  memory_mb=$(awk '/^MemAvailable:/ {print int($2 / 1024)}' /proc/meminfo)
  fitting=$((memory_mb / 1500))
  [ "$fitting" -ge 1 ] || fitting=1
  [ "$fitting" -lt "$cores" ] && echo "$fitting" || echo "$cores"
}

# build_target DIRECTORY TARGET LOG: quiet; on a terminal it counts.
build_target() {
  local pipe_status
  if [ -t 1 ]; then
    set +e
    NINJA_STATUS='[%f/%t] ' ninja -C "$1" -j "$(build_jobs)" "$2" 2>&1 | tee -a "$3" |
      awk '/^\[[0-9]+\/[0-9]+\]/ {
             step = $1; blanks = step; gsub(/./, " ", blanks); gsub(/./, "\b", blanks)
             printf "%s%s", step, blanks; fflush() }
           END { blanks = step; gsub(/./, " ", blanks); printf "%s", blanks
                 gsub(/ /, "\b", blanks); printf "%s", blanks }'
    pipe_status=${PIPESTATUS[0]}
    set -e
    return "$pipe_status"
  fi
  ninja -C "$1" -j "$(build_jobs)" "$2" >> "$3" 2>&1
}
