// Split models on several hosts: processes as threads, each on a host that it pretends to be.
#include "engine/strategies/split_model.h"

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>

#include "../models_beside.h"
#include "trained_on_hosts.h"

namespace dtrain::engine {
namespace {

using Json = nlohmann::json;

Json spec_of(const std::filesystem::path& files, const Json& strategy) {
  return {{"model", {{"gpt", {{"layers", 4}, {"heads", 4}, {"width", 16}, {"context", 16}}}}},
          {"data", {{"train", files / "train.txt"}, {"test", files / "test.txt"}}},
          {"batch", 16},
          {"steps", 12},
          {"clip", 1.0},
          {"checkpoint", {{"steps", 4}}},
          {"strategy", strategy},
          {"optimizer", {{"kind", "adamw"}, {"learning-rate", 0.003}}},
          {"deadline", kPatience_seconds}};
}

TEST_CASE("a model that is split over hosts is the same, to rounding, and goes on from its checkpoints") {
  const test::TemporaryFolder files;
  write_text(files.path());
  const test::TemporaryFolder alone;
  const std::string expected =
      trained(spec_of(files.path(), {{"kind", "multi-worker-mirrored"}}), {{1}}, alone);
  const Json pipeline = {{"kind", "pipeline"}, {"micro-batches", 4}};
  const Json tensor = {{"kind", "tensor"}};
  const Json mesh = {{"kind", "mesh"}, {"mesh-data", 2}, {"mesh-model", 2}};
  struct Case {
    const char* name;
    Json strategy;
    Cast cast;
  };
  for (const Case& one : std::vector<Case>{
           {"pipeline", pipeline, {{1, 1}, {0, 1}}},
           {"pipeline", pipeline, {{1, 1, 1}, {0, 1, 0}}},
           {"pipeline, threads", pipeline, {{2, 2, 2}, {0, 1, 1}}},
           {"tensor", tensor, {{1, 1}, {0, 1}}},
           {"tensor", tensor, {{1, 1, 1, 1}, {0, 1, 1, 0}}},
           {"mesh, rows on hosts", mesh, {{1, 1, 1, 1}, {0, 0, 1, 1}}},
           {"mesh, parts on hosts", mesh, {{1, 1, 1, 1}, {0, 1, 0, 1}}},
           {"mesh, threads", mesh, {{2, 2, 2, 2}, {0, 1, 2, 0}}}}) {
    CAPTURE(std::string(one.name));
    const test::TemporaryFolder folder;
    const std::string split = trained(spec_of(files.path(), one.strategy), one.cast, folder);
    CHECK(distance(expected, split) < 2e-4);
    // As if it had been killed after its first checkpoint.
    std::filesystem::remove(folder / "model.safetensors");
    std::filesystem::remove_all(folder / "checkpoints/step-00000008");
    std::filesystem::remove_all(folder / "checkpoints/step-00000012");
    CHECK(trained(spec_of(files.path(), one.strategy), one.cast, folder) == split);
  }
}

TEST_CASE("workers of a split model have as many threads each") {
  const test::TemporaryFolder files;
  write_text(files.path());
  const test::TemporaryFolder folder;
  const Cast cast{{1, 2}, {}};
  Ports ports(cast);
  std::vector<std::thread> processes;
  for (size_t i = 0; i < 2; ++i) {
    processes.emplace_back([&, i] {
      auto spec = engine_spec_from_json(spec_of(files.path(), {{"kind", "tensor"}}).dump());
      REQUIRE(spec.ok());
      auto plan = make_plan(*spec, ports.attendances[i].place, folder.path());
      REQUIRE(plan.ok());
      auto gang = meet(ports.attendances[i], Deadline::after(kPatience_seconds), std::move(ports.listeners[i]));
      REQUIRE(gang.ok());
      const auto made = SplitModel::open(*plan, std::move(*gang));
      REQUIRE_FALSE(made.ok());
      CHECK(made.error().message.find("worker 1") != std::string::npos);
      CHECK(made.error().message.find("2 threads") != std::string::npos);
    });
  }
  for (std::thread& process : processes) process.join();
}

}  // namespace
}  // namespace dtrain::engine
