#include "runner/lost_keeper.h"

#include <fmt/format.h>

#include <csignal>
#include <cstdio>

#include "runner/cgroup.h"
#include "runner/process_tree.h"
#include "runner/spool.h"
#include "schema/clock.h"

namespace dtrain::runner {
namespace {

// Whoever asks comes back, and others wait for the same thread.
constexpr int64_t kGiveUpMs = 500;

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

ReplicaExit lost_exit(const LaunchDir& directory, const ReplicaId& id, bool rebooted) {
  ReplicaExit exit;
  exit.code = 128 + SIGKILL;
  exit.signal = SIGKILL;
  exit.cause = rebooted ? kHostRestarted : kKeeperDied;
  exit.ended_unix_ms = unix_ms();
  exit.log_bytes = spooled_bytes(directory, id);
  return exit;
}

Status write_down(const LaunchDir& directory, const std::map<ReplicaId, ReplicaExit>& ends) {
  TRY(FactsWriter facts, FactsWriter::open(directory));
  for (const auto& [id, exit] : ends) TRY(facts.add(id, exit));
  return facts.sync();
}

}  // namespace

Status kill_launch(const LaunchDir& directory) {
  auto marks = marks_of_launch(directory);
  if (!marks.ok() && marks.error().code == Code::ResourceExhausted) return marks.error();
  if (!marks.ok()) {
    // Of another version. What every version begins with says the most there is to know.
    const auto key = directory.begun_key();
    if (!key) return ok();
    marks = TreeMarks{.key = *key};
  }
  TRY(const auto strays, kill_tree(*marks, kGiveUpMs));
  if (strays.empty()) return ok();
  return Error{Code::DeadlineExceeded, fmt::format("process {} can't be killed yet", strays[0].pid), ""};
}

Result<std::map<ReplicaId, ReplicaExit>> end_lost_launch(const LaunchDir& directory) {
  TRY(kill_launch(directory));
  std::map<ReplicaId, ReplicaExit> ends;
  const auto launch = directory.read_launch();
  if (!launch.ok() && launch.error().code == Code::ResourceExhausted) return launch.error();
  if (!launch.ok() || !*launch) return ends;
  auto read = read_facts(directory);
  if (!read.ok() && read.error().code == Code::ResourceExhausted) return std::move(read).error();
  const LaunchFacts facts = read.ok() ? std::move(read).value() : LaunchFacts();
  const bool rebooted = facts.keeper && facts.keeper->boot_id != boot_id();
  for (const ReplicaLaunch& replica : (*launch)->replicas) {
    if (facts.exits.contains(replica.id)) continue;
    ReplicaExit& end = ends.emplace(replica.id, lost_exit(directory, replica.id, rebooted)).first->second;
    if (const auto printed = facts.printed.find(replica.id); printed != facts.printed.end()) end.printed = printed->second;
  }
  if (auto written = write_down(directory, ends); !written.ok()) {
    fmt::print(stderr, "{}\n", written.error().message);
  }
  (void)remove_launch_cgroups(**launch).ok();
  return ends;
}

}  // namespace dtrain::runner
