#include "daemon/store.h"

#include <utility>

namespace dtrain::daemon {

namespace {

// Raised when a table changes; a database with a higher number is refused.
constexpr int kFormat = 1;

constexpr const char* kTables = R"sql(
create table if not exists submission (
  number          integer primary key autoincrement,
  submission_id   text not null unique,
  spec_yaml       text not null,
  snapshot        blob not null,
  user            text not null,
  project_dir     text not null,
  host            text not null,
  submitted_ms    integer not null,
  extras          blob not null,
  closed          integer not null default 0
) strict;
create index if not exists submission_open on submission (number) where closed = 0;
create index if not exists submission_project on submission (project_dir, number);
create table if not exists experiment (
  number  integer not null,
  member  integer not null,
  facts   blob not null,
  primary key (number, member)
) strict, without rowid;
create table if not exists event (
  sequence  integer primary key autoincrement,
  number    integer not null,
  body      blob not null
) strict;
create index if not exists event_number on event (number, sequence);
create table if not exists metrics (
  number  integer not null,
  member  integer not null,
  record  blob not null,
  primary key (number, member)
) strict, without rowid;
create table if not exists metrics_read (
  number         integer primary key,
  journal_bytes  integer not null
) strict;
create table if not exists journal_place (
  number  integer primary key,
  place   blob not null
) strict;
create table if not exists allocation (
  number  integer primary key autoincrement,
  record  blob not null
) strict;
create table if not exists drained (
  host  text primary key
) strict, without rowid;
create table if not exists revoked (
  host      text primary key,
  boot_id   text not null,
  heard_ms  integer not null
) strict, without rowid;
create table if not exists clock (
  one      integer primary key check (one = 1),
  boot_id  text not null,
  at_ms    integer not null
) strict;
)sql";

Result<pb::ExperimentRecord> parse_record(const ExperimentId& id, const std::string& bytes) {
  pb::ExperimentRecord record;
  if (record.ParseFromString(bytes)) return record;
  return Error{Code::DataLoss,
               fmt::format("the stored facts of experiment {} are damaged", to_string(id)),
               "restore DTRAIN_HOME/db from a backup"};
}

Result<Submission> read_submission(int64_t number, const std::string& spec_yaml) {
  Submission submission;
  submission.number = static_cast<uint32_t>(number);
  submission.spec_yaml = spec_yaml;
  auto spec = parse_spec(spec_yaml, {});
  if (!spec.ok()) {
    return Error{Code::DataLoss,
                 fmt::format("experiment {} is stored, but this dtrain can't read it: {}", number, spec.error().message),
                 "the version that took it can; or restore DTRAIN_HOME/db from a backup"};
  }
  submission.spec = std::move(*spec);
  submission.shapes = shapes_of(submission.spec);
  return submission;
}

}  // namespace

Store::Store(Database database) : database_(std::move(database)) {}

Result<std::unique_ptr<Store>> Store::open(const std::filesystem::path& path) {
  TRY(Database database, Database::open(path));
  int64_t format = 0;
  {
    Statement version(database, "pragma user_version");
    TRY(const bool row, version.step());
    if (row) format = version.integer(0);
    if (format > kFormat) {
      return Error{Code::FailedPrecondition,
                   fmt::format("{} was written by a newer dtrain (format {}, this one reads {})",
                               path.string(), format, kFormat),
                   "start the newer dtrain, or another DTRAIN_HOME"};
    }
  }
  TRY(database.execute(kTables));
  // A full disk would not take even the same number.
  if (format != kFormat) TRY(database.execute(fmt::format("pragma user_version={}", kFormat).c_str()));
  return std::unique_ptr<Store>(new Store(std::move(database)));
}

Result<Store::Added> Store::add_submission(const Submission& submission,
                                           const SubmissionExtras& extras) {
  Transaction transaction(database_);
  TRY(transaction.begin());
  Statement known(database_, "select number from submission where submission_id = ?");
  TRY(const bool found, known.bind_text(submission.submission_id).step());
  if (found) return Added{static_cast<uint32_t>(known.integer(0)), true};

  pb::SubmissionExtras stored;
  stored.mutable_secrets()->insert(extras.secrets.begin(), extras.secrets.end());
  stored.mutable_user_env()->insert(extras.user_env.begin(), extras.user_env.end());
  stored.set_rebuild(extras.rebuild);
  Statement insert(database_,
                   "insert into submission (submission_id, spec_yaml, snapshot, user, project_dir, "
                   "host, submitted_ms, extras) values (?, ?, ?, ?, ?, ?, ?, ?)");
  insert.bind_text(submission.submission_id)
      .bind_text(submission.spec_yaml)
      .bind_blob(submission.snapshot)
      .bind_text(submission.user)
      .bind_text(submission.project_dir)
      .bind_text(submission.host)
      .bind(static_cast<int64_t>(submission.submitted_unix_ms))
      .bind_blob(stored.SerializeAsString());
  TRY(insert.step());
  const int64_t number = database_.last_inserted_row();
  TRY(transaction.commit());
  return Added{static_cast<uint32_t>(number), false};
}

