// Whole trainings on several hosts: processes as threads, each on a host that it pretends to be.
#pragma once

#include <doctest/doctest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "../comm/gangs.h"
#include "engine/strategies/all_reduce.h"
#include "engine/strategies/split_model.h"
#include "engine/training/training.h"
#include "tests/support/project.h"

namespace dtrain::engine {

// The model that such a cast trains, as the file has it. Each process has its own OUTPUT_DIR, but that of
// the master counts.
inline std::string trained(const nlohmann::json& json, const Cast& cast, const test::TemporaryFolder& folder) {
  Ports ports(cast);
  std::vector<std::thread> processes;
  for (size_t i = 0; i < cast.threads.size(); ++i) {
    processes.emplace_back([&, i] {
      const auto run = [&]() -> Status {
        TRY(EngineSpec spec, engine_spec_from_json(json.dump()));
        spec.threads = cast.threads[i];
        TRY(const RunPlan plan, make_plan(std::move(spec), ports.attendances[i].place, folder.path()));
        TRY(auto gang, meet(ports.attendances[i], Deadline::after(kPatience_seconds), std::move(ports.listeners[i])));
        std::unique_ptr<Updater> updater;
        if (plan.spec.strategy.kind == Strategy::MultiWorkerMirrored) {
          TRY(updater, AllReduce::open(plan, std::move(gang)));
        } else {
          TRY(updater, SplitModel::open(plan, std::move(gang)));
        }
        Start start;
        if (plan.place.is_master()) {
          TRY(start, Start::find(plan));
        }
        return Training(plan, start, *updater).run();
      };
      if (const Status status = run(); !status.ok()) FAIL_CHECK(status.error().message);
    });
  }
  for (std::thread& process : processes) process.join();
  return test::read_file(folder / "model.safetensors");
}

}  // namespace dtrain::engine
