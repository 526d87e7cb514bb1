#include "daemon/store.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "daemon/lifecycle.h"
#include "daemon/record.h"
#include "tests/support/project.h"

namespace dtrain::daemon {
namespace {

namespace fs = std::filesystem;

Submission submission(const std::string& id) {
  Submission submission;
  submission.submission_id = id;
  submission.spec_yaml = "project: digits\ntrain:\n  run: python train.py\n";
  submission.snapshot = std::string(32, '\x01');
  submission.user = "user";
  submission.project_dir = "/home/user/digits";
  submission.submitted_unix_ms = 1'700'000'000'000;
  return submission;
}

TEST_CASE("a submission id stored before gives the same number") {
  test::TemporaryFolder folder;
  auto store = Store::open(folder / "db");
  REQUIRE(store.ok());
  const auto first = (*store)->add_submission(submission("a"), {});
  const auto second = (*store)->add_submission(submission("b"), {});
  const auto again = (*store)->add_submission(submission("a"), {});
  REQUIRE(first.ok());
  REQUIRE(second.ok());
  REQUIRE(again.ok());
  CHECK(first->number == 1);
  CHECK(second->number == 2);
  CHECK(again->number == 1);
  CHECK(again->repeated);
  CHECK(!first->repeated);
}

TEST_CASE("everything committed is there for the next daemon") {
  test::TemporaryFolder folder;
  Experiment experiment;
  {
    auto store = Store::open(folder / "db");
    REQUIRE(store.ok());
    SubmissionExtras extras;
    extras.secrets["TOKEN"] = "s3cret\n\"";
    REQUIRE((*store)->add_submission(submission("a"), extras).ok());
    REQUIRE((*store)->add_submission(submission("b"), {}).ok());
    experiment.id = {1, 0};
    experiment.attempt = 3;
    experiment.build_attempt = 2;
    experiment.phase = Phase::Go;
    experiment.stop_forced = true;
    Replica replica;
    replica.id = {{1, 0}, Role::Train, 0};
    replica.attempt = 2;
    replica.seat.replica = replica.id;
    replica.seat.port = 20'001;
    replica.seat.gpus = {0, 3};
    replica.progress = Progress::Exited;
    replica.exit = Exit{};
    replica.exit->code = 137;
    replica.exit->cause = "killed by SIGKILL (9)";
    experiment.replicas.push_back(replica);
    experiment.outcome = Outcome{State::Failed, 137, replica.id, "1.train: killed", 5'000};
    experiment.outcome->printer = ReplicaId{{1, 0}, Role::Worker, 1};
    pb::StateEvent event;
    event.set_id("1.train");
    event.set_state("FAILED");
    REQUIRE((*store)->commit({{{1, 0}, to_record(experiment, 9'000, "boot-a")}}, {event}).ok());
    REQUIRE((*store)->close_submission(2).ok());
  }
  auto store = Store::open(folder / "db");
  REQUIRE(store.ok());
  const auto open = (*store)->open_numbers();
  REQUIRE(open.ok());
  REQUIRE(*open == std::vector<uint32_t>{1});
  const auto stored = (*store)->submission(1);
  REQUIRE(stored.ok());
  CHECK((*stored)->number == 1);
  CHECK((*stored)->spec.project == "digits");
  CHECK((*stored)->project_dir == "/home/user/digits");
  CHECK((*store)->extras(1)->secrets.at("TOKEN") == "s3cret\n\"");

  const auto rows = (*store)->experiments(1);
  REQUIRE(rows.ok());
  REQUIRE(rows->size() == 1);
  const auto loaded = from_record((*rows)[0].record, (*rows)[0].id, *stored, 10'000, "boot-a");
  REQUIRE(loaded.ok());
  CHECK(loaded->attempt == 3);
  CHECK(loaded->build_attempt == 2);
  CHECK(loaded->phase == Phase::Go);
  CHECK(loaded->stop_forced);
  REQUIRE(loaded->replicas.size() == 1);
  CHECK(loaded->replicas[0].seat == experiment.replicas[0].seat);
  CHECK(loaded->replicas[0].exit->cause == "killed by SIGKILL (9)");
  REQUIRE(loaded->outcome);
  CHECK(loaded->outcome->cause == experiment.replicas[0].id);
  CHECK(loaded->outcome->printer == experiment.outcome->printer);
  CHECK(loaded->outcome->at_ms == 5'000);
  // After a reboot the boot clock starts anew: the distance to the moment of storing is kept.
  const auto rebooted = from_record((*rows)[0].record, (*rows)[0].id, *stored, 100, "boot-b");
  REQUIRE(rebooted.ok());
  CHECK(rebooted->outcome->at_ms == 100 - 4'000);

  // Of a daemon that counted builds as attempts: 3 may have been a build's.
  pb::ExperimentRecord older = (*rows)[0].record;
  older.clear_build_attempt();
  const auto of_older = from_record(older, (*rows)[0].id, *stored, 10'000, "boot-a");
  REQUIRE(of_older.ok());
  CHECK(of_older->build_attempt == 3);

  const auto events = (*store)->events(1);
  REQUIRE(events.ok());
  REQUIRE(events->size() == 1);
  CHECK((*events)[0].state() == "FAILED");
  CHECK(*(*store)->numbers("/home/user/digits", 0) == std::vector<uint32_t>{2, 1});
  CHECK(*(*store)->numbers("", 1) == std::vector<uint32_t>{2});
  CHECK(*(*store)->numbers("/elsewhere", 0) == std::vector<uint32_t>{});
  CHECK((*store)->submission(7).error().code == Code::NotFound);
}

TEST_CASE("a max-duration goes on over a reboot that is younger than the run") {
  const auto of_two_hours = std::make_shared<Submission>(submission("a"));
  of_two_hours->number = 1;
  of_two_hours->spec.max_duration_ms = 7'200'000;
  Experiment experiment;
  experiment.id = {1, 0};
  experiment.submission = of_two_hours;
  experiment.attempt = 1;
  experiment.run_since_ms = 1'000'000;
  const auto stored = to_record(experiment, 8'000'000, "boot-a");   // 200 s are left
  auto loaded = from_record(stored, experiment.id, of_two_hours, 60'000, "boot-b");
  REQUIRE(loaded.ok());
  // The daemon of the second boot is killed too.
  loaded = from_record(to_record(*loaded, 60'000, "boot-b"), experiment.id, of_two_hours, 60'000,
                       "boot-b");
  REQUIRE(loaded.ok());
  CHECK(loaded->run_since_ms == 60'000 - 7'000'000);
  Model model;
  model.experiments.emplace(experiment.id, *loaded);
  rebuild(model, 60'000);
  step(model, Tick{}, Policy{}, 260'000 - 1);
  CHECK(!model.experiments.at(experiment.id).outcome);
  step(model, Tick{}, Policy{}, 260'000);
  CHECK(model.experiments.at(experiment.id).outcome->reason.find("max-duration") !=
        std::string::npos);
}

TEST_CASE("a backoff that was over before a reboot is over after it") {
  const auto waiting = std::make_shared<Submission>(submission("a"));
  waiting->number = 1;
  Experiment experiment;
  experiment.id = {1, 0};
  experiment.submission = waiting;
  experiment.attempt = 1;
  experiment.not_before_ms = 5'000;
  // The disk refused what followed, and later took that the daemon still lived.
  const auto stored = to_record(experiment, 100'000, "boot-a");
  const auto loaded = from_record(stored, experiment.id, waiting, 60'000, "boot-b");
  REQUIRE(loaded.ok());
  Model model;
  model.experiments.emplace(experiment.id, *loaded);
  rebuild(model, 60'000);
  step(model, Tick{}, Policy{}, 60'000);
  CHECK(is_queued(model.experiments.at(experiment.id)));
}

TEST_CASE("the last moment noted is there for the next daemon") {
  test::TemporaryFolder folder;
  {
    auto store = Store::open(folder / "db");
    REQUIRE(store.ok());
    CHECK((*store)->noted_time()->boot_id.empty());
    REQUIRE((*store)->note_time("boot-a", 1'000).ok());
    REQUIRE((*store)->note_time("boot-a", 11'000).ok());
  }
  auto store = Store::open(folder / "db");
  REQUIRE(store.ok());
  CHECK((*store)->noted_time()->boot_id == "boot-a");
  CHECK((*store)->noted_time()->at_ms == 11'000);
}

// The database's files as a power cut may leave them: whatever follows byte `cut` of the log was on
// its way. `rubbish`: the file has its length, but what had not been written is something else.
void tear(const fs::path& database, const fs::path& torn, uint64_t cut, bool rubbish) {
  const fs::path log = database.string() + "-wal", torn_log = torn.string() + "-wal";
  fs::remove(torn.string() + "-shm");
  fs::copy_file(database, torn, fs::copy_options::overwrite_existing);
  fs::copy_file(log, torn_log, fs::copy_options::overwrite_existing);
  const uint64_t size = fs::file_size(log);
  fs::resize_file(torn_log, cut);
  if (!rubbish) return;
  std::ofstream(torn_log, std::ios::binary | std::ios::app) << std::string(size - cut, '\xa5');
}

TEST_CASE("wherever the last commit is torn, what was acknowledged before it is there") {
  // Every byte at the edges of the log's frames, and others in between.
  constexpr uint64_t kHeaderBytes = 32, kFrameBytes = 24 + 4096;
  const auto is_telling = [](uint64_t cut) {
    const uint64_t within = (cut - kHeaderBytes) % kFrameBytes;
    return within < 32 || within > kFrameBytes - 8 || within % 97 == 0;
  };
  // A few thousand databases are opened: in memory, where a sync costs nothing.
  test::TemporaryFolder folder(fs::exists("/dev/shm") ? fs::path("/dev/shm")
                                                      : fs::temp_directory_path());
  const fs::path database = folder / "db", torn = folder / "torn", log = folder / "db-wal";
  auto store = Store::open(database);
  REQUIRE(store.ok());
  REQUIRE((*store)->add_submission(submission("a"), {}).ok());
  StoredExperiment row;
  row.id = {1, 0};
  pb::StateEvent event;
  event.set_id("1");
  const auto commit = [&](uint32_t attempt) {
    row.record.set_attempt(attempt);
    event.set_attempt(attempt);
    REQUIRE((*store)->commit({row}, {event}).ok());
    return fs::file_size(log);
  };
  const uint64_t before = commit(1);
  const uint64_t after = commit(2);
  REQUIRE(before < after);
  for (uint64_t cut = before; cut <= after; ++cut) {
    if (cut != after && !is_telling(cut)) continue;
    for (const bool rubbish : {false, true}) {
      CAPTURE(cut);
      CAPTURE(rubbish);
      tear(database, torn, cut, rubbish);
      auto found = Store::open(torn);
      REQUIRE(found.ok());
      const auto facts = (*found)->experiment({1, 0});
      const auto events = (*found)->events(1);
      REQUIRE(facts.ok());
      REQUIRE(facts->has_value());
      REQUIRE(events.ok());
      // The last commit is there whole or not at all.
      CHECK((*facts)->attempt() == events->size());
      CHECK((*facts)->attempt() == (cut == after ? 2 : 1));
      // And the numbers go on.
      const auto next = (*found)->add_submission(submission("b"), {});
      REQUIRE(next.ok());
      CHECK(next->number == 2);
    }
  }
}

TEST_CASE("what was asked of a pool and can't be read hides nothing else that was") {
  test::TemporaryFolder folder;
  auto store = Store::open(folder / "db");
  REQUIRE(store.ok());
  for (const char* pool : {"a", "b"}) {
    pb::AllocationRecord record;
    record.set_pool(pool);
    REQUIRE((*store)->add_allocation(record).ok());
  }
  auto database = Database::open(folder / "db");
  REQUIRE(database.ok());
  REQUIRE(database->execute("update allocation set record = x'ff' where number = 1").ok());
  const auto allocations = (*store)->allocations();
  REQUIRE(allocations.ok());
  CHECK(allocations->unreadable == std::set<uint32_t>{1});
  REQUIRE(allocations->records.size() == 1);
  CHECK(allocations->records[0].pool() == "b");
}

TEST_CASE("the database is private, and one of a newer dtrain is refused") {
  test::TemporaryFolder folder;
  const fs::path path = folder / "db";
  { REQUIRE(Store::open(path).ok()); }
  struct stat status;
  REQUIRE(stat(path.c_str(), &status) == 0);
  CHECK((status.st_mode & 0777) == 0600);
  // user_version lies at byte 60 of the file, big-endian.
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(60);
    file.write("\0\0\0\x63", 4);
  }
  const auto newer = Store::open(path);
  REQUIRE(!newer.ok());
  CHECK(newer.error().code == Code::FailedPrecondition);
  CHECK(newer.error().message.find("newer dtrain") != std::string::npos);
}

TEST_CASE("a database that can't be opened is named") {
  test::TemporaryFolder folder;
  const fs::path path = folder / "none/db";
  const auto store = Store::open(path);
  REQUIRE(!store.ok());
  CHECK(store.error().code == Code::PermissionDenied);
  CHECK(store.error().message.find(path.string()) != std::string::npos);
}

TEST_CASE("a file that is no database is refused and left as it is") {
  test::TemporaryFolder folder;
  const fs::path path = folder / "db";
  const std::string text(4096, 'x');
  std::ofstream(path) << text;
  const auto store = Store::open(path);
  REQUIRE(!store.ok());
  CHECK(store.error().code == Code::DataLoss);
  CHECK(store.error().message.find(path.string()) != std::string::npos);
  std::ifstream file(path);
  CHECK(std::string((std::istreambuf_iterator<char>(file)), {}) == text);
}

}  // namespace
}  // namespace dtrain::daemon
