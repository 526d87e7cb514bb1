// `dtrain runner run`: the one runner process of a host, from its lock file to its last signal.
//
// It wires inventory, agent and link to one loop and blocks until TERM or INT. Ending it ends
// nothing else: keepers and replicas go on, and the next runner of the same home adopts them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include "schema/access_key.h"
#include "schema/result.h"

namespace dtrain::runner {

struct RunnerOptions {
  std::filesystem::path
      home;  // the runner's own directory: host-id, launches, trees; made if absent
  std::string daemon_socket;  // path of the daemon's Unix socket; "unix:" in front is allowed
  std::optional<AccessKey> key;  // of a daemon on another machine, instead
  // The DTRAIN_HOME of the daemon to start again when it dies; empty: that is somebody else's task.
  std::filesystem::path daemon_home;
  // How other hosts reach replicas here; empty: they can't, or, with a key, as this host reaches its daemon.
  std::string address;
  std::vector<std::string> labels;
  std::string name;            // shown in `dtrain hosts`; empty: the key's, else the host's name
  std::optional<double> cpus;  // empty: what this process may use
  std::optional<uint64_t> memory_bytes;
  std::optional<uint64_t> cache_bytes;  // of sent files kept for later launches; empty: 20 GiB
  uint32_t port_first = 20'000;  // range replicas may listen on
  uint32_t port_last = 29'999;
  // How long this host is there from now on, and no longer than it has a daemon or holds something of one; empty: as
  // long as nobody ends it.
  std::optional<int64_t> for_ms;
  // Whose `keeper` command is the nursery of keepers; empty: this executable.
  std::filesystem::path keeper_executable;
};

// Ends with its process after TERM or INT. Returns when it could not begin: another runner holds the
// home, or the home can't be written.
Status run_runner(const RunnerOptions& options);

}  // namespace dtrain::runner
