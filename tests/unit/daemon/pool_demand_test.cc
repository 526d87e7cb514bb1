#include "daemon/pool_demand.h"

#include <doctest/doctest.h>

#include "daemon/placement.h"
#include "daemon/queue.h"
#include "tests/unit/daemon/core_scene.h"

namespace dtrain::daemon {

namespace {

constexpr uint64_t kMemoryBytes = uint64_t{64} << 30;
constexpr int64_t kHourMs = 3'600'000;

// One host of 2 cpus that stays, and a pool of hosts with 8 cpus and 4 GPUs each for four hours.
struct PoolScene : CoreScene {
  explicit PoolScene(int hosts_max = 4) {
    add_pool(model, {"gpu", 8, kMemoryBytes, 4, hosts_max, 4 * kHourMs});
    host("n1", 2);
  }
  Demand demand(const std::vector<Coming>& coming = {}, int taken = 0, bool closed = false) {
    return demand_on_pools(model, coming, {{"gpu", taken}}, closed ? std::set<std::string>{"gpu"} : std::set<std::string>(),
                           now);
  }
  // A host that the pool has brought.
  HostId join(const std::string& name, int64_t left_ms = 4 * kHourMs, const std::string& kept_lane = "") {
    Host host;
    host.id.hex = host.name = host.address = name;
    host.cpus = 8;
    host.memory_bytes = kMemoryBytes;
    for (int gpu = 0; gpu < 4; ++gpu) host.gpus.push_back({gpu, "gpu", ""});
    host.pool = "gpu";
    host.lasts_ms = 4 * kHourMs;
    host.ends_ms = now + left_ms;
    host.kept_lane = kept_lane;
    happen(HostConnected{host, {}});
    return host.id;
  }
};

}  // namespace

TEST_CASE("what fits is placed, and what does not asks for as many hosts as it fits on alone") {
  PoolScene scene;
  const auto small = scene.submit({.cpus = 1});
  const auto large = scene.submit({.replicas = 6, .cpus = 4});
  scene.pass();
  CHECK(scene.is_placed(small));
  CHECK_FALSE(scene.is_placed(large));
  CHECK(scene.demand().asks == std::vector<Ask>{{"gpu", 3, large}});
  CHECK(scene.reason(large).find("; gpu may bring 3 hosts") != std::string::npos);
  // It does not share the two cpus that are here, as it would without a pool.
  CHECK(scene.reason(large).find("share") == std::string::npos);
}

TEST_CASE("what is coming is not asked for again, and others use what is left of it") {
  PoolScene scene;
  const auto first = scene.submit({.gpus = 3});
  const auto second = scene.submit({.gpus = 1});
  const auto third = scene.submit({.gpus = 2});
  scene.pass();
  CHECK(scene.demand().asks == std::vector<Ask>{{"gpu", 1, first}, {"gpu", 1, third}});
  const Demand later = scene.demand({{7, "gpu", 1}}, 1);
  CHECK(later.asks == std::vector<Ask>{{"gpu", 1, third}});
  CHECK(later.awaited == std::set<uint32_t>{7});
  scene.happen(KillWanted{first});
  scene.happen(KillWanted{second});
  scene.happen(KillWanted{third});
  CHECK(scene.demand({{7, "gpu", 1}}, 1).awaited.empty());
}

TEST_CASE("no more hosts are asked for than a pool has, and none of one that is closed") {
  PoolScene scene(3);
  const auto wide = scene.submit({.replicas = 2, .gpus = 4});
  scene.pass();
  const Demand exhausted = scene.demand({}, 2);
  CHECK(exhausted.asks.empty());
  CHECK(exhausted.exhausted == std::map<ExperimentId, std::string>{{wide, "gpu"}});
  const Demand refused = scene.demand({}, 0, true);
  CHECK(refused.asks.empty());
  CHECK(refused.refused == std::map<ExperimentId, std::string>{{wide, "gpu"}});
}

TEST_CASE("what the first in the queue waits for is not asked for by those behind it") {
  PoolScene scene(3);
  const auto wide = scene.submit({.replicas = 3, .gpus = 4});
  scene.submit({.gpus = 1});
  scene.pass();
  const Demand demand = scene.demand({}, 1);
  CHECK(demand.asks.empty());
  CHECK(demand.exhausted.contains(wide));
}

TEST_CASE("what waits for its user's quota asks for nothing, takes no looks of others, and what is asked for stays within it") {
  PoolScene scene(40);
  scene.model.quotas = {{"anna", {}, {}, 8}};
  const auto runs = scene.submit({.gpus = 4, .user = "anna"});
  scene.join("a");
  scene.pass();
  REQUIRE(scene.is_placed(runs));
  for (int i = 0; i < 100; ++i) scene.submit({.replicas = 2, .gpus = 4, .user = "anna"});   // of which none fits beside it
  const auto others = scene.submit({.gpus = 4, .user = "bert"});
  scene.pass();
  CHECK(scene.demand({}, 1).asks == std::vector<Ask>{{"gpu", 1, others}});

  // Of two that want all of it only the first is asked for as it would like to be; the second gets what is left: nothing.
  PoolScene two(40);
  two.model.quotas = {{"anna", {}, {}, 8}};
  const auto first = two.submit({.replicas = 8, .gpus = 1, .least = 1, .user = "anna"});
  two.submit({.replicas = 8, .gpus = 1, .least = 1, .user = "anna"});
  two.pass();
  CHECK(two.demand().asks == std::vector<Ask>{{"gpu", 2, first}});

  // One that can't be placed for another reason leaves its quota to those that a pool can help.
  PoolScene pinned(40);
  pinned.model.quotas = {{"anna", {}, {}, 4}};
  pinned.submit({.gpus = 4, .host = "elsewhere", .user = "anna"});
  const auto helped = pinned.submit({.gpus = 4, .user = "anna"});
  pinned.pass();
  CHECK(pinned.demand().asks == std::vector<Ask>{{"gpu", 1, helped}});
}

TEST_CASE("where only one host may be asked for, it is for whose turn it is") {
  for (const bool fair : {false, true}) {
    PoolScene scene(2);
    if (fair) scene.model.fair_share = {{"", 1}};
    const auto runs = scene.submit({.gpus = 4, .user = "anna"});
    scene.join("a");
    scene.pass();
    REQUIRE(scene.is_placed(runs));
    const auto more = scene.submit({.gpus = 4, .user = "anna"});
    const auto other = scene.submit({.gpus = 4, .user = "bert"});
    scene.pass();
    CHECK(scene.demand({}, 1).asks == std::vector<Ask>{{"gpu", 1, fair ? other : more}});
  }
}

TEST_CASE("what no pool could ever bring is refused, with what it could") {
  PoolScene scene(2);
  Spec spec;
  RoleSpec role;
  role.role = Role::Worker;
  role.count = 3;
  role.resources = {1, kMemoryBytes / 64, 4};
  spec.roles = {role};
  const auto too_wide = plan(scene.model, spec, "");
  REQUIRE(std::holds_alternative<Never>(too_wide));
  CHECK(std::get<Never>(too_wide).reason.find("all hosts: 4+4") != std::string::npos);
  spec.roles[0].count = 2;
  CHECK(std::holds_alternative<Waits>(plan(scene.model, spec, "")));
  CHECK(std::holds_alternative<Waits>(plan(scene.model, spec, "gpu")));
  CHECK(std::holds_alternative<Never>(plan(scene.model, spec, "n1")));
  spec.max_duration_ms = 4 * kHourMs;
  const auto too_long = plan(scene.model, spec, "");
  REQUIRE(std::holds_alternative<Never>(too_long));
  CHECK(std::get<Never>(too_long).reason == "may take 4h, and no host that stays so long is large enough");
}

TEST_CASE("a host that is lent takes what ends before it leaves") {
  PoolScene scene;
  const HostId lent = scene.join("lent", kHourMs);
  const auto fits = scene.submit({.cpus = 4, .max_duration_ms = kHourMs / 2});
  const auto too_long = scene.submit({.cpus = 4, .max_duration_ms = kHourMs});
  const auto nobody_knows = scene.submit({.cpus = 4});   // begins in the first half of its time, or not
  scene.pass();
  CHECK(scene.is_placed(fits));
  CHECK_FALSE(scene.is_placed(too_long));
  CHECK_FALSE(scene.is_placed(nobody_knows));
  const HostId fresh = scene.join("fresh");
  scene.pass();
  CHECK(scene.host_of(too_long) == fresh);
  CHECK(scene.host_of(nobody_knows) == fresh);
  CHECK(scene.host_of(fits) == lent);
}

TEST_CASE("hosts that came for a gang are kept for it until the last of them is here") {
  PoolScene scene;
  const auto wide = scene.submit({.replicas = 2, .gpus = 4});
  const auto small = scene.submit({.gpus = 1, .priority = 90});
  const std::string lane = lane_of(scene.model, scene.model.experiments.at(wide));
  scene.join("a", 4 * kHourMs, lane);
  scene.pass();
  CHECK_FALSE(scene.is_placed(small));
  scene.join("b", 4 * kHourMs, lane);
  scene.pass();
  CHECK(scene.is_placed(wide));
  CHECK_FALSE(scene.is_placed(small));
  scene.happen(KillWanted{wide});
  scene.release_all(wide);
  scene.pass();
  CHECK(scene.is_placed(small));
}

TEST_CASE("hosts that are kept are everybody's once who they came for has had its turn") {
  PoolScene scene;
  const auto wide = scene.submit({.replicas = 2, .gpus = 4});
  const auto small = scene.submit({.gpus = 1});
  const HostId host = scene.join("a", 4 * kHourMs, lane_of(scene.model, scene.model.experiments.at(wide)));
  scene.pass();
  CHECK_FALSE(scene.is_placed(small));
  scene.happen(HostOpened{host});
  CHECK(scene.model.place_wanted);
  CHECK(scene.model.hosts.at(host).kept_lane.empty());
  scene.pass();
  CHECK(scene.host_of(small) == host);
}

TEST_CASE("what lacks a data set on one host of a pool is not tried on others of it") {
  PoolScene scene;
  scene.now = 60'000;
  const auto id = scene.submit({.gpus = 1});
  const HostId first = scene.join("first");
  scene.pass();
  REQUIRE(scene.is_placed(id));
  LaunchFailed failed{first, {id, 1}, "data mnist: /mnt/mnist is not there", 0, false};
  failed.unfit = true;
  scene.happen(failed);
  scene.pass();
  const Experiment& experiment = scene.model.experiments.at(id);
  REQUIRE(experiment.outcome);
  CHECK(experiment.outcome->reason.find("/mnt/mnist is not there on the hosts of gpu") != std::string::npos);
}

TEST_CASE("what one host of a pool lacked is looked for again on the next one that comes") {
  PoolScene scene;
  scene.now = 60'000;
  Host other;
  other.id.hex = other.name = other.address = "other";
  other.cpus = 8;
  other.memory_bytes = kMemoryBytes;
  other.gpus.push_back({0, "gpu", ""});
  scene.happen(HostConnected{other, {}});
  const auto beside = scene.submit({.gpus = 1, .host = "other"});
  const HostId first = scene.join("first");
  const auto id = scene.submit({.gpus = 1});
  scene.pass();
  REQUIRE(scene.host_of(beside) == other.id);
  REQUIRE(scene.host_of(id) == first);
  LaunchFailed failed{first, {id, 1}, "data mnist: /mnt does not answer", 0, false};
  failed.unfit = true;
  scene.happen(failed);
  scene.pass();
  CHECK_FALSE(scene.is_placed(id));
  const HostId second = scene.join("second");
  scene.pass();
  CHECK(scene.host_of(id) == second);
}

TEST_CASE("when a host's time is over what may be restarted goes on elsewhere, at no restart of its limit") {
  PoolScene scene;
  const HostId lent = scene.join("lent");
  const auto restarts = scene.submit({.cpus = 4, .restarts = 1});
  const auto fails = scene.submit({.cpus = 4});
  scene.pass();
  scene.start(restarts);
  scene.start(fails);
  REQUIRE(scene.host_of(restarts) == lent);
  REQUIRE(scene.host_of(fails) == lent);
  // Two minutes before.
  scene.now += 4 * kHourMs - 120'000;
  scene.happen(Tick{});
  CHECK(scene.model.hosts.at(lent).leaving);
  const Experiment& failed = scene.model.experiments.at(fails);
  REQUIRE(failed.outcome);
  CHECK(failed.outcome->state == State::Failed);
  CHECK(failed.outcome->reason == "the 4h that lent was lent for are over");
  const Experiment& restarted = scene.model.experiments.at(restarts);
  CHECK_FALSE(restarted.outcome);
  CHECK(restarted.phase == Phase::Ending);
  CHECK(restarted.restarts_used == 0);
  scene.release_all(restarts);
  scene.pass();
  CHECK_FALSE(scene.is_placed(restarts));   // nothing more is placed there
  const HostId next = scene.join("next");
  scene.pass();
  CHECK(scene.host_of(restarts) == next);
}

TEST_CASE("people are told what was asked for, once, and no more when it is placed") {
  PoolScene scene;
  const auto id = scene.submit({.gpus = 1});
  scene.pass();
  const Effects told = scene.happen(PoolAsked{id, "1 host asked of gpu: job 17 waits in Slurm"});
  REQUIRE(told.notify.size() == 1);
  CHECK(told.notify[0].state == State::Pending);
  CHECK(scene.happen(PoolAsked{id, "1 host asked of gpu: job 17 waits in Slurm"}).notify.empty());
  CHECK(scene.reason(id).find("; 1 host asked of gpu: job 17 waits in Slurm") != std::string::npos);
  scene.join("lent");
  scene.pass();
  CHECK(scene.is_placed(id));
  CHECK(scene.happen(PoolAsked{id, "too late"}).notify.empty());
}

}  // namespace dtrain::daemon
