#include "runner/lost_keeper.h"

#include <fmt/format.h>

#include <csignal>
#include <cstdio>

#include "runner/cgroup.h"
#include "runner/keeper.h"
#include "runner/process_tree.h"
#include "runner/spool.h"
#include "runner/workdir.h"
#include "schema/clock.h"

namespace dtrain::runner {
namespace {

constexpr int64_t kGiveUpMs = 10'000;

// The end of what the dead keeper stored; everything after it is lost with its pipes.
uint64_t spooled_bytes(const LaunchDir& directory, const ReplicaId& id) {
  SpoolReader reader(directory, id, 0);
  uint64_t end = 0;
  // Damage is skipped by the reader; it can't be met more often than there are segments.
  for (int errors = 0; errors < 1000;) {
    auto next = reader.next();
    if (!next.ok()) {
      ++errors;
      continue;
    }
    if (!*next) break;
    end = (*next)->end_offset();
  }
  return end;
}

ExitFile lost_exit(const LaunchDir& directory, const ReplicaId& id, bool rebooted) {
  ExitFile exit;
  exit.code = 128 + SIGKILL;
  exit.signal = SIGKILL;
  exit.cause = rebooted ? "keeper died: the host was restarted" : "keeper died";
  exit.ended_unix_ms = unix_ms();
  exit.log_bytes = spooled_bytes(directory, id);
  return exit;
}

}  // namespace

void kill_launch(const LaunchDir& directory) {
  const auto marks = marks_of_launch(directory);
  if (!marks.ok()) return;  // no launch.json: nothing was started
  for (const ProcessRow& stray : kill_tree(*marks, kGiveUpMs)) {
    fmt::print(stderr, "{}: process {} can't be killed\n", directory.path().filename().string(),
               stray.pid);
  }
}

std::vector<std::pair<ReplicaId, ExitFile>> end_lost_launch(const LaunchDir& directory,
                                                            const ProcessIdentity& keeper) {
  kill_launch(directory);
  std::vector<std::pair<ReplicaId, ExitFile>> ends;
  const auto launch = directory.read_launch();
  if (!launch.ok() || !*launch) return ends;
  const bool rebooted = !keeper.boot_id.empty() && keeper.boot_id != boot_id();
  for (const ReplicaLaunch& replica : (*launch)->replicas) {
    const auto there = directory.read_exit(replica.id);
    if (there.ok() && *there) continue;
    const ExitFile exit = lost_exit(directory, replica.id, rebooted);
    if (auto written = directory.write_exit(replica.id, exit); !written.ok()) {
      fmt::print(stderr, "{}: {}\n", to_string(replica.id), written.error().message);
    }
    ends.emplace_back(replica.id, exit);
  }
  (void)remove_launch_cgroups(**launch).ok();
  return ends;
}

void release_all_work(const LaunchDir& directory) {
  const auto launch = directory.read_launch();
  if (!launch.ok() || !*launch) return;
  for (const ReplicaLaunch& replica : (*launch)->replicas) {
    const auto place = std::filesystem::path((*launch)->work_root) / to_string(replica.id);
    if (auto released = release_view(place); !released.ok()) {
      fmt::print(stderr, "{}: {}\n", to_string(replica.id), released.error().message);
    }
  }
}

}  // namespace dtrain::runner