Result<bool> Store::has_submission(const std::string& submission_id) {
  Statement select(database_, "select 1 from submission where submission_id = ?");
  return select.bind_text(submission_id).step();
}

Status Store::leave_out_numbers(uint32_t last) {
  Transaction transaction(database_);
  TRY(transaction.begin());
  Statement given(database_, "select coalesce(max(seq), 0) from sqlite_sequence where name = 'submission'");
  TRY(given.step());
  if (given.integer(0) >= last) return ok();
  given.reset();
  TRY(database_.execute("delete from sqlite_sequence where name = 'submission'"));
  Statement next(database_, "insert into sqlite_sequence (name, seq) values ('submission', ?)");
  TRY(next.bind(last).step());
  return transaction.commit();
}

Status Store::commit(const std::vector<StoredExperiment>& experiments,
                     const std::vector<pb::StateEvent>& events) {
  if (experiments.empty() && events.empty()) return ok();
  Transaction transaction(database_);
  TRY(transaction.begin());
  Statement write(database_,
                  "insert into experiment (number, member, facts) values (?, ?, ?) "
                  "on conflict (number, member) do update set facts = excluded.facts");
  for (const StoredExperiment& experiment : experiments) {
    write.bind(experiment.id.number)
        .bind(experiment.id.member)
        .bind_blob(experiment.record.SerializeAsString());
    TRY(write.step());
    write.reset();
    if (experiment.metrics) TRY(write_metrics(experiment.id, *experiment.metrics));
  }
  Statement append(database_, "insert into event (number, body) values (?, ?)");
  for (const pb::StateEvent& event : events) {
    TRY(const IdPattern id, parse_id_pattern(event.id()));
    append.bind(id.experiment.number).bind_blob(event.SerializeAsString());
    TRY(append.step());
    append.reset();
  }
  return transaction.commit();
}

Status Store::write_metrics(const ExperimentId& id, const pb::MetricsRecord& record) {
  Statement write(database_,
                  "insert or replace into metrics (number, member, record) values (?, ?, ?)");
  TRY(write.bind(id.number).bind(id.member).bind_blob(record.SerializeAsString()).step());
  return ok();
}

Status Store::put_metrics(uint32_t number, uint64_t journal_bytes,
                          const std::map<uint32_t, pb::MetricsRecord>& members) {
  Transaction transaction(database_);
  TRY(transaction.begin());
  for (const auto& [member, record] : members) TRY(write_metrics({number, member}, record));
  Statement write(database_,
                  "insert or replace into metrics_read (number, journal_bytes) values (?, ?)");
  TRY(write.bind(number).bind(static_cast<int64_t>(journal_bytes)).step());
  return transaction.commit();
}

Result<Store::StoredMetrics> Store::metrics(uint32_t number) {
  StoredMetrics stored;
  Statement read(database_, "select journal_bytes from metrics_read where number = ?");
  TRY(const bool known, read.bind(number).step());
  if (known) stored.journal_bytes = static_cast<uint64_t>(read.integer(0));
  Statement select(database_, "select member, record from metrics where number = ?");
  select.bind(number);
  while (true) {
    TRY(const bool row, select.step());
    if (!row) return stored;
    pb::MetricsRecord record;
    if (!record.ParseFromString(select.bytes(1))) continue;   // as if nothing had been said
    stored.members.emplace(static_cast<uint32_t>(select.integer(0)), std::move(record));
  }
}

Status Store::put_journal_place(uint32_t number, const pb::JournalPlace& place) {
  Statement write(database_, "insert or replace into journal_place (number, place) values (?, ?)");
  TRY(write.bind(number).bind_blob(place.SerializeAsString()).step());
  return ok();
}

Result<pb::JournalPlace> Store::journal_place(uint32_t number) {
  Statement select(database_, "select place from journal_place where number = ?");
  TRY(const bool known, select.bind(number).step());
  pb::JournalPlace place;
  if (known && !place.ParseFromString(select.bytes(0))) place.Clear();
  return place;
}

Status Store::note_time(const std::string& boot_id, TimeMs now) {
  Statement insert(database_, "insert or replace into clock (one, boot_id, at_ms) values (1, ?, ?)");
  TRY(insert.bind_text(boot_id).bind(now).step());
  return ok();
}

