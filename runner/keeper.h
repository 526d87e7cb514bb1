// The keeper: parent of a launch's replicas on one host. It owns their pipes, writes what they say
// to spools, ends them when asked or when the lease runs out, and writes down how each ended.
//
// A process of its own (`dtrain keeper <launch dir>`), single-threaded; it knows neither network
// nor gRPC and outlives the runner. What it knows is on disk (launch_dir.h); a runner that connects
// to `ctl` only speeds things up.
//
// A replica has ended when nothing of its tree is alive. After its main process exited by itself,
// what it left behind gets TERM, then KILL after kLeftoverGraceMs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "schema/fd.h"
#include "runner/launch_dir.h"
#include "runner/process.h"
#include "schema/result.h"

namespace dtrain::runner {

inline constexpr int64_t kLeftoverGraceMs = 2'000;

// The body of `dtrain keeper`: its exit code. Needs launch.json. With descriptor 1 a pipe it writes
// "ready\n" there once keeper.json is in place and ctl listens; then it logs to keeper.log.
int run_keeper(const std::filesystem::path& launch_dir);

// The runner's side.

struct SpawnedKeeper {
  Child process;  // the runner reaps it (try_reap once pidfd is readable)
  Fd ready;  // one line comes when it is ready; end of file without one: it died, see keeper.log
};
// Starts `executable keeper <launch dir>`. executable: /proc/self/exe of the runner.
Result<SpawnedKeeper> spawn_keeper(const std::filesystem::path& executable,
                                   const LaunchDir& launch);

// A connected, non-blocking, close-on-exec stream to the keeper's ctl, whatever the path's length.
// The keeper says `changed` first, so that whoever connects looks at the directory.
Result<Fd> connect_keeper(const LaunchDir& launch);

// The last lines of keeper.log, for the error of a keeper that died; empty when there is none.
std::string keeper_log_tail(const LaunchDir& launch);

}  // namespace dtrain::runner
