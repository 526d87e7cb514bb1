#include "daemon/placement_per_host.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <map>
#include <random>

#include "tests/sim/room_search.h"
#include "tests/unit/daemon/placement_scene.h"

namespace dtrain::daemon {

TEST_CASE("no host takes more of a role than its per-host, by which the master is a worker") {
  Model model;
  for (const char* name : {"a", "b", "c"}) add_host(model, name, 8, 64, 0);
  const auto hosts_of_role = [](const Placed& gang, Role role) {
    std::map<std::string, int> hosts;
    for (const Seat& seat : gang.seats) hosts[seat.host.hex] += counted_as(seat.replica.role) == role;
    std::erase_if(hosts, [](const auto& entry) { return entry.second == 0; });
    return hosts;
  };
  Spec gang = spec_of({limited(role(Role::Master, 1, 1, 1, 0), 1), limited(role(Role::Worker, 2, 1, 1, 0), 1), role(Role::Ps, 2, 1, 1, 0)});
  const Placed one_each = placed(model, gang);
  CHECK(hosts_of_role(one_each, Role::Worker) == std::map<std::string, int>{{"a", 1}, {"b", 1}, {"c", 1}});
  CHECK(one_each.seats.front().address == "at-a");
  gang.roles[0].per_host = gang.roles[1].per_host = 2;
  CHECK(hosts_of_role(placed(model, gang), Role::Worker).size() == 2);
  gang.roles[0].per_host = gang.roles[1].per_host = 3;
  CHECK(hosts_of(placed(model, gang)).size() == 1);
  gang.roles[2].per_host = 1;   // the workers may lie together
  CHECK(hosts_of(placed(model, gang)).size() == 2);
}

TEST_CASE("what a host takes little of finds its place beside what it would take much of") {
  Model model;
  add_host(model, "a", 4, 64, 0);
  add_host(model, "b", 4, 64, 0);
  CHECK(placed(model, spec_of({role(Role::Master, 1, 1, 1, 0), role(Role::Worker, 3, 1, 1, 0), limited(role(Role::Ps, 2, 1, 1, 0), 1)})).seats.size() == 6);
  // The servers ask for more, and would take all of either host.
  CHECK(placed(model, spec_of({limited(role(Role::Master, 1, 1, 1, 0), 1), limited(role(Role::Worker, 1, 1, 1, 0), 1), role(Role::Ps, 2, 2, 2, 0)})).seats.size() == 4);
}

TEST_CASE("who is short of hosts is told how many it needs, and how many there are") {
  Model model;
  add_host(model, "a", 4, 64, 0);
  add_host(model, "b", 4, 64, 0);
  Spec gang = spec_of({limited(role(Role::Master, 1, 2, 1, 0), 1), limited(role(Role::Worker, 2, 2, 1, 0), 1)});
  const Never refused = never(model, gang);
  CHECK(refused.reason == "needs 3 hosts for its workers, one each; there are 2");
  CHECK(refused.hint == "raise `per-host`, ask for fewer replicas, or add a host");
  add_host(model, "c", 1, 64, 0);
  CHECK(never(model, gang).reason == "needs 3 hosts for its workers, one each; of the 3 that there are 2 are large enough");
  add_host(model, "d", 8, 64, 0);
  CHECK(placed(model, gang).seats.size() == 3);
  take(model, placed(model, spec_of({role(Role::Train, 1, 7, 1, 0)})));
  CHECK(waits(model, gang) == "needs 3 hosts for its workers, one each; 2 have room");
  gang.roles[1].count = 20;
  gang.roles[0].per_host = gang.roles[1].per_host = 3;
  CHECK(never(model, gang).reason == "needs 7 hosts for its 21 workers, at most 3 each; there are 4");
  // Where cpus are short as well it is these that are named.
  gang.roles[1].count = 2;
  gang.roles[0].per_host = gang.roles[1].per_host = 1;
  take(model, placed(model, spec_of({role(Role::Train, 1, 4, 1, 0)}), "a"));
  take(model, placed(model, spec_of({role(Role::Train, 1, 4, 1, 0)}), "b"));
  CHECK(waits(model, gang) == "needs 2 cpus on one host; free: 1+1+0+0");
}

TEST_CASE("an elastic gang has as many workers as there are hosts for them") {
  Model model;
  add_host(model, "a", 8, 64, 0);
  add_host(model, "b", 8, 64, 0);
  Spec gang = spec_of({limited(role(Role::Master, 1, 1, 1, 0), 1), limited(role(Role::Worker, 3, 1, 1, 0), 1)});
  gang.elastic = Elastic{0};
  const Placed fewer = placed(model, gang);
  CHECK(fewer.seats.size() == 2);
  CHECK(fewer.notice == "2 of 4 workers");
}

TEST_CASE("small gangs are placed just where trying every way finds one, with limits and without") {
  std::mt19937 random(7);
  const auto below = [&](int most) { return static_cast<int>(random() % static_cast<unsigned>(most)); };
  int placed_ones = 0, refused = 0;
  for (int round = 0; round < 3'000; ++round) {
    Model model;
    std::vector<Room> rooms;
    for (int host = 0, hosts = 1 + below(4); host < hosts; ++host) {
      add_host(model, fmt::format("h{}", host), 1 + below(5), 8, below(3));
      rooms.push_back(sim::whole(model.hosts.rbegin()->second));
    }
    const int of_workers = below(3);
    std::vector<RoleSpec> roles{limited(role(Role::Master, 1, 1 + below(2), 1, below(2)), of_workers)};
    roles.push_back(limited(role(Role::Worker, 1 + below(3), 1 + below(2), 1, below(2)), of_workers));
    if (below(2) == 0) roles.push_back(limited(role(Role::Ps, 1 + below(2), 1 + below(3), 1, 0), below(3)));
    const Spec spec = spec_of(roles);
    const auto seats = fit(ExperimentId{1, 0}, spec, model.free, Choice{});
    CAPTURE(round);
    REQUIRE(seats.has_value() == sim::RoomSearch(spec, rooms).run());
    ++(seats ? placed_ones : refused);
    if (!seats) continue;
    std::map<std::pair<HostId, Role>, int> taken;
    for (const Seat& seat : *seats) ++taken[{seat.host, counted_as(seat.replica.role)}];
    for (const RoleSpec& one : spec.roles) {
      for (const auto& [place, count] : taken) {
        if (place.second == counted_as(one.role) && one.per_host > 0) REQUIRE(count <= one.per_host);
      }
    }
  }
  CHECK(placed_ones > 500);
  CHECK(refused > 500);
}

}  // namespace dtrain::daemon
