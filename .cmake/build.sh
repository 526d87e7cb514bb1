# Sourced by quickstart.sh and run.sh.

# As many compilers at once as there are cores, but no more than one for each 2 GB of memory: files
# that include gRPC, compiled together, take 1.8 to 2.4.
build_jobs() {
  local cores memory_mb fitting
  cores=$(nproc)
  memory_mb=$(awk '/^MemAvailable:/ {print int($2 / 1024)}' /proc/meminfo)
  fitting=$((memory_mb / 2000))
  [ "$fitting" -ge 1 ] || fitting=1
  [ "$fitting" -lt "$cores" ] && echo "$fitting" || echo "$cores"
}

# From ninja's lines on standard input: one that changes in place, "[120/480] 3 min left". It is taken
# back by backspaces, so that what stands before it in the line stays. What is left is guessed from how
# long the steps so far took, once there are enough of them.
show_steps() {
  local line text shown="" blank seconds
  while IFS= read -r line; do
    [[ $line =~ ^\[([0-9]+)/([0-9]+)\ ([0-9]+) ]] || continue
    text="[${BASH_REMATCH[1]}/${BASH_REMATCH[2]}]"
    if [ "${BASH_REMATCH[1]}" -ge 10 ] && [ "${BASH_REMATCH[3]}" -ge 5 ]; then
      seconds=$((BASH_REMATCH[3] * (BASH_REMATCH[2] - BASH_REMATCH[1]) / BASH_REMATCH[1]))
      if [ "$seconds" -lt 90 ]; then text+=" $seconds s left"; else text+=" $(((seconds + 30) / 60)) min left"; fi
    fi
    blank=$((${#shown} - ${#text}))
    [ "$blank" -gt 0 ] || blank=0
    printf '%s%s%*s%s' "${shown//?/$'\b'}" "$text" "$blank" "" "$(backspaces "$blank")"
    shown=$text
  done
  printf '%s%*s%s' "${shown//?/$'\b'}" ${#shown} "" "${shown//?/$'\b'}"
}

backspaces() {
  local blanks
  printf -v blanks '%*s' "$1" ""
  printf '%s' "${blanks// /$'\b'}"
}

# The same where nothing can be taken back: "20% 40% 60% 80% ".
show_fifths() {
  local line fifths=0
  while IFS= read -r line; do
    [[ $line =~ ^\[([0-9]+)/([0-9]+)\ [0-9] ]] || continue
    while [ "$fifths" -lt 4 ] && [ $((BASH_REMATCH[1] * 5)) -ge $((BASH_REMATCH[2] * (fifths + 1))) ]; do
      fifths=$((fifths + 1))
      printf '%d%% ' $((fifths * 20))
    done
  done
}

# build_targets DIRECTORY LOG TARGET...: says how far it is, and nothing else.
build_targets() {
  local directory=$1 log=$2 show=show_fifths
  shift 2
  [ -t 1 ] && show=show_steps
  NINJA_STATUS='[%f/%t %e] ' ninja -C "$directory" -j "$(build_jobs)" "$@" 2>&1 | tee -a "$log" | "$show"
}
