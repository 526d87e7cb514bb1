#include "engine/formats/checkpoint.h"

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <limits>

#include "tests/support/project.h"

namespace dtrain::engine {
namespace {

namespace fs = std::filesystem;
using test::TemporaryFolder;

// Everything in it says which step it is of.
struct Content {
  explicit Content(int64_t step, size_t size = 1000)
      : values(size, static_cast<float>(step)), model{{"w", {static_cast<int64_t>(size)}, values}},
        optimizer{{"state0.w", {static_cast<int64_t>(size)}, values}}, state(std::to_string(step)) {}
  CheckpointContent content() const { return {model, optimizer, state}; }
  std::vector<float> values;
  std::vector<TensorView> model, optimizer;
  std::string state;
};

Checkpoints open(const fs::path& folder, int keep = 3) {
  auto checkpoints = Checkpoints::open(folder, keep);
  REQUIRE(checkpoints.ok());
  return std::move(*checkpoints);
}

size_t entries(const fs::path& folder) {
  return static_cast<size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

TEST_CASE("the newest checkpoints stay, and the newest is found") {
  const TemporaryFolder folder;
  Checkpoints checkpoints = open(folder / "c", 2);
  CHECK(!checkpoints.newest_healthy());
  for (const int64_t step : {10, 20, 100}) REQUIRE(checkpoints.save(step, Content(step).content()).ok());
  CHECK(!fs::exists(folder / "c/step-00000010"));
  CHECK(fs::exists(folder / "c/step-00000020"));
  const auto newest = checkpoints.newest_healthy();
  REQUIRE(newest);
  CHECK(newest->step == 100);
  CHECK(newest->state == "100");
  const auto model = SafetensorsFile::open(newest->path / "model.safetensors");
  REQUIRE(model.ok());
  std::vector<float> values(1000);
  REQUIRE(model->read("w", std::vector<int64_t>{1000}, values).ok());
  CHECK(values == std::vector<float>(1000, 100));
  // Saving the same step anew is no error.
  CHECK(checkpoints.save(100, Content(100).content()).ok());
  CHECK(entries(folder / "c") == 2);
}

TEST_CASE("a damaged checkpoint is passed over, and said") {
  const TemporaryFolder folder;
  Checkpoints checkpoints = open(folder / "c");
  for (const int64_t step : {1, 2}) REQUIRE(checkpoints.save(step, Content(step).content()).ok());
  for (const char* name : {"model.safetensors", "optimizer.safetensors", "state.json", "manifest.json"}) {
    CAPTURE(name);
    const fs::path path = folder / "c/step-00000002" / name;
    const std::string whole = test::read_file(path);
    std::string broken = whole;
    broken[broken.size() / 2] ^= 4;
    for (const std::string& damaged : {broken, whole.substr(0, whole.size() / 2), std::string()}) {
      test::write_file(path, damaged);
      std::vector<std::string> skipped;
      const auto newest = checkpoints.newest_healthy(&skipped);
      REQUIRE(newest);
      CHECK(newest->step == 1);
      REQUIRE(skipped.size() == 1);
      CHECK(skipped[0].find("step-00000002") != std::string::npos);
    }
    test::write_file(path, whole);
    CHECK(checkpoints.newest_healthy()->step == 2);
  }
}

TEST_CASE("what is not finite is not saved") {
  const TemporaryFolder folder;
  Checkpoints checkpoints = open(folder / "c");
  REQUIRE(checkpoints.save(1, Content(1).content()).ok());
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    Content content(2);
    content.values[7] = bad;
    const Status saved = checkpoints.save(2, content.content());
    REQUIRE(!saved.ok());
    CHECK(saved.error().code == Code::InvalidArgument);
    CHECK(entries(folder / "c") == 1);
  }
}

TEST_CASE("a writer that is killed leaves the newest that was whole") {
  const TemporaryFolder folder;
  int64_t survived = 0;
  for (int round = 0; round < 60; ++round) {
    int told[2];
    REQUIRE(::pipe(told) == 0);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      auto checkpoints = Checkpoints::open(folder / "c", 2);
      if (!checkpoints.ok()) ::_exit(1);
      for (int64_t step = survived + 1;; ++step) {
        if (!checkpoints->save(step, Content(step, 20'000).content()).ok()) ::_exit(1);
        if (::write(told[1], &step, sizeof step) != sizeof step) ::_exit(1);
      }
    }
    ::close(told[1]);
    int64_t step = 0, saved = survived;
    // So many, and then somewhere in the next.
    for (int i = 0; i < 1 + round % 3; ++i) {
      REQUIRE(::read(told[0], &step, sizeof step) == sizeof step);
      saved = step;
    }
    [[maybe_unused]] volatile int busy = 0;  // another moment each time
    for (int i = 0; i < round * 20'000; ++i) busy = i;
    ::kill(child, SIGKILL);
    int status = 0;
    REQUIRE(::waitpid(child, &status, 0) == child);
    REQUIRE(WIFSIGNALED(status));
    while (::read(told[0], &step, sizeof step) == sizeof step) saved = step;
    ::close(told[0]);

    std::vector<std::string> skipped;
    const auto newest = open(folder / "c", 2).newest_healthy(&skipped);
    REQUIRE(newest);
    CHECK(newest->step >= saved);
    CHECK(skipped.empty());
    survived = newest->step;
    CHECK(entries(folder / "c") <= 3);  // an old one may not be gone yet
  }
}

TEST_CASE("a full disk is said, and the checkpoint before stays") {
  const TemporaryFolder folder;
  Checkpoints checkpoints = open(folder / "c");
  REQUIRE(checkpoints.save(1, Content(1).content()).ok());
  rlimit before{};
  REQUIRE(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  const rlimit little{2048, before.rlim_max};
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &little) == 0);
  const Status saved = checkpoints.save(2, Content(2).content());
  REQUIRE(::setrlimit(RLIMIT_FSIZE, &before) == 0);
  std::signal(SIGXFSZ, handler);
  REQUIRE(!saved.ok());
  CHECK(saved.error().code == Code::ResourceExhausted);
  CHECK(checkpoints.newest_healthy()->step == 1);
  CHECK(entries(folder / "c") == 1);
}

}  // namespace
}  // namespace dtrain::engine
