// A worker of several threads and its parameter servers.
#include "engine/strategies/parameter_server.h"

#include <nlohmann/json.hpp>

#include "../server/servers.h"
#include "engine/data/digits.h"
#include "engine/strategies/assemble.h"
#include "tests/support/project.h"

namespace dtrain::engine {
namespace {

TEST_CASE("threads wait for the one that waits for servers longer than the deadline") {
  const test::TemporaryFolder files;
  REQUIRE(generate_digits(files.path(), {.train = 40, .test = 10, .seed = 1}).ok());
  const nlohmann::json json = {{"model", {{"mlp", {{"hidden", {4}}}}}},
                               {"data", {{"train", files / "train"}}},
                               {"strategy", {{"kind", "parameter-server"}, {"mode", "sync"}}},
                               {"batch", 8},
                               {"threads", 2},
                               {"deadline", kWaitedFor}};
  RunPlan plan = required(make_plan(required(engine_spec_from_json(json.dump())),
                                    {.index = 1, .workers = {"first", "second"}, .ps = {"server"}},
                                    files.path()));
  const Servers servers(plan.spec, plan.layout, 1, 2, 0, plan.data);
  plan.place.ps = servers.worker(1).servers;
  ServerClientConfig config = servers.worker(0);
  config.threads = plan.threads;
  const auto first = join(config, plan.layout);
  const auto second = required(ParameterServer::open(plan));

  std::vector<std::future<Status>> threads;
  for (int me = second->first(); me < second->first() + plan.threads; ++me) {
    threads.push_back(std::async(std::launch::async, [&, me]() -> Status {
      TRY(second->finish_step(me, {.step = 0, .learning_rate = 0.1}, {.rows = 1}));
      return ok();
    }));
  }
  // It would be asked for half a second, too.
  CHECK(threads[1].wait_for(2 * kLonger) == std::future_status::timeout);
  const Arena gradients(static_cast<size_t>(plan.layout.size()), 1);
  Arena params(gradients.size());
  const NodeSums left{0, static_cast<int>(second->leaves() / 2), gradients.data()};
  require_ok(first->push_step({&left, 1}, {.rows = 1}, 0.1, params.data()));
  for (auto& thread : threads) require_ok(thread.get());
}

}  // namespace
}  // namespace dtrain::engine
