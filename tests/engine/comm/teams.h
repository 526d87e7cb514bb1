// Teams for tests: every participant a thread, also of processes that are threads themselves.
#pragma once

#include "engine/comm/team.h"
#include "gangs.h"

namespace dtrain::engine {

// Runs body(team, participant) on every thread of every process.
inline void with_teams(const Cast& cast, const TeamPlan& plan,
                       const std::function<void(Team&, int)>& body) {
  with_gangs(cast, [&](Gang& gang) {
    auto team = Team::open(gang, plan, Deadline::after(kPatience_seconds));
    if (!team.ok()) FAIL_CHECK(team.error().message);
    if (!team.ok()) return;
    std::vector<std::thread> threads;
    for (int thread = 0; thread < gang.threads(); ++thread) {
      threads.emplace_back([&, thread] { body(**team, gang.first() + thread); });
    }
    for (std::thread& thread : threads) thread.join();
  });
}

}  // namespace dtrain::engine
