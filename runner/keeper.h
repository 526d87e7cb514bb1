// The keeper: parent of a launch's replicas on one host. It owns their pipes, writes what they say
// to spools, ends them when asked or when the lease runs out, and writes down how each ended.
//
// A process of its own (forked by keeper_nursery.h), with one loop; it knows neither network
// nor gRPC and outlives the runner. What it knows is on disk (launch_dir.h); a runner that connects
// to `ctl` only speeds things up.
//
// A replica has ended when nothing of its tree is alive. After its main process exited by itself,
// what it left behind gets TERM, then KILL after kLeftoverGraceMs.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "schema/fd.h"
#include "runner/launch_dir.h"
#include "runner/process.h"
#include "schema/result.h"

namespace dtrain::runner {

inline constexpr int64_t kLeftoverGraceMs = 2'000;

// The body of a keeper: its exit code. Needs the record. With descriptor 1 a pipe it writes
// "ready\n" there once it listens and has said so in the facts, or the reason why it can't. Its log is
// keepers.log.
int run_keeper(const std::filesystem::path& launch_dir);

// The runner's side.

struct SpawnedKeeper {
  Child process;  // pid -1: a child of the nursery, which reaps it
  Fd ready;  // "ready\n" comes once it is; anything else before the end of file says why it is not
};

// A connected, non-blocking, close-on-exec stream to a keeper, by LaunchRecord::ctl. The keeper
// says `changed` first, so that whoever connects looks at the directory.
Result<Fd> connect_keeper(const std::string& ctl);

}  // namespace dtrain::runner