Result<Store::NotedTime> Store::noted_time() {
  Statement select(database_, "select boot_id, at_ms from clock");
  TRY(const bool row, select.step());
  return row ? NotedTime{select.bytes(0), select.integer(1)} : NotedTime{};
}

Status Store::set_drained(const HostId& host, bool drained) {
  Statement change(database_, drained ? "insert or ignore into drained (host) values (?)" : "delete from drained where host = ?");
  TRY(change.bind_text(host.hex).step());
  return ok();
}

Result<std::set<HostId>> Store::drained_hosts() {
  std::set<HostId> hosts;
  Statement rows(database_, "select host from drained");
  while (true) {
    TRY(const bool row, rows.step());
    if (!row) return hosts;
    hosts.insert(HostId{rows.bytes(0)});
  }
}

Status Store::put_revoked(const std::map<HostId, TimeMs>& hosts, const std::string& boot_id) {
  Transaction transaction(database_);
  TRY(transaction.begin());
  TRY(database_.execute("delete from revoked"));
  Statement insert(database_, "insert into revoked (host, boot_id, heard_ms) values (?, ?, ?)");
  for (const auto& [host, heard_ms] : hosts) {
    TRY(insert.bind_text(host.hex).bind_text(boot_id).bind(heard_ms).step());
    insert.reset();
  }
  return transaction.commit();
}

Result<std::map<HostId, Store::Revoked>> Store::revoked_hosts() {
  std::map<HostId, Revoked> hosts;
  Statement rows(database_, "select host, boot_id, heard_ms from revoked");
  while (true) {
    TRY(const bool row, rows.step());
    if (!row) return hosts;
    hosts[HostId{rows.bytes(0)}] = {rows.bytes(1), rows.integer(2)};
  }
}

Result<uint32_t> Store::add_allocation(pb::AllocationRecord record) {
  Transaction transaction(database_);
  TRY(transaction.begin());
  Statement insert(database_, "insert into allocation (record) values (x'')");
  TRY(insert.step());
  const auto number = static_cast<uint32_t>(database_.last_inserted_row());
  record.set_number(number);
  Statement fill(database_, "update allocation set record = ? where number = ?");
  TRY(fill.bind_blob(record.SerializeAsString()).bind(number).step());
  TRY(transaction.commit());
  return number;
}

Status Store::put_allocation(const pb::AllocationRecord& record) {
  Statement update(database_, "update allocation set record = ? where number = ?");
  TRY(update.bind_blob(record.SerializeAsString()).bind(record.number()).step());
  return ok();
}

Status Store::remove_allocation(uint32_t number) {
  Statement remove(database_, "delete from allocation where number = ?");
  TRY(remove.bind(number).step());
  return ok();
}

Result<Store::Allocations> Store::allocations() {
  Allocations allocations;
  Statement rows(database_, "select number, record from allocation order by number");
  while (true) {
    TRY(const bool row, rows.step());
    if (!row) return allocations;
    const auto number = static_cast<uint32_t>(rows.integer(0));
    pb::AllocationRecord record;
    if (record.ParseFromString(rows.bytes(1)) && record.number() == number) {
      allocations.records.push_back(std::move(record));
    } else {
      allocations.unreadable.insert(number);
    }
  }
}

Status Store::close_submission(uint32_t number) {
  Statement close(database_, "update submission set closed = 1 where number = ?");
  TRY(close.bind(number).step());
  return ok();
}

Result<std::vector<uint32_t>> Store::open_numbers() {
  std::vector<uint32_t> numbers;
  Statement select(database_, "select number from submission where closed = 0 order by number");
  while (true) {
    TRY(const bool row, select.step());
    if (!row) return numbers;
    numbers.push_back(static_cast<uint32_t>(select.integer(0)));
  }
}

Status Store::check_file() {
  Statement check(database_, "pragma quick_check(1)");
  TRY(check.step());
  const std::string found = check.bytes(0);
  if (found == "ok") return ok();
  return Error{Code::DataLoss, fmt::format("the database is damaged: {}", found), "restore DTRAIN_HOME/db from a backup, or move it away"};
}

Result<std::shared_ptr<const Submission>> Store::submission(uint32_t number) {
  Statement select(database_,
                   "select spec_yaml, submission_id, snapshot, user, project_dir, host, submitted_ms "
                   "from submission where number = ?");
  TRY(const bool row, select.bind(number).step());
  if (!row) {
    return Error{Code::NotFound, fmt::format("no experiment {}", number),
                 "`dtrain status -n 0` lists all"};
  }
  TRY(Submission submission, read_submission(number, select.bytes(0)));
  submission.submission_id = select.bytes(1);
  submission.snapshot = select.bytes(2);
  submission.user = select.bytes(3);
  submission.project_dir = select.bytes(4);
  submission.host = select.bytes(5);
  submission.submitted_unix_ms = static_cast<uint64_t>(select.integer(6));
  return std::make_shared<const Submission>(std::move(submission));
}

