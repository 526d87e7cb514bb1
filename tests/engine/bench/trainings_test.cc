#include "engine/bench/trainings.h"

#include <doctest/doctest.h>

#include "engine/comm/socket.h"
#include "engine/data/digits.h"
#include "engine/models/model.h"

namespace dtrain::engine {
namespace {

TEST_CASE("lines are words with values") {
  const auto lines = parse_lines("epoch=1 loss=0.5\nmemory parameters=64\n");
  REQUIRE(lines.size() == 2);
  CHECK(lines[0].at("loss") == "0.5");
  CHECK(lines[1].contains("memory"));
  CHECK(lines[1].at("parameters") == "64");
}

TEST_CASE("a command's output is returned, and what it complained of if it failed") {
  const auto said = run_command({{"sh", "-c", "echo $WORD"}, {{"WORD", "one"}}});
  REQUIRE(said.ok());
  CHECK(*said == "one\n");
  const auto failed = run_command({{"sh", "-c", "echo why >&2; exit 3"}});
  REQUIRE(!failed.ok());
  CHECK(failed.error().message.find("code 3") != std::string::npos);
  CHECK(failed.error().hint == "why");
  CHECK(run_command({{"no-such-command-here"}}).error().code == Code::NotFound);
}

TEST_CASE("one of several that fails ends the others") {
  // The second waits for ever.
  const auto failed =
      run_commands({{{"sh", "-c", "exit 1"}}, {{"sh", "-c", "exec sleep 1000000"}}});
  CHECK(!failed.ok());
}

TEST_CASE("a reserved port is given to no one else, and a listener may join it") {
  auto one = ReservedPort::take();
  auto two = ReservedPort::take();
  REQUIRE(one.ok());
  REQUIRE(two.ok());
  CHECK(one->address() != two->address());
  const auto at = parse_host_port(one->address());
  REQUIRE(at.ok());
  const auto listener = Listener::open(at->host, at->port);
  CHECK_MESSAGE(listener.ok(), (listener.ok() ? "" : listener.error().message));
}

TEST_CASE("a training tells what it did, and how much memory it takes") {
  auto scratch = ScratchFolder::create();
  REQUIRE(scratch.ok());
  REQUIRE(generate_digits(scratch->path(), {.train = 1000, .test = 100, .seed = 1}).ok());
  EngineSpec spec;
  spec.model = MlpSpec{{32}};
  spec.train_data = scratch->path() / "train";
  spec.test_data = scratch->path() / "test";
  spec.batch = 64;
  spec.epochs = 2;
  spec.epoch_samples = 1000;
  spec.threads = 1;
  spec.optimizer.momentum = 0.9;
  const int64_t arena =
      4 * layout_of(spec.model, {.channels = 1, .height = 28, .width = 28, .classes = 10}).size();
  for (const int workers : {1, 2}) {
    CAPTURE(workers);
    spec.strategy.kind = workers == 1 ? Strategy::Single : Strategy::MultiWorkerMirrored;
    const auto record = run_training(BIN_DIR "/dtrain-engine", spec, workers);
    REQUIRE_MESSAGE(record.ok(), (record.ok() ? "" : record.error().message + record.error().hint));
    // The last batch of an epoch is a smaller one.
    CHECK(record->samples() == 2000);
    CHECK(record->intervals.back().step == 32);
    CHECK(record->samples_per_second() > 0);
    CHECK(record->final_accuracy() > 0.1);
    CHECK(record->reached(2) == record->intervals.size());
    CHECK(record->parameters == arena);
    CHECK(record->gradients == (workers == 1 ? 0 : arena));  // alone, they become parameters at once
    CHECK(record->state == arena);
    // At least the layers' outputs and their gradients, of the samples of a worker.
    CHECK(record->activations >= 4 * 2 * (64 / workers) * 32);
    CHECK(record->activations < arena);
  }
}

TEST_CASE("what activations take grows with the samples of a step") {
  auto scratch = ScratchFolder::create();
  REQUIRE(scratch.ok());
  REQUIRE(generate_digits(scratch->path(), {.train = 128, .test = 10, .seed = 1}).ok());
  EngineSpec spec;
  spec.model = LenetSpec{};
  spec.train_data = scratch->path() / "train";
  spec.epoch_samples = 128;
  spec.threads = 1;
  int64_t activations[2] = {};
  for (const int i : {0, 1}) {
    spec.batch = i == 0 ? 8 : 64;
    const auto record = run_training(BIN_DIR "/dtrain-engine", spec, 1);
    REQUIRE_MESSAGE(record.ok(), (record.ok() ? "" : record.error().message + record.error().hint));
    activations[i] = record->activations;
  }
  CHECK(3 * activations[0] < activations[1]);
}

}  // namespace
}  // namespace dtrain::engine
