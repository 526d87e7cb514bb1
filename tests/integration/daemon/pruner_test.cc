#include "daemon/pruner.h"

#include <sys/mount.h>

#include "daemon/configuration_file.h"
#include "tests/integration/daemon/one_daemon.h"
#include "tests/support/skipped.h"

namespace dtrain::daemon {
namespace {

namespace fs = std::filesystem;

// Experiments that ended, each with a journal and an OUTPUT_DIR, and one that goes on.
struct Ended {
  explicit Ended(int count, Config config = {})
      : daemon(home_below(folder.path())),
        blobs(Blobs::open(daemon.home.blobs()).value()),
        pruner(daemon.loop, daemon.home, *daemon.store, *blobs, daemon.logs,
               daemon.scheduler, config) {
    daemon.scheduler.handle(HostConnected{a_host(), {}});
    for (int i = 0; i <= count; ++i) {
      const auto accepted = daemon.submit(std::to_string(i));
      REQUIRE(accepted.ok());
      const ExperimentId id{accepted->number(), 0};
      test::write_file(daemon.scheduler.output_dir(id) / "model", "weights");
      daemon.turn();
      if (i < count) run_to_end(id);
    }
  }

  void run_to_end(const ExperimentId& id) {
    const HostId host = a_host().id;
    const ReplicaId train{id, Role::Train, 0};
    daemon.scheduler.handle(LaunchPrepared{host, {id, 1}});
    daemon.turn();
    daemon.scheduler.handle(ReplicaStarted{train, 1, 4242, 1'000, host});
    daemon.scheduler.handle(ReplicaExited{train, 1, Exit{}, host});
    daemon.scheduler.handle(ReplicaReleased{train, 1, "", host});
    daemon.until([&] { return !daemon.is_open_in_store(id.number); });
  }

  Result<pb::PruneReply> prune(const pb::PruneRequest& request) {
    std::optional<Result<pb::PruneReply>> done;
    pruner.prune(request, [&](Result<pb::PruneReply> reply) { done = std::move(reply); });
    daemon.until([&] { return done.has_value(); });
    return std::move(*done);
  }
  bool has_journal(uint32_t number) { return fs::exists(daemon.logs.path(number)); }
  bool has_output(uint32_t number) {
    return fs::exists(daemon.scheduler.output_dir({number, 0}) / "model");
  }

  test::TemporaryFolder folder;
  OneDaemon daemon;
  std::unique_ptr<Blobs> blobs;
  Pruner pruner;
};

pb::PruneRequest these(const std::vector<uint32_t>& numbers) {
  pb::PruneRequest request;
  for (const uint32_t number : numbers) request.add_numbers(number);
  return request;
}

std::vector<uint32_t> numbers_of(const pb::PruneReply& reply) {
  return {reply.numbers().begin(), reply.numbers().end()};
}

TEST_CASE("what is pruned is gone, results only when asked for, and the rest stays") {
  Ended ended(3);
  const auto reply = ended.prune(these({1}));
  REQUIRE(reply.ok());
  CHECK(numbers_of(*reply) == std::vector<uint32_t>{1});
  CHECK(reply->log_bytes() > 0);
  CHECK(ended.daemon.store->submission(1).error().code == Code::NotFound);
  CHECK(ended.daemon.store->events(1)->empty());
  CHECK(ended.daemon.store->experiments(1)->empty());
  CHECK(!ended.has_journal(1));
  CHECK(ended.has_output(1));

  pb::PruneRequest with_outputs = these({2});
  with_outputs.set_outputs(true);
  REQUIRE(ended.prune(with_outputs).ok());
  CHECK(!ended.has_output(2));

  CHECK(ended.daemon.scheduler.find({3, 0}).ok());
  CHECK(ended.has_journal(3));
  CHECK(ended.has_output(3));
  CHECK(ended.daemon.scheduler.find({4, 0}).ok());
  // Its number is not given again, even if it was the newest.
  CHECK(ended.daemon.submit("next")->number() == 5);
}

TEST_CASE("what is mounted in an OUTPUT_DIR outlives it, and keeps nothing else") {
  Ended ended(2);
  const fs::path elsewhere = ended.folder / "elsewhere";
  test::write_file(elsewhere / "f", "stays");
  const fs::path at = ended.daemon.scheduler.output_dir({1, 0}) / "at";
  fs::create_directories(at);
  if (::mount(elsewhere.c_str(), at.c_str(), nullptr, MS_BIND, nullptr) != 0) {
    return tests::say_skipped("mounting a directory needs root");
  }
  pb::PruneRequest request = these({1, 2});
  request.set_outputs(true);
  const auto refused = ended.prune(request);
  REQUIRE(::umount2(at.c_str(), MNT_DETACH) == 0);
  REQUIRE(!refused.ok());
  CHECK(refused.error().message.starts_with("1 is not forgotten: "));
  CHECK(ended.has_journal(1));
  CHECK(ended.daemon.store->submission(2).error().code == Code::NotFound);
  CHECK(!ended.has_output(2));
  request = these({1});
  request.set_outputs(true);
  CHECK(test::read_file(elsewhere / "f") == "stays");
  REQUIRE(ended.prune(request).ok());
  CHECK(!fs::exists(at));
}

TEST_CASE("an OUTPUT_DIR that nobody wrote to goes with its experiment") {
  Ended ended(2);
  const fs::path unused = ended.daemon.scheduler.output_dir({1, 0});
  fs::remove(unused / "model");
  REQUIRE(fs::exists(unused / kConfigurationFile));
  // As a set of which one member has a result.
  const fs::path set = ended.daemon.scheduler.output_dir({2, 0});
  fs::remove(set / "model");
  test::write_file(set / "1" / kConfigurationFile, "project: p\n");
  test::write_file(set / "2" / kConfigurationFile, "project: p\n");
  test::write_file(set / "2" / "model", "weights");
  fs::create_directory_symlink(set / "2", set / "best");
  REQUIRE(ended.prune(these({1, 2})).ok());
  CHECK(!fs::exists(unused));
  CHECK(!fs::exists(set / "1"));
  CHECK(fs::exists(set / kConfigurationFile));
  CHECK(fs::exists(set / "2" / kConfigurationFile));
  CHECK(fs::exists(set / "best" / "model"));
}

TEST_CASE("what goes on, or never was, is refused, and then nothing goes") {
  Ended ended(1);
  CHECK(ended.prune(these({1, 2})).error().message == "2 has not ended");
  CHECK(ended.prune(these({1, 9})).error().code == Code::NotFound);
  CHECK(ended.has_journal(1));
  CHECK(ended.daemon.scheduler.find({1, 0}).ok());
}

TEST_CASE("results that something goes on from stay until that has ended") {
  Ended ended(3);
  Submission resuming = a_submission("resuming");
  const std::string from = (ended.daemon.scheduler.output_dir({1, 0})).string();
  resuming.spec_yaml += "  env:\n    RESUME_DIR: " + from + "\n";
  resuming.spec = parse_spec(resuming.spec_yaml, {}).value();
  REQUIRE(ended.daemon.scheduler.submit(resuming, {})->number() == 5);
  ended.daemon.turn();
  pb::PruneRequest request = these({1});
  request.set_outputs(true);
  CHECK(ended.prune(request).error().message == "5 uses the results of 1, and has not ended");
  // What is old is chosen among the others.
  pb::PruneRequest old;
  old.set_older_than_ms(1);
  old.set_outputs(true);
  old.set_dry_run(true);
  ended.daemon.until([&] { return numbers_of(*ended.prune(old)) == std::vector<uint32_t>{2, 3}; });
  ended.run_to_end({5, 0});
  REQUIRE(ended.prune(request).ok());
  CHECK(!ended.has_output(1));
}

TEST_CASE("of what is old that of one user goes alone") {
  Ended ended(1);
  Submission other = a_submission("other");
  other.user = "anna";
  const uint32_t hers = ended.daemon.scheduler.submit(other, {})->number();
  ended.daemon.turn();
  ended.run_to_end({hers, 0});
  pb::PruneRequest request;
  request.set_older_than_ms(1);
  request.set_dry_run(true);
  ended.daemon.until([&] { return numbers_of(*ended.prune(request)) == std::vector<uint32_t>{1, hers}; });
  request.set_user("anna");
  request.set_dry_run(false);
  CHECK(numbers_of(*ended.prune(request)) == std::vector<uint32_t>{hers});
  CHECK(ended.has_journal(1));
}

TEST_CASE("a dry run says the same and does nothing") {
  Ended ended(2);
  pb::PruneRequest request;
  request.set_older_than_ms(1);
  request.set_dry_run(true);
  // Ended at this very millisecond is not longer ago than one.
  ended.daemon.until([&] {
    return numbers_of(*ended.prune(request)) == std::vector<uint32_t>{1, 2};
  });
  CHECK(ended.has_journal(1));
  request.set_dry_run(false);
  CHECK(numbers_of(*ended.prune(request)) == std::vector<uint32_t>{1, 2});
  CHECK(!ended.has_journal(1));
  CHECK(ended.prune(request)->numbers().empty());
}

TEST_CASE("what has just ended is waited for until its output is safe") {
  Ended ended(0);   // 1 goes on
  const ExperimentId id{1, 0};
  ended.daemon.scheduler.handle(LaunchPrepared{a_host().id, {id, 1}});
  ended.daemon.turn();
  ended.daemon.scheduler.handle(ReplicaStarted{{id, Role::Train, 0}, 1, 4242, 1'000, a_host().id});
  ended.daemon.scheduler.handle(ReplicaExited{{id, Role::Train, 0}, 1, Exit{}, a_host().id});
  ended.daemon.scheduler.handle(ReplicaReleased{{id, Role::Train, 0}, 1, "", a_host().id});
  ended.daemon.scheduler.at_end_of_turn([](const Status&) {});
  ended.daemon.until([&] { return ended.daemon.scheduler.is_over(id); });
  REQUIRE(ended.daemon.is_open_in_store(1));
  CHECK(numbers_of(*ended.prune(these({1}))) == std::vector<uint32_t>{1});
}

TEST_CASE("two requests are served one after the other") {
  Ended ended(2);
  int done = 0;
  const auto count = [&](const Result<pb::PruneReply>& reply) {
    CHECK(reply.ok());
    ++done;
  };
  ended.pruner.prune(these({1}), count);
  ended.pruner.prune(these({2}), count);
  ended.daemon.until([&] { return done == 2; });
  CHECK(!ended.has_journal(1));
  CHECK(!ended.has_journal(2));
}

TEST_CASE("a prune that a daemon's end interrupts is told so, and the next one does it") {
  Ended ended(1);
  const auto submission = std::move(ended.blobs->begin()).value();   // goes on
  std::optional<Error> error;
  ended.pruner.prune(these({1}), [&](const Result<pb::PruneReply>& reply) {
    REQUIRE(!reply.ok());
    error = reply.error();
  });
  ended.daemon.until([&] { return ended.daemon.scheduler.find({1, 0}).ok() == false; });
  ended.pruner.stop();
  ended.daemon.until([&] { return error.has_value(); });
  CHECK(error->code == Code::Aborted);
}

TEST_CASE("of output lines beyond the limit, those that ended first are the ones to go") {
  Config config;
  Ended ended(3, config);
  const uint64_t each = fs::file_size(ended.daemon.logs.path(1));
  config.keep_log_bytes = 2 * each + each / 2;
  Pruner limited(ended.daemon.loop, ended.daemon.home, *ended.daemon.store, *ended.blobs,
                 ended.daemon.logs, ended.daemon.scheduler, config, std::chrono::milliseconds(0));
  limited.keep_limits();
  ended.daemon.until([&] { return !ended.daemon.scheduler.find({1, 0}).ok(); });
  CHECK(!ended.has_journal(1));
  CHECK(ended.has_output(1));
  CHECK(ended.daemon.scheduler.find({2, 0}).ok());
  CHECK(ended.has_journal(2));
}

TEST_CASE("nothing is forgotten for its age before the wall clock was seen to keep pace") {
  Config config;
  Ended ended(2, config);
  config.keep_log_bytes = fs::file_size(ended.daemon.logs.path(1));
  config.keep_ended_ms = -1;   // all that has ended is older
  Pruner limited(ended.daemon.loop, ended.daemon.home, *ended.daemon.store, *ended.blobs,
                 ended.daemon.logs, ended.daemon.scheduler, config, std::chrono::milliseconds(0));
  limited.keep_limits();
  ended.daemon.until([&] { return !ended.daemon.scheduler.find({1, 0}).ok(); });
  CHECK(ended.daemon.scheduler.find({2, 0}).ok());
}

}  // namespace
}  // namespace dtrain::daemon