Result<SubmissionExtras> Store::extras(uint32_t number) {
  Statement select(database_, "select extras from submission where number = ?");
  TRY(const bool row, select.bind(number).step());
  if (!row) return Error{Code::NotFound, fmt::format("no experiment {}", number), ""};
  pb::SubmissionExtras stored;
  if (!stored.ParseFromString(select.bytes(0))) {
    return Error{Code::DataLoss, fmt::format("the environment stored for {} makes no sense", number),
                 ""};
  }
  return SubmissionExtras{{stored.secrets().begin(), stored.secrets().end()},
                          {stored.user_env().begin(), stored.user_env().end()},
                          stored.rebuild()};
}

Result<std::vector<StoredExperiment>> Store::experiments(uint32_t number) {
  std::vector<StoredExperiment> experiments;
  Statement select(database_, "select member, facts from experiment where number = ? order by member");
  select.bind(number);
  while (true) {
    TRY(const bool row, select.step());
    if (!row) return experiments;
    StoredExperiment experiment;
    experiment.id = {number, static_cast<uint32_t>(select.integer(0))};
    TRY(experiment.record, parse_record(experiment.id, select.bytes(1)));
    experiments.push_back(std::move(experiment));
  }
}

Result<std::optional<pb::ExperimentRecord>> Store::experiment(const ExperimentId& id) {
  Statement select(database_, "select facts from experiment where number = ? and member = ?");
  select.bind(id.number);
  select.bind(id.member);
  TRY(const bool row, select.step());
  if (!row) return std::optional<pb::ExperimentRecord>();
  TRY(auto record, parse_record(id, select.bytes(0)));
  return std::optional(std::move(record));
}

Result<std::vector<pb::StateEvent>> Store::events(uint32_t number) {
  std::vector<pb::StateEvent> events;
  Statement select(database_, "select body from event where number = ? order by sequence");
  select.bind(number);
  while (true) {
    TRY(const bool row, select.step());
    if (!row) return events;
    pb::StateEvent event;
    if (event.ParseFromString(select.bytes(0))) events.push_back(std::move(event));
  }
}

Result<std::vector<Store::Closed>> Store::closed_submissions() {
  std::vector<Closed> closed;
  Statement select(database_,
                   "select number, (select body from event where event.number = submission.number "
                   "order by sequence desc limit 1), project_dir, user from submission where closed = 1 "
                   "order by number");
  while (true) {
    TRY(const bool row, select.step());
    if (!row) return closed;
    pb::StateEvent last;
    if (!last.ParseFromString(select.bytes(1))) last.Clear();
    closed.push_back({static_cast<uint32_t>(select.integer(0)), last.time_unix_ms(), select.bytes(2), select.bytes(3)});
  }
}

Result<std::vector<std::string>> Store::snapshots(const std::set<uint32_t>& but) {
  std::set<std::string> snapshots;
  Statement select(database_, "select number, snapshot from submission");
  while (true) {
    TRY(const bool row, select.step());
    if (!row) return std::vector<std::string>(snapshots.begin(), snapshots.end());
    if (!but.contains(static_cast<uint32_t>(select.integer(0)))) snapshots.insert(select.bytes(1));
  }
}

Status Store::remove_submissions(const std::vector<uint32_t>& numbers) {
  if (numbers.empty()) return ok();
  Transaction transaction(database_);
  TRY(transaction.begin());
  for (const char* sql : {"delete from event where number = ?",
                          "delete from metrics where number = ?",
                          "delete from metrics_read where number = ?",
                          "delete from journal_place where number = ?",
                          "delete from experiment where number = ?",
                          "delete from submission where number = ?"}) {
    Statement remove(database_, sql);
    for (const uint32_t number : numbers) {
      TRY(remove.bind(number).step());
      remove.reset();
    }
  }
  return transaction.commit();
}

Result<std::vector<uint32_t>> Store::numbers(const std::string& project_dir, uint32_t limit) {
  std::vector<uint32_t> numbers;
  Statement select(database_,
                   project_dir.empty()
                       ? "select number from submission where '' = ? order by number desc limit ?"
                       : "select number from submission where project_dir = ? "
                         "order by number desc limit ?");
  select.bind_text(project_dir).bind(limit == 0 ? -1 : static_cast<int64_t>(limit));
  while (true) {
    TRY(const bool row, select.step());
    if (!row) return numbers;
    numbers.push_back(static_cast<uint32_t>(select.integer(0)));
  }
}

}  // namespace dtrain::daemon
