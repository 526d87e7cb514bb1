// The daemon's memory on disk: submissions, experiments' facts and their state events, in SQLite.
//
// Owner: daemon main. Thread: loop. Promises: what commit() or add_submission() returned ok for is on
// the disk, and survives kill -9 and power loss (WAL, synchronous=FULL). Never: decides anything.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "daemon/model.h"
#include "daemon/sqlite.h"
#include "schema/dtrain.pb.h"
#include "schema/result.h"

namespace dtrain::daemon {

struct StoredExperiment {
  ExperimentId id;
  pb::ExperimentRecord record;
  std::optional<pb::MetricsRecord> metrics = {};   // to be written along
};

class Store {
 public:
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  // Creates the file (mode 0600) and its tables when absent. DataLoss when it is not a database of
  // ours, FailedPrecondition when a newer dtrain wrote it.
  static Result<std::unique_ptr<Store>> open(const std::filesystem::path& path);

  struct Added {
    uint32_t number = 0;
    bool repeated = false;   // this submission id was stored before, under this number
  };
  // Gives the submission its number, durable on return. submission.number is ignored.
  Result<Added> add_submission(const Submission& submission, const SubmissionExtras& extras);

  Result<bool> has_submission(const std::string& submission_id);
  // Numbers up to `last` are given to no submission from now on.
  Status leave_out_numbers(uint32_t last);

  // One transaction: the facts of some experiments and the events people see. A member that was never
  // committed has no row: it is as submitted.
  Status commit(const std::vector<StoredExperiment>& experiments,
                const std::vector<pb::StateEvent>& events);

  // What was read of the output of some members, up to `journal_bytes` of the journal and past it.
  Status put_metrics(uint32_t number, uint64_t journal_bytes,
                     const std::map<uint32_t, pb::MetricsRecord>& members);
  struct StoredMetrics {
    uint64_t journal_bytes = 0;
    std::map<uint32_t, pb::MetricsRecord> members;   // those of which something was read
  };
  Result<StoredMetrics> metrics(uint32_t number);

  // Where a daemon that opens the journal begins to read.
  Status put_journal_place(uint32_t number, const pb::JournalPlace& place);
  Result<pb::JournalPlace> journal_place(uint32_t number);   // of nothing: the beginning

  // A moment of CLOCK_BOOTTIME that was reached: after a reboot durations go on from the latest known.
  Status note_time(const std::string& boot_id, TimeMs now);
  struct NotedTime {
    std::string boot_id;   // empty: none was ever noted
    TimeMs at_ms = 0;
  };
  Result<NotedTime> noted_time();

  // Hosts on which nothing more is placed.
  Status set_drained(const HostId& host, bool drained);
  Result<std::set<HostId>> drained_hosts();

  // Hosts whose key was revoked and of which something is awaited, and when each was last heard of: by
  // CLOCK_BOOTTIME of that boot.
  struct Revoked {
    std::string boot_id;
    TimeMs heard_ms = 0;
  };
  Status put_revoked(const std::map<HostId, TimeMs>& hosts, const std::string& boot_id);   // instead of those before
  Result<std::map<HostId, Revoked>> revoked_hosts();

  // What was asked of pools and not given back yet. Numbers are never given again.
  Result<uint32_t> add_allocation(pb::AllocationRecord record);   // record.number is ignored
  Status put_allocation(const pb::AllocationRecord& record);
  Status remove_allocation(uint32_t number);
  struct Allocations {
    std::vector<pb::AllocationRecord> records;
    std::set<uint32_t> unreadable;   // their numbers; what is stored of them stays
  };
  Result<Allocations> allocations();

  // All of it is over: open_numbers() leaves it out from now on.
  Status close_submission(uint32_t number);

  // What is read of one submission is DataLoss where this dtrain can't make sense of it; check_file() says whether the
  // whole database is to blame.
  Result<std::vector<uint32_t>> open_numbers();
  Status check_file();   // DataLoss; takes long where it is large
  Result<std::shared_ptr<const Submission>> submission(uint32_t number);   // NotFound
  Result<SubmissionExtras> extras(uint32_t number);
  Result<std::vector<StoredExperiment>> experiments(uint32_t number);
  // Nothing for one that was never committed.
  Result<std::optional<pb::ExperimentRecord>> experiment(const ExperimentId& id);
  Result<std::vector<pb::StateEvent>> events(uint32_t number);
  // What close_submission() was called for, in the order of numbers.
  struct Closed {
    uint32_t number = 0;
    uint64_t ended_unix_ms = 0;   // of its last event
    std::string project_dir = {};
    std::string user = {};
  };
  Result<std::vector<Closed>> closed_submissions();
  // The manifests of all submissions but these, each once.
  Result<std::vector<std::string>> snapshots(const std::set<uint32_t>& but);
  // All that is stored of them. Their numbers are not given again.
  Status remove_submissions(const std::vector<uint32_t>& numbers);
  // Newest first. `project_dir` empty: every project; limit 0: all.
  Result<std::vector<uint32_t>> numbers(const std::string& project_dir, uint32_t limit);

 private:
  explicit Store(Database database);
  Status write_metrics(const ExperimentId& id, const pb::MetricsRecord& record);

  Database database_;
};

}  // namespace dtrain::daemon
