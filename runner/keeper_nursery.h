// Where keepers come from: a process of this program, started once, that forks one keeper for each
// launch. Loading the program anew would take each of them two milliseconds.
//
//   runner ──(launch directory, pipe)──> nursery ──fork──> keeper
//
// The nursery does nothing else, has one thread, and ends with its runner; its keepers go on.
#pragma once

#include <filesystem>

#include "runner/keeper.h"
#include "runner/launch_dir.h"
#include "runner/process.h"
#include "schema/fd.h"
#include "schema/result.h"

namespace dtrain::runner {

// The body of `dtrain keeper`: the exit code. Descriptor 1 is the socket that leads to the runner, 2 the keepers' log.
int run_keeper_nursery();

// Owner: Agent. Thread: loop.
class KeeperNursery {
 public:
  // executable: of this program, /proc/self/exe mostly. log: what keepers print goes there.
  KeeperNursery(std::filesystem::path executable, std::filesystem::path log)
      : executable_(std::move(executable)), log_(std::move(log)) {}
  ~KeeperNursery();
  KeeperNursery(const KeeperNursery&) = delete;
  KeeperNursery& operator=(const KeeperNursery&) = delete;

  // A keeper of that launch. Blocks for the fork, half a millisecond. A nursery that was killed is
  // replaced.
  Result<SpawnedKeeper> start(const LaunchDir& launch);

 private:
  Status open();
  void close();
  Result<SpawnedKeeper> ask(const LaunchDir& launch);

  std::filesystem::path executable_;
  std::filesystem::path log_;
  Fd socket_;
  Child process_;
};

}  // namespace dtrain::runner
