// The packages for which the formats were made read what is written here. tests/run.sh installs them; by hand:
//
//   python3 -m venv venv && venv/bin/pip install numpy safetensors tensorboard
//   DTRAIN_TEST_PYTHON=venv/bin/python build/release/bin/engine_tests --source-file='*packages*'
#include <doctest/doctest.h>
#include <fmt/format.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "engine/formats/checkpoint.h"
#include "engine/formats/event_file.h"
#include "tests/support/project.h"
#include "tests/support/skipped.h"

namespace dtrain::engine {
namespace {

TEST_CASE("safetensors and tensorboard read what was written") {
  const char* python = std::getenv("DTRAIN_TEST_PYTHON");
  if (python == nullptr) {
    return tests::say_skipped("DTRAIN_TEST_PYTHON names no python with safetensors and tensorboard");
  }
  const test::TemporaryFolder folder;
  std::vector<float> weights(6);
  for (size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<float>(i) / 8;
  const std::vector<float> bias{-1};
  const std::vector<TensorView> model{{"a.weight", {2, 3}, weights}, {"a.bias", {1}, bias}, {"none", {0, 4}, {}}};
  REQUIRE(write_model(folder / "model.safetensors", model, {{"format", "pt"}, {"input_mean", "0.5"}}).ok());
  REQUIRE(write_model(folder / "none.safetensors", {}, {}).ok());
  auto checkpoints = Checkpoints::open(folder / "checkpoints", 2);
  REQUIRE(checkpoints.ok());
  const std::vector<TensorView> optimizer{{"state0.a.bias", {1}, bias}};
  REQUIRE(checkpoints->save(4, {model, optimizer, "{}"}).ok());
  {
    // A training comes to step 6, is lost, and goes on after the checkpoint of step 4.
    auto first = EventFile::create(folder / "logs", 1);
    REQUIRE(first.ok());
    for (int step = 1; step <= 6; ++step) first->scalar("loss", step, 1.0 / step);
    auto second = EventFile::create(folder / "logs", 5);
    REQUIRE(second.ok());
    for (int step = 5; step <= 8; ++step) second->scalar("loss", step, 2.0 / step);
  }
  const std::string command =
      fmt::format("'{}' '{}/tests/engine/with_packages.py' '{}'", python, SOURCE_DIR, folder.path().native());
  CHECK(std::system(command.c_str()) == 0);
}

}  // namespace
}  // namespace dtrain::engine
