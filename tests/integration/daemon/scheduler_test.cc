#include "daemon/scheduler.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <mutex>
#include <optional>

#include "daemon/dependencies.h"
#include "daemon/summary.h"
#include "schema/clock.h"
#include "tests/integration/daemon/one_daemon.h"

namespace dtrain::daemon {
namespace {

using namespace std::chrono_literals;

const ExperimentId kOne{1, 0};
const ReplicaId kTrain{kOne, Role::Train, 0};

// Submits 1 and has it placed on the one host.
void place_one(OneDaemon& daemon) {
  daemon.scheduler.handle(HostConnected{a_host(), {}});
  REQUIRE(daemon.submit("a").ok());
  daemon.turn();
  REQUIRE(daemon.outbox.count(pb::ToRunner::kLaunch) == 1);
}

void run_to_end(OneDaemon& daemon) {
  place_one(daemon);
  daemon.scheduler.handle(LaunchPrepared{kHost, {kOne, 1}});
  daemon.turn();
  REQUIRE(daemon.outbox.count(pb::ToRunner::kStart) == 1);
  daemon.scheduler.handle(ReplicaStarted{kTrain, 1, 4242, 1'000, kHost});
  daemon.scheduler.handle(ReplicaExited{kTrain, 1, Exit{}, kHost});
  daemon.scheduler.handle(ReplicaReleased{kTrain, 1, "", kHost});
  daemon.turn();
  REQUIRE(daemon.scheduler.is_over(kOne));
}

// The state events of the journal, "1>FINISHED" last.
std::vector<std::string> journal_of(OneDaemon& daemon) {
  auto reader = JournalReader::open(daemon.logs.path(1));
  REQUIRE(reader.ok());
  JournalReader::Filter filter;
  filter.pattern = *parse_id_pattern("1");
  pb::WatchBatch batch;
  REQUIRE((*reader)->read(0, *(*reader)->size(), 1 << 20, filter, batch).ok());
  std::vector<std::string> events;
  for (const auto& item : batch.items()) {
    events.push_back(item.state().id() + ">" + item.state().state());
  }
  return events;
}

TEST_CASE("what is over is closed in the store once its journal is synced") {
  test::TemporaryFolder folder;
  static std::mutex disk;
  const auto sync_when_free = [](int fd) {
    const std::lock_guard free(disk);
    return ::fdatasync(fd);
  };
  OneDaemon daemon(home_below(folder.path()), {sync_when_free, 1h});
  std::unique_lock busy(disk);
  run_to_end(daemon);
  CHECK(daemon.is_open_in_store(1));
  busy.unlock();
  daemon.until([&] { return !daemon.is_open_in_store(1); });
  CHECK(!daemon.scheduler.model().experiments.contains(kOne));
  const auto known = daemon.scheduler.find({1, 0});
  REQUIRE(known.ok());
  CHECK(state_of(*known->experiments.at(0)) == State::Finished);
}

TEST_CASE("the journal of what ended just before a crash is made whole by the next daemon") {
  test::TemporaryFolder folder;
  const Home home = home_below(folder.path());
  std::vector<std::string> whole;
  std::filesystem::path journal;
  {
    OneDaemon daemon(home, {[](int) { return -1; }, 1h});
    run_to_end(daemon);
    whole = journal_of(daemon);
    journal = daemon.logs.path(1);
  }
  REQUIRE(whole.back() == "1>FINISHED");
  std::filesystem::resize_file(journal, std::filesystem::file_size(journal) - 3);
  OneDaemon next(home);
  next.until([&] { return !next.is_open_in_store(1); });
  CHECK(journal_of(next) == whole);
}

TEST_CASE("what a reboot left of a max-duration is known to every later daemon of this boot") {
  test::TemporaryFolder folder;
  const Home home = home_below(folder.path());
  const auto run_since = [](OneDaemon& daemon) {
    return daemon.scheduler.model().experiments.at(kOne).run_since_ms;
  };
  {
    OneDaemon daemon(home);
    place_one(daemon);
    daemon.scheduler.handle(LaunchPrepared{kHost, {kOne, 1}});
    daemon.turn();
    // As of an earlier boot, in which it had run for an hour when that was last noted.
    auto record = daemon.row(kOne);
    record.set_boot_id("boot-a");
    record.set_run_since_ms(1'000'000);
    record.set_stored_at_ms(1'000'000);
    REQUIRE(daemon.store->commit({{kOne, record}}, {}).ok());
    REQUIRE(daemon.store->note_time("boot-a", 4'600'000).ok());
  }
  TimeMs since = 0;
  {
    OneDaemon daemon(home);
    since = run_since(daemon);
    CHECK(boottime_ms() - since >= 3'600'000);
    REQUIRE(daemon.store->note_time(boot_id(), boottime_ms()).ok());   // as it does every few seconds
  }
  OneDaemon daemon(home);
  CHECK(run_since(daemon) == since);
}

TEST_CASE("that the key of a host was revoked, and since when nothing is heard of it, is known to the next daemon") {
  test::TemporaryFolder folder;
  const Home home = home_below(folder.path());
  TimeMs heard = 0;
  {
    OneDaemon daemon(home);
    place_one(daemon);
    daemon.scheduler.handle(LaunchPrepared{kHost, {kOne, 1}});
    heard = daemon.scheduler.model().hosts.at(kHost).last_contact_ms;
    daemon.scheduler.handle(HostRevoked{kHost});
    daemon.scheduler.handle(HostDisconnected{kHost});
    daemon.turn();
  }
  {
    OneDaemon daemon(home);
    CHECK(daemon.scheduler.model().revoked.contains(kHost));
    CHECK(daemon.scheduler.model().hosts.at(kHost).last_contact_ms == heard);
    // As of an earlier boot, whose last noted moment is an hour after that.
    REQUIRE(daemon.store->put_revoked({{kHost, 1'000'000}}, "boot-a").ok());
    REQUIRE(daemon.store->note_time("boot-a", 4'600'000).ok());
  }
  {
    OneDaemon daemon(home);
    heard = daemon.scheduler.model().hosts.at(kHost).last_contact_ms;
    CHECK(boottime_ms() - heard >= 3'600'000);
    REQUIRE(daemon.store->note_time(boot_id(), boottime_ms()).ok());   // as it does every few seconds
  }
  OneDaemon daemon(home);
  CHECK(daemon.scheduler.model().hosts.at(kHost).last_contact_ms == heard);
  daemon.scheduler.handle(HostConnected{a_host(), {}});   // it has another key
  daemon.turn();
  CHECK(daemon.store->revoked_hosts()->empty());
}

// 1 with a place, 2 with one beside it, 3 that is to come after 1.
void begin_three(OneDaemon& daemon) {
  place_one(daemon);
  daemon.scheduler.handle(LaunchPrepared{kHost, {kOne, 1}});
  daemon.scheduler.handle(ReplicaStarted{kTrain, 1, 4242, 1'000, kHost});
  REQUIRE(daemon.submit("b").ok());
  Submission after = a_submission("c");
  after.spec_yaml = "project: testing\ntrain:\n  resources: {cpus: 1, mem: 64}\n  after-end: [1]\n  run: 'true'\n";
  after.spec = parse_spec(after.spec_yaml, {}).value();
  REQUIRE(daemon.scheduler.submit(std::move(after), {}).ok());
  daemon.turn();
}

std::string stored_facts(const Home& home) {
  auto database = Database::open(home.database());
  REQUIRE(database.ok());
  Statement select(*database, "select spec_yaml || hex(extras) || hex(facts) from submission natural join experiment where number = 1");
  REQUIRE(select.step().ok());
  return select.bytes(0);
}

TEST_CASE("what can't be read of one experiment is set aside, and others go on") {
  test::TemporaryFolder folder;
  const Home home = home_below(folder.path());
  {
    OneDaemon daemon(home);
    begin_three(daemon);
    auto record = daemon.row(kOne);
    SUBCASE("its facts are no message") { spoil(home, "update experiment set facts = x'ff' where number = 1"); }
    SUBCASE("they make no sense") {
      record.set_over(true);
      REQUIRE(daemon.store->commit({{kOne, record}}, {}).ok());
    }
    SUBCASE("they name what has no such name") {
      record.mutable_replicas(0)->set_id("1.nobody");
      REQUIRE(daemon.store->commit({{kOne, record}}, {}).ok());
    }
    SUBCASE("its YAML is of another version") {
      spoil(home, "update submission set spec_yaml = 'train: {run: true, a-key-of-tomorrow: 1}' where number = 1");
    }
    SUBCASE("its environment is no message") { spoil(home, "update submission set extras = x'ff' where number = 1"); }
  }
  const std::string stored = stored_facts(home);
  {
    OneDaemon daemon(home);
    REQUIRE(daemon.scheduler.unreadable().contains(1));
    CHECK(daemon.scheduler.find(kOne).error().code == Code::DataLoss);
    CHECK(daemon.scheduler.live_numbers() == std::set<uint32_t>{2, 3});
    const ReplicaId beside{{2, 0}, Role::Train, 0};
    daemon.scheduler.handle(HostConnected{a_host(), {{kTrain, 1}, {beside, 1}}});
    daemon.turn();
    // It runs on, and no other is placed beside it meanwhile.
    CHECK(daemon.outbox.count(pb::ToRunner::kStop) == 0);
    CHECK(awaited_text(daemon.scheduler.model(), daemon.scheduler.find({3, 0})->submission->spec) == "waits for 1 (UNREADABLE) to end");
    REQUIRE(daemon.submit("d").ok());
    daemon.turn();
    CHECK(daemon.outbox.count(pb::ToRunner::kLaunch) == 0);
    CHECK(daemon.scheduler.model().experiments.at({4, 0}).wait_reason.find("`dtrain kill 1`") != std::string::npos);
    // How it ended stays there for who can read the rest.
    daemon.scheduler.handle(ReplicaExited{kTrain, 1, Exit{}, kHost});
    daemon.scheduler.handle(ReplicaReleased{kTrain, 1, "", kHost});
    daemon.turn();
    CHECK(daemon.outbox.count(pb::ToRunner::kForget) == 0);
    CHECK(daemon.outbox.count(pb::ToRunner::kLaunch) == 1);
    CHECK(daemon.is_open_in_store(1));
  }
  CHECK(stored_facts(home) == stored);
}

TEST_CASE("what can't be read is given up by a kill, and who waited for it goes on") {
  test::TemporaryFolder folder;
  const Home home = home_below(folder.path());
  {
    OneDaemon daemon(home);
    begin_three(daemon);
  }
  spoil(home, "update experiment set facts = x'ff' where number = 1");
  OneDaemon daemon(home);
  const ReplicaId beside{{2, 0}, Role::Train, 0};
  daemon.scheduler.handle(HostConnected{a_host(), {{kTrain, 1}, {beside, 1}}});
  daemon.turn();
  REQUIRE(daemon.scheduler.give_up_unreadable(1, false).ok());
  daemon.turn();
  REQUIRE(daemon.outbox.count(pb::ToRunner::kStop) == 1);
  CHECK(daemon.outbox.sent.back().stop().replicas(0).replica() == "1.train");
  CHECK(!daemon.is_open_in_store(1));
  CHECK(!daemon.scheduler.model().experiments.at({3, 0}).awaits);
  daemon.scheduler.handle(ReplicaReleased{kTrain, 1, "", kHost});
  daemon.turn();
  CHECK(daemon.outbox.count(pb::ToRunner::kForget) == 1);
  CHECK(daemon.outbox.sent.back().launch().experiment() == "3");
}

TEST_CASE("a full disk keeps no stop of what a person kills, and nothing else goes out before it is written") {
  test::TemporaryFolder folder;
  OneDaemon daemon(home_below(folder.path()));
  place_one(daemon);
  REQUIRE(daemon.submit("b").ok());
  daemon.turn();
  for (const ExperimentId& id : {kOne, ExperimentId{2, 0}}) {
    daemon.scheduler.handle(LaunchPrepared{kHost, {id, 1}});
  }
  daemon.turn();
  REQUIRE(daemon.outbox.count(pb::ToRunner::kStart) == 2);
  daemon.outbox.sent.clear();
  {
    FullDisk full;
    daemon.scheduler.handle(ReplicaStarted{kTrain, 1, 4242, 1'000, kHost});
    daemon.scheduler.handle(KillWanted{kOne, false});
    daemon.turn();
    REQUIRE(daemon.outbox.sent.size() == 1);
    REQUIRE(daemon.outbox.sent[0].has_stop());
    CHECK(daemon.outbox.sent[0].stop().replicas(0).replica() == "1.train");
    CHECK(daemon.outbox.sent[0].stop().grace_ms() > 0);
    // Harder, while the first kill still waits to be written.
    daemon.scheduler.handle(KillWanted{kOne, true});
    daemon.turn();
    REQUIRE(daemon.outbox.sent.size() == 2);
    CHECK(daemon.outbox.sent[1].stop().grace_ms() == 0);
    daemon.scheduler.handle(ReplicaExited{kTrain, 1, Exit{}, kHost});
    daemon.scheduler.handle(ReplicaReleased{kTrain, 1, "", kHost});
    daemon.turn();
    CHECK(daemon.outbox.sent.size() == 2);   // to forget it, say
    CHECK(!daemon.scheduler.is_over(kOne));
  }
  daemon.scheduler.at_end_of_turn([](const Status&) {});   // rather than wait for the next try
  daemon.turn();
  CHECK(daemon.scheduler.is_over(kOne));
  CHECK(daemon.outbox.count(pb::ToRunner::kForget) == 1);
  CHECK(daemon.outbox.count(pb::ToRunner::kStop) == 2);   // none is repeated
}

TEST_CASE("a daemon begins though the disk takes nothing, and goes on once it does") {
  test::TemporaryFolder folder;
  const Home home = home_below(folder.path());
  const OneDaemon killed(home);   // its write-ahead log stays, as a kill leaves it
  REQUIRE(killed.store->add_submission(a_submission("a"), {}).ok());
  std::optional<FullDisk> full(std::filesystem::file_size(home.database().native() + "-wal"));
  OneDaemon next(home);
  CHECK(next.scheduler.model().live.contains(kOne));
  next.scheduler.handle(HostConnected{a_host(), {}});
  next.turn();
  CHECK(!next.scheduler.trouble().empty());
  full.reset();
  next.until([&] { return next.outbox.count(pb::ToRunner::kLaunch) == 1; });
  CHECK(next.scheduler.trouble().empty());
}

TEST_CASE("a stop is not sent before the start that it follows") {
  test::TemporaryFolder folder;
  OneDaemon daemon(home_below(folder.path()));
  place_one(daemon);
  daemon.outbox.sent.clear();
  {
    FullDisk full;
    daemon.scheduler.handle(LaunchPrepared{kHost, {kOne, 1}});   // a Start waits
    daemon.scheduler.handle(KillWanted{kOne, false});
    daemon.turn();
    CHECK(daemon.outbox.sent.empty());
  }
  daemon.scheduler.at_end_of_turn([](const Status&) {});
  daemon.turn();
  REQUIRE(daemon.outbox.sent.size() == 2);
  CHECK(daemon.outbox.sent[0].has_start());
  CHECK(daemon.outbox.sent[1].has_stop());
}

TEST_CASE("nothing is answered, shown as over or sent before it is committed") {
  test::TemporaryFolder folder;
  OneDaemon daemon(home_below(folder.path()));
  place_one(daemon);
  daemon.outbox.sent.clear();
  bool answered = false;
  {
    FullDisk full;
    daemon.scheduler.handle(LaunchFailed{kHost, {kOne, 1}, "no such file", 0, false});
    daemon.scheduler.at_end_of_turn([&](const Status& committed) { answered = committed.ok(); });
    daemon.turn();
    CHECK(daemon.scheduler.model().live.empty());
    CHECK(!daemon.scheduler.is_over(kOne));
    CHECK(!answered);
    CHECK(daemon.outbox.sent.empty());
    const auto known = daemon.scheduler.find({1, 0});
    REQUIRE(known.ok());
    CHECK(state_of(*known->experiments.at(0)) == State::Starting);
    CHECK(daemon.scheduler.trouble().find("the daemon can't write: database ") == 0);
  }
  daemon.scheduler.at_end_of_turn([](const Status&) {});   // rather than wait for it to try again by itself
  daemon.turn();
  CHECK(daemon.scheduler.is_over(kOne));
  CHECK(daemon.scheduler.trouble().empty());
  const auto known = daemon.scheduler.find({1, 0});
  REQUIRE(known.ok());
  CHECK(state_of(*known->experiments.at(0)) == State::Failed);
  daemon.scheduler.at_end_of_turn([&](const Status& committed) { answered = committed.ok(); });
  daemon.turn();
  CHECK(answered);
  CHECK(daemon.row(kOne).over());
}

TEST_CASE("a message that waited for the disk is not sent to a later stream of its host") {
  test::TemporaryFolder folder;
  OneDaemon daemon(home_below(folder.path()));
  place_one(daemon);
  daemon.outbox.sent.clear();
  {
    FullDisk full;
    daemon.scheduler.handle(LaunchPrepared{kHost, {kOne, 1}});
    daemon.turn();
    daemon.scheduler.handle(HostDisconnected{kHost});
    SUBCASE("the host still holds it: Start is said anew") {
      daemon.scheduler.handle(HostConnected{a_host(), {{kTrain, 1}}});
    }
    SUBCASE("the host came back without it: no Start is left over") {
      daemon.scheduler.handle(HostConnected{a_host(), {}});
    }
    daemon.turn();
    CHECK(daemon.outbox.sent.empty());
  }
  const bool held = daemon.scheduler.model().experiments.at(kOne).replicas.at(0).progress ==
                    Progress::Prepared;
  daemon.scheduler.at_end_of_turn([](const Status&) {});
  daemon.turn();
  CHECK(daemon.outbox.count(pb::ToRunner::kStart) == (held ? 1 : 0));
}

// A file lies in the place of its output directory, which a launch makes.
void submit_what_cannot_be_launched(OneDaemon& daemon) {
  daemon.scheduler.handle(HostConnected{a_host(), {}});
  REQUIRE(daemon.submit("a").ok());
  const auto output = daemon.scheduler.output_dir(kOne);
  std::filesystem::remove_all(output);
  std::ofstream(output) << "a file";
  daemon.turn();
}

TEST_CASE("what a message that can't be made decides is committed too") {
  test::TemporaryFolder folder;
  OneDaemon daemon(home_below(folder.path()));
  submit_what_cannot_be_launched(daemon);
  const Experiment& experiment = daemon.scheduler.model().experiments.at(kOne);
  CHECK(daemon.outbox.count(pb::ToRunner::kLaunch) == 0);
  CHECK(experiment.start_failures == 1);
  CHECK(daemon.row(kOne).start_failures() == 1);
}

TEST_CASE("a home whose name is not UTF-8 leaves what is said of it readable") {
  test::TemporaryFolder folder;
  OneDaemon daemon(home_below(folder / "caf\xe9"));
  submit_what_cannot_be_launched(daemon);
  const auto events = daemon.store->events(1);
  REQUIRE(events.ok());
  const auto says = [](const std::string& text) { return text.find("caf\\xe9") != std::string::npos; };
  CHECK(std::any_of(events->begin(), events->end(), [&](const auto& event) { return says(event.reason()); }));
  const FullDisk full;
  daemon.scheduler.handle(KillWanted{kOne, false});
  daemon.turn();
  CHECK(says(daemon.scheduler.trouble()));
}

TEST_CASE("a repeated submission is answered, whatever became of the hosts since") {
  test::TemporaryFolder folder;
  OneDaemon daemon(home_below(folder.path()));
  daemon.scheduler.handle(HostConnected{a_host(), {}});
  const auto first = daemon.submit("a");
  REQUIRE(first.ok());
  daemon.turn();
  daemon.scheduler.handle(HostChanged{a_host(1)});
  const auto again = daemon.submit("a");
  REQUIRE(again.ok());
  CHECK(again->number() == first->number());
  CHECK(again->repeated());
  const auto other = daemon.submit("b");
  REQUIRE(!other.ok());
  CHECK(other.error().code == Code::InvalidArgument);
}

// Of a set of three, the first member goes from its launch to its end.
void run_first_of_three(OneDaemon& daemon) {
  daemon.scheduler.handle(HostConnected{a_host(), {}});
  Submission submission = a_submission("set");
  submission.spec_yaml =
      "project: testing\ntrain:\n  resources: {cpus: 2, mem: 64}\n  concurrency: 1\n"
      "  parameters: {n: [1, 2, 3]}\n  run: 'true'\n";
  submission.spec = parse_spec(submission.spec_yaml, {}).value();
  REQUIRE(daemon.scheduler.submit(std::move(submission), {}).ok());
  daemon.turn();
  const ExperimentId first{1, 1};
  const ReplicaId train{first, Role::Train, 0};
  daemon.scheduler.handle(LaunchPrepared{kHost, {first, 1}});
  daemon.turn();
  Exit exit;
  exit.code = 3;
  daemon.scheduler.handle(ReplicaStarted{train, 1, 4242, 1'000, kHost});
  daemon.scheduler.handle(ReplicaExited{train, 1, exit, kHost});
  daemon.scheduler.handle(ReplicaReleased{train, 1, "", kHost});
  daemon.turn();
  REQUIRE(daemon.scheduler.is_over(first));
  REQUIRE(!daemon.scheduler.is_over({1, 0}));
}

void check_ended_member(OneDaemon& daemon) {
  CHECK(daemon.scheduler.model().experiments.at({1, 1}).replicas.capacity() == 0);
  const auto all = daemon.scheduler.find({1, 0});
  REQUIRE(all.ok());
  REQUIRE(all->experiments.size() == 3);
  CHECK(state_of(*all->experiments.front()) == State::Failed);
  CHECK(all->experiments.front()->outcome->exit_code == 3);
  CHECK(all->read.empty());

  const auto member = daemon.scheduler.find({1, 1});
  REQUIRE(member.ok());
  REQUIRE(member->experiments.size() == 1);
  REQUIRE(member->experiments.front()->replicas.size() == 1);
  CHECK(member->experiments.front()->replicas.front().pid == 4242);
  CHECK(member->experiments.front()->replicas.front().exit->code == 3);
}

// As `status` and the JSON have it: 0 while it goes on.
uint64_t told_end(OneDaemon& daemon) {
  const auto known = daemon.scheduler.find(kOne);
  REQUIRE(known.ok());
  return summary_of(*known, kOne, daemon.scheduler.model(), boottime_ms()).finished_unix_ms();
}

TEST_CASE("a database that is younger than what lies beside it gives none of those numbers again") {
  test::TemporaryFolder folder;
  const Home home = home_below(folder.path());
  { run_to_end(*std::make_unique<OneDaemon>(home)); }
  for (const char* suffix : {"", "-wal", "-shm"}) std::filesystem::remove(home.database().native() + suffix);
  SUBCASE("an OUTPUT_DIR") { std::filesystem::remove_all(home.logs() / "1.journal"); }
  SUBCASE("a journal") { std::filesystem::remove_all(home.outputs() / "1"); }
  for (const uint32_t number : {2u, 3u}) {
    OneDaemon next(home);
    next.scheduler.handle(HostConnected{a_host(), {}});
    CHECK(next.submit(fmt::format("{}", number))->number() == number);
  }
}

TEST_CASE("an exit is the experiment's end once nothing follows") {
  test::TemporaryFolder folder;
  OneDaemon daemon(home_below(folder.path()));
  place_one(daemon);
  daemon.scheduler.handle(LaunchPrepared{kHost, {kOne, 1}});
  daemon.scheduler.handle(ReplicaStarted{kTrain, 1, 4242, 1'000, kHost});
  Exit exit;
  exit.unix_ms = 5'000;
  daemon.scheduler.handle(ReplicaExited{kTrain, 1, exit, kHost});
  daemon.turn();
  CHECK(told_end(daemon) == 0);
  daemon.scheduler.handle(ReplicaReleased{kTrain, 1, "", kHost});
  daemon.turn();
  REQUIRE(daemon.scheduler.is_over(kOne));
  CHECK(told_end(daemon) == 5'000);
}

TEST_CASE("what is killed before it started has an end, too") {
  test::TemporaryFolder folder;
  OneDaemon daemon(home_below(folder.path()));
  const auto before = static_cast<uint64_t>(unix_ms());
  REQUIRE(daemon.submit("a").ok());
  daemon.turn();
  CHECK(told_end(daemon) == 0);
  daemon.scheduler.handle(KillWanted{kOne});
  daemon.turn();
  CHECK(daemon.row(kOne).finished_unix_ms() >= before);
}

TEST_CASE("what is killed between two attempts does not end with the one before") {
  test::TemporaryFolder folder;
  OneDaemon daemon(home_below(folder.path()));
  const auto before = static_cast<uint64_t>(unix_ms());
  daemon.scheduler.handle(HostConnected{a_host(), {}});
  Submission submission = a_submission("a");
  submission.spec_yaml += "  restart: {limit: 1, backoff: 1h}\n";
  submission.spec = parse_spec(submission.spec_yaml, {}).value();
  REQUIRE(daemon.scheduler.submit(std::move(submission), {}).ok());
  daemon.turn();
  daemon.scheduler.handle(LaunchPrepared{kHost, {kOne, 1}});
  daemon.scheduler.handle(ReplicaStarted{kTrain, 1, 4242, 1'000, kHost});
  Exit exit;
  exit.code = 3;
  exit.unix_ms = 5'000;
  daemon.scheduler.handle(ReplicaExited{kTrain, 1, exit, kHost});
  daemon.scheduler.handle(ReplicaReleased{kTrain, 1, "", kHost});
  daemon.turn();
  CHECK(told_end(daemon) == 0);
  daemon.scheduler.handle(KillWanted{kOne});
  daemon.turn();
  CHECK(daemon.row(kOne).finished_unix_ms() >= before);
}

TEST_CASE("members of a set that have ended keep their details in the store only") {
  test::TemporaryFolder folder;
  {
    OneDaemon daemon(home_below(folder.path()));
    run_first_of_three(daemon);
    check_ended_member(daemon);
  }
  OneDaemon next(home_below(folder.path()));
  check_ended_member(next);
}

TEST_CASE("what lives is named by its numbers, each once") {
  test::TemporaryFolder folder;
  OneDaemon daemon(home_below(folder.path()));
  run_first_of_three(daemon);
  REQUIRE(daemon.submit("a").ok());
  daemon.turn();
  CHECK(daemon.scheduler.live_numbers() == std::set<uint32_t>{1, 2});
  CHECK(daemon.scheduler.live_count() == 3);
  CHECK(daemon.scheduler.find({1, 2})->experiments.size() == 1);
  CHECK(daemon.scheduler.find({1, 4})->experiments.empty());
  CHECK(!daemon.scheduler.find({3, 0}).ok());
}

TEST_CASE("of more members than are listed, those that wait give way to those that failed") {
  test::TemporaryFolder folder;
  OneDaemon daemon(home_below(folder.path()));
  run_first_of_three(daemon);
  const auto known = daemon.scheduler.find({1, 0});
  REQUIRE(known.ok());
  const auto ids = [&](size_t most) {
    std::vector<uint32_t> members;
    for (const Experiment* member : shown_members(*known, most)) members.push_back(member->id.member);
    return members;
  };
  CHECK(ids(3) == std::vector<uint32_t>{1, 2, 3});
  CHECK(ids(2) == std::vector<uint32_t>{1, 2});   // 1.2 has its place
  CHECK(ids(1) == std::vector<uint32_t>{2});
}

TEST_CASE("whether one has ended well is known from when it is decided, though not committed yet") {
  for (const int code : {0, 3}) {
    test::TemporaryFolder folder;
    OneDaemon daemon(home_below(folder.path()));
    place_one(daemon);
    daemon.scheduler.handle(LaunchPrepared{kHost, {kOne, 1}});
    daemon.scheduler.handle(ReplicaStarted{kTrain, 1, 4242, 1'000, kHost});
    Exit exit;
    exit.code = code;
    daemon.scheduler.handle(ReplicaExited{kTrain, 1, exit, kHost});
    daemon.scheduler.handle(ReplicaReleased{kTrain, 1, "", kHost});
    REQUIRE(!daemon.scheduler.is_over(kOne));   // as it is committed
    Submission after = a_submission("b");
    after.spec.after = {kOne};
    const auto accepted = daemon.scheduler.submit(after, {});
    CHECK(accepted.ok() == (code == 0));
    daemon.turn();
    CHECK(daemon.outbox.count(pb::ToRunner::kLaunch) == (code == 0 ? 2 : 1));
    if (code != 0) {
      CHECK(accepted.error().code == Code::FailedPrecondition);
      after.spec.after = {};
      after.spec.after_end = {kOne};
      CHECK(daemon.scheduler.submit(after, {}).ok());
    }
  }
}

TEST_CASE("what waits for one that a placing pass gives up goes on in the same turn") {
  test::TemporaryFolder folder;
  OneDaemon daemon(home_below(folder.path()));
  place_one(daemon);
  Submission after = a_submission("b");
  after.spec.after_end = {kOne};
  REQUIRE(daemon.scheduler.submit(after, {}).ok());
  LaunchFailed unfit{kHost, {kOne, 1}, "python is not there"};
  unfit.unfit = true;
  daemon.scheduler.handle(unfit);
  daemon.turn();
  REQUIRE(daemon.scheduler.is_over(kOne));
  REQUIRE(daemon.outbox.count(pb::ToRunner::kLaunch) == 2);
  // Where the results are of what never began: nothing, but it is there.
  const pb::Launch& launch = daemon.outbox.sent.back().launch();
  CHECK(launch.experiment() == "2");
  CHECK(std::filesystem::is_directory(launch.after_dir()));
  CHECK(std::filesystem::equivalent(launch.after_dir(), daemon.home.outputs() / "1"));
}

}  // namespace
}  // namespace dtrain::daemon
