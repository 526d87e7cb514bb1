// Trainings whose processes are killed, or stopped for a while.
#include "tests/support/skipped.h"
#include "trainings.h"

namespace dtrain::trainings {
namespace {

TEST_CASE("a training that is killed goes on to the same bits") {
  const Json spec = all_reduce({{"model", {{"lenet", {{"channels", {4, 6}}, {"hidden", {20}}}}, {"mlp", nullptr}}},
                                {"optimizer", {{"kind", "adam"}, {"learning-rate", 0.002}}},
                                {"checkpoint", {{"steps", 7}}},
                                {"epochs", 1}});
  Gang whole(spec, 2, 0);
  REQUIRE_MESSAGE(whole.run() == 0, whole.logs());

  // Killed after some checkpoint: somewhere in what follows it.
  const test::TemporaryFolder folder;
  for (int attempt = 1; attempt <= 3; ++attempt) {
    Gang broken(spec, 2, 0, std::to_string(attempt), folder / "out");
    const int64_t before = [&] {
      const auto found = Checkpoints::open(folder / "out/checkpoints", 9)->newest_healthy();
      return found ? found->step : 0;
    }();
    REQUIRE(broken.replicas[0]->runs_until(folder / fmt::format("out/checkpoints/step-{:08}", before + 14)));
    broken.replicas[static_cast<size_t>(attempt % 2)]->signal(SIGKILL);
    CHECK(broken.replicas[static_cast<size_t>(attempt % 2)]->wait() == 128 + SIGKILL);
    const auto other = static_cast<size_t>(1 - attempt % 2);
    CHECK(broken.replicas[other]->wait() == 1);
    CHECK(broken.log(fmt::format("worker.{}", other)).find(fmt::format("worker {}", attempt % 2)) != std::string::npos);
  }
  Gang last_one(spec, 1, 0, "4", folder / "out");  // and with another number of workers
  REQUIRE_MESSAGE(last_one.run() == 0, last_one.logs());
  CHECK(last_one.log("worker.0").find("resumed_at_step=") != std::string::npos);
  CHECK(last_one.model() == whole.model());
}

TEST_CASE("a parameter server that is killed and started again goes on where it was") {
  const Json spec = servers("sync");
  Gang whole(spec, 2, 2);
  REQUIRE(whole.run() == 0);
  Gang broken(spec, 2, 2);
  REQUIRE(broken.replicas[0]->runs_until(broken.output / "checkpoints/step-00000080"));
  broken.replicas[2]->signal(SIGKILL);
  broken.replicas[2]->wait();
  broken.start_again(2);
  REQUIRE_MESSAGE(broken.run() == 0, broken.logs());
  CHECK(broken.model() == whole.model());
}

TEST_CASE("a training by parameter servers that is killed goes on to the same bits, its workers in step") {
  const Json spec = [] {
    Json sync = servers("sync");
    sync.merge_patch({{"checkpoint", {{"steps", 40}}}, {"optimizer", {{"momentum", 0.9}}}});
    return sync;
  }();
  Gang whole(spec, 2, 2);
  REQUIRE_MESSAGE(whole.run() == 0, whole.logs());
  const test::TemporaryFolder folder;
  {
    Gang broken(spec, 2, 2, "1", folder / "out");
    REQUIRE(broken.replicas[0]->runs_until(folder / "out/checkpoints/step-00000120"));
    for (const auto& replica : broken.replicas) replica->signal(SIGKILL);
  }
  REQUIRE(!fs::exists(folder / "out/model.safetensors"));
  Gang again(spec, 2, 2, "2", folder / "out");
  REQUIRE_MESSAGE(again.run() == 0, again.logs());
  CHECK(again.log("worker.0").find("resumed_at_step=") != std::string::npos);
  CHECK(again.model() == whole.model());
  CHECK(!fs::exists(folder / "out/.dtrain-ps-state"));
}

TEST_CASE("without an asynchronous worker the others go on") {
  Gang gang(servers("async"), 3, 1);
  REQUIRE(gang.replicas[0]->runs_until(gang.output / "checkpoints"));
  gang.replicas[2]->signal(SIGKILL);
  CHECK(gang.run() == 0);
  CHECK(updates(gang) >= 3 * 320 - 1);  // what it would have made is made by the others
}

TEST_CASE("what a slow asynchronous worker does not come to is learned by the others") {
  for (const char* mode : {"async", "ssp"}) {
    CAPTURE(std::string(mode));
    Json spec = servers(mode);
    spec["deadline"] = 6;
    Gang gang(spec, 2, 2);
    gang.replicas[1]->signal(SIGSTOP);
    REQUIRE_MESSAGE(gang.run() == 0, gang.logs());
    CHECK(updates(gang) >= 2 * 320 - 1);  // but for one part, if it was stopped with that in its hands
    CHECK(last(gang, "accuracy") > 0.55);
  }
}

// 3,200 steps, saved every 20: whatever the machine does meanwhile, there is time to stop somebody.
Json long_servers(const std::string& mode, const Json& changes) {
  Json spec = servers(mode);
  spec.merge_patch({{"epochs", 40}, {"checkpoint", {{"steps", 20}}}, {"deadline", 60}});
  spec.merge_patch(changes);
  return spec;
}

// The steps of the newest checkpoint.
int64_t saved(const Gang& gang) {
  const auto newest = newest_checkpoint(gang.output / "checkpoints");
  return newest ? newest->step : 0;
}

// The numbers after `key=` in a process's log.
std::vector<int64_t> said(const Gang& gang, const std::string& name, const std::string& key) {
  std::vector<int64_t> numbers;
  if (!fs::exists(gang.own / name)) return numbers;
  const std::string log = gang.log(name);
  for (size_t at = log.find(key + "="); at != std::string::npos; at = log.find(key + "=", at + 1)) {
    numbers.push_back(std::atoll(log.c_str() + at + key.size() + 1));
  }
  return numbers;
}

TEST_CASE("an asynchronous worker that was killed and started again goes on with the others, who never stopped") {
  for (const char* mode : {"async", "ssp"}) {
    CAPTURE(std::string(mode));
    Gang gang(long_servers(mode, Json::object()), 3, 2);
    const auto joined = [&] { return said(gang, "worker.2", "joined_at_step"); };
    REQUIRE(gang.replicas[2]->runs_until([&] { return !joined().empty(); }));
    if (std::string(mode) == "ssp") REQUIRE(gang.replicas[0]->runs_until([&] { return saved(gang) >= 20; }));
    gang.replicas[2]->signal(SIGKILL);
    CHECK(gang.replicas[2]->wait() == 128 + SIGKILL);
    REQUIRE(gang.replicas[0]->runs_until([&] { return saved(gang) >= 120; }));
    // So that they are not done before it has come.
    gang.replicas[0]->signal(SIGSTOP);
    gang.replicas[1]->signal(SIGSTOP);
    gang.start_again(2);
    REQUIRE_MESSAGE(gang.replicas[2]->runs_until([&] { return joined().size() == 2; }), gang.log("worker.2"));
    gang.replicas[0]->signal(SIGCONT);
    gang.replicas[1]->signal(SIGCONT);
    for (const size_t worker : {0, 1, 2}) {
      CAPTURE(worker);
      CHECK_MESSAGE(gang.replicas[worker]->wait() == 0, gang.log(fmt::format("worker.{}", worker)));
    }
    CHECK(gang.run() == 0);
    CHECK(last(gang, "step") == 3200);
    CHECK(updates(gang) == 3 * 3200);  // each part once, that which it was killed with, too
    CHECK(last(gang, "accuracy") > 0.6);
  }
}

TEST_CASE("servers name a worker that says nothing while the others go on") {
  for (const char* mode : {"async", "ssp"}) {
    CAPTURE(std::string(mode));
    Gang gang(long_servers(mode, {{"deadline", 3}, {"epochs", 4000}}), 2, 1);
    REQUIRE(gang.replicas[1]->runs_until([&] { return !said(gang, "worker.1", "joined_at_step").empty(); }));
    gang.replicas[1]->signal(SIGSTOP);
    CHECK_MESSAGE(gang.replicas[0]->runs_until([&] {
      return gang.log("ps.0").find("has said nothing for 1 s: the others go on without it") != std::string::npos;
    }), gang.logs());
  }
}

TEST_CASE("a worker that was not waited for goes on where the others are") {
  Gang gang(long_servers("sync", {{"strategy", {{"backup", 1}}}}), 3, 2);
  // Two of three do each step. With one of the others stopped there is none without worker 2, who may come late.
  gang.replicas[1]->signal(SIGSTOP);
  const auto joined = [&] { return said(gang, "worker.2", "joined_at_step"); };
  REQUIRE(gang.replicas[2]->runs_until([&] { return !joined().empty(); }));
  REQUIRE(gang.replicas[0]->runs_until([&] { return saved(gang) >= 20; }));
  gang.replicas[2]->signal(SIGSTOP);
  gang.replicas[1]->signal(SIGCONT);
  // It may have seen all steps until the one that is saved after the one that is being written: there every server
  // waits for the master.
  const int64_t seen = saved(gang) + 40;
  REQUIRE_MESSAGE(gang.replicas[0]->runs_until([&] { return saved(gang) >= seen + 300; }), gang.log("worker.0"));
  gang.replicas[2]->signal(SIGCONT);
  CHECK(gang.replicas[0]->wait() == 0);
  // With the others and not behind them: the servers still answer.
  CHECK_MESSAGE(gang.replicas[2]->wait() == 0, gang.log("worker.2"));
  CHECK(gang.run() == 0);
  REQUIRE_MESSAGE(said(gang, "worker.2", "left_out_of_steps").size() == 1, gang.log("worker.2"));
  CHECK(said(gang, "worker.2", "left_out_of_steps").front() >= 300);
  CHECK(last(gang, "step") == 3200);
  CHECK(last(gang, "accuracy") > 0.6);
}

TEST_CASE("ssp: a worker that was silent for too long goes on with the others, who do its share and don't wait for it") {
  Gang gang(long_servers("ssp", {{"deadline", 6}}), 3, 2);
  REQUIRE(gang.replicas[0]->runs_until([&] { return saved(gang) >= 20; }));
  gang.replicas[2]->signal(SIGSTOP);
  const int64_t before = saved(gang);
  REQUIRE(gang.replicas[0]->runs_until([&] { return saved(gang) >= before + 400; }));
  gang.replicas[2]->signal(SIGCONT);
  CHECK(gang.replicas[0]->wait() == 0);
  CHECK_MESSAGE(gang.replicas[2]->wait() == 0, gang.log("worker.2"));
  CHECK(gang.run() == 0);
  CHECK(updates(gang) == 3 * 3200);
  const std::string server = gang.log("ps.0");
  const size_t missed = server.find(" s: the others go on without it\n");
  REQUIRE_MESSAGE(missed != std::string::npos, server);
  CHECK_MESSAGE(server.find(" is here again\n", missed) != std::string::npos, server);
  CHECK(server.find("worker 2 at ") < server.find(" has said nothing for "));
  CHECK(last(gang, "step") == 3200);
}

TEST_CASE("the master may be the one that was left out, until there is something to save") {
  Gang gang(long_servers("sync", {{"strategy", {{"backup", 1}}}, {"checkpoint", {{"steps", 3200}}}}), 2, 1);
  REQUIRE(gang.replicas[0]->runs_until([&] { return !said(gang, "worker.0", "step").empty(); }));
  gang.replicas[0]->signal(SIGSTOP);
  // The other one trains on alone, to the end.
  CHECK_MESSAGE(gang.replicas[1]->wait() == 0, gang.log("worker.1"));
  gang.replicas[0]->signal(SIGCONT);
  REQUIRE_MESSAGE(gang.run() == 0, gang.logs());
  CHECK(last(gang, "step") == 3200);
  CHECK(last(gang, "left_out_of_steps") > 10);
  CHECK(saved(gang) == 3200);
}

// Left to itself gRPC looks for the server every 5 s: with eight kills it is there too late for one of them.
TEST_CASE("a server that was started again is found at once by gRPC, too") {
#ifdef __SANITIZE_THREAD__
  tests::say_left_out("gRPC, which the sanitizer does not see into");
  return;
#endif
  Gang gang(long_servers("async", {{"strategy", {{"data-path", "grpc"}}}, {"deadline", 4}}), 1, 1);
  for (int kill = 0; kill <= 8; ++kill) {
    const int64_t before = saved(gang);
    REQUIRE_MESSAGE(gang.replicas[0]->runs_until([&] { return saved(gang) > before; }), gang.log("worker.0"));
    gang.replicas[1]->signal(SIGKILL);
    gang.replicas[1]->wait();
    gang.start_again(1);
  }
}

}  // namespace
}  // namespace dtrain::trainings
