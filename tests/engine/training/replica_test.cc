// Whole trainings by the program itself, as many processes as TF_CONFIG lists, on drawn digits.
#include <map>

#include "engine/formats/checkpoint.h"
#include "trainings.h"

namespace dtrain::trainings {
namespace {

TEST_CASE("the model is the same, bit for bit, on every number of workers, threads and servers") {
  for (const Json& optimizer : {Json{{"clip", 0.5}, {"optimizer", {{"momentum", 0.9}}}}, Json{{"optimizer", {{"kind", "adamw"}, {"learning-rate", 0.003}, {"weight-decay", 0.1}}}}}) {
    CAPTURE(optimizer.dump());
    Gang alone(all_reduce(optimizer), 1, 0);
    REQUIRE_MESSAGE(alone.run() == 0, alone.log("worker.0"));
    const std::string expected = alone.model();
    CHECK(last(alone, "accuracy") > 0.7);
    const auto check_same = [&](const char* what, const Json& spec, int workers, int ps) {
      CAPTURE(std::string(what));
      CAPTURE(workers);
      Gang gang(spec, workers, ps);
      REQUIRE_MESSAGE(gang.run() == 0, gang.log("worker.0"));
      CHECK(gang.model() == expected);
    };
    Json threads = all_reduce(optimizer);
    threads["threads"] = 3;
    check_same("threads", threads, 1, 0);
    check_same("workers", all_reduce(optimizer), 2, 0);
    check_same("workers", all_reduce(optimizer), 3, 0);
    check_same("workers", all_reduce(optimizer), 4, 0);
    check_same("threads of workers", threads, 2, 0);
    Json sync = servers("sync");
    sync.merge_patch(optimizer);
    check_same("sync", sync, 1, 1);
    check_same("sync", sync, 2, 2);
    check_same("sync", sync, 4, 3);
    sync["threads"] = 2;
    check_same("sync, threads", sync, 2, 1);
    sync["strategy"]["data-path"] = "grpc";
    check_same("sync, gRPC", sync, 2, 2);
  }
}

TEST_CASE("asynchronous servers come to the same accuracy") {
  Gang sync(servers("sync"), 2, 1);
  REQUIRE(sync.run() == 0);
  for (const char* mode : {"async", "ssp"}) {
    CAPTURE(std::string(mode));
    Gang gang(servers(mode), 2, 2);
    REQUIRE_MESSAGE(gang.run() == 0, gang.log("worker.0"));
    CHECK(last(gang, "accuracy") > last(sync, "accuracy") - 0.03);
  }
}

TEST_CASE("a training that is killed goes on to the same bits") {
  const Json spec = all_reduce({{"model", {{"lenet", {{"channels", {4, 6}}, {"hidden", {20}}}}, {"mlp", nullptr}}},
                                {"optimizer", {{"kind", "adam"}, {"learning-rate", 0.002}}},
                                {"checkpoint", {{"steps", 7}}},
                                {"epochs", 1}});
  Gang whole(spec, 2, 0);
  REQUIRE_MESSAGE(whole.run() == 0, whole.log("worker.0"));

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
  REQUIRE_MESSAGE(last_one.run() == 0, last_one.log("worker.0"));
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
  REQUIRE_MESSAGE(broken.run() == 0, broken.log("worker.0"));
  CHECK(broken.model() == whole.model());
}

TEST_CASE("without an asynchronous worker the others go on") {
  Gang gang(servers("async"), 3, 1);
  REQUIRE(gang.replicas[0]->runs_until(gang.output / "checkpoints"));
  gang.replicas[2]->signal(SIGKILL);
  CHECK(gang.run() == 0);
  CHECK(last(gang, "accuracy") > 0.7);
}

TEST_CASE("a loss that is no number ends the training, and names the step") {
  Gang gang(all_reduce({{"optimizer", {{"learning-rate", 1e6}}}}), 2, 0);
  CHECK(gang.run() == 2);
  CHECK(gang.replicas[1]->wait() != 0);
  for (const char* name : {"worker.0", "worker.1"}) {
    CHECK_MESSAGE(gang.log(name).find("in step ") != std::string::npos, gang.log(name));
    CHECK(gang.log(name).find("loss is") != std::string::npos);
  }
  CHECK(!fs::exists(gang.output / "model.safetensors"));
}

TEST_CASE("who never comes is named") {
  Json spec = all_reduce({{"deadline", 1}});
  Gang gang(spec, 3, 0);
  gang.replicas[2]->signal(SIGKILL);
  CHECK(gang.run() == 1);
  CHECK_MESSAGE(gang.log("worker.0").find("worker 2") != std::string::npos, gang.log("worker.0"));
}

TEST_CASE("bad input is an error before training, that names what is wrong") {
  const auto error = [](const Json& changes) {
    Gang gang(spec_of(changes), 1, 0);
    CHECK(gang.run() == 2);
    return gang.log("worker.0");
  };
  CHECK(error({{"data", {{"train", "nowhere"}}}}).find("nowhere") != std::string::npos);
  CHECK(error({{"batch", 5000}}).find("a batch of 5000 is more than the 4000 samples") != std::string::npos);
  CHECK(error({{"model", {{"mlp", nullptr}, {"gpt", Json::object()}}}}) != "");
  CHECK(error({{"model", {{"mlp", {{"hiden", {3}}}}}}}).find("hiden") != std::string::npos);
  // Cut off, as by a full disk: it would be the same however often it was tried.
  const test::TemporaryFolder folder;
  fs::copy(digits() / "train", folder / "train");
  fs::resize_file(folder / "train/train-images-idx3-ubyte", 100'000);
  CHECK(error({{"data", {{"train", (folder / "train").string()}}}}).find("cut off") != std::string::npos);
}

}  // namespace
}  // namespace dtrain::trainings
