#include "daemon/placement.h"

#include <doctest/doctest.h>

#include <map>
#include <set>

#include "tests/unit/daemon/placement_scene.h"

namespace dtrain::daemon {

TEST_CASE("a gang on one host: loopback, ports, ranks, GPUs by index") {
  Model model;
  add_host(model, "n1", 8, 64, 4);
  const Placed gang = placed(model, spec_of({role(Role::Master, 1, 1, 1, 1),
                                             role(Role::Worker, 2, 1, 1, 1),
                                             role(Role::Ps, 1, 1, 1, 0)}));
  REQUIRE(gang.seats.size() == 4);
  std::set<int> ports;
  for (size_t i = 0; i < 4; ++i) {
    const Seat& seat = gang.seats[i];
    CHECK(seat.rank == static_cast<int>(i));
    CHECK(seat.local_rank == static_cast<int>(i));
    CHECK(seat.address == "127.0.0.1");
    ports.insert(seat.port);
  }
  CHECK(ports.size() == 4);
  CHECK(gang.seats[0].gpus == std::vector<int>{0});
  CHECK(gang.seats[2].gpus == std::vector<int>{2});
  CHECK(gang.seats[3].gpus.empty());
  CHECK(gang.notice.empty());
}

TEST_CASE("one host takes all of it when one can, the tightest") {
  Model model;
  add_host(model, "big", 32, 256, 8);
  add_host(model, "small", 8, 64, 4);
  add_host(model, "tiny", 8, 64, 1);
  CHECK(hosts_of(placed(model, spec_of({role(Role::Train, 1, 1, 1, 3)}))) ==
        std::set<std::string>{"small"});
  CHECK(hosts_of(placed(model, spec_of({role(Role::Train, 1, 1, 1, 0)}))) ==
        std::set<std::string>{"tiny"});
  CHECK(hosts_of(placed(model, spec_of({role(Role::Worker, 6, 1, 1, 1)}))) ==
        std::set<std::string>{"big"});
}

TEST_CASE("GPUs of one replica are near each other: of the node with the fewest that do, else of few nodes") {
  Model model;
  Host& host = add_host(model, "n1", 64, 512, 8);
  for (int gpu = 0; gpu < 8; ++gpu) host.gpus[static_cast<size_t>(gpu)].numa_node = gpu % 2;   // 0 2 4 6, 1 3 5 7
  model.free.put(free_host(model, host));
  const auto gpus_of = [&](const std::vector<RoleSpec>& roles) {
    std::vector<std::vector<int>> gpus;
    const auto seats = fit({1, 0}, spec_of(roles), model.free, {});
    REQUIRE(seats);
    for (const Seat& seat : *seats) gpus.push_back(seat.gpus);
    return gpus;
  };
  using Gpus = std::vector<std::vector<int>>;
  CHECK(gpus_of({role(Role::Worker, 2, 1, 1, 4)}) == Gpus{{0, 2, 4, 6}, {1, 3, 5, 7}});
  CHECK(gpus_of({role(Role::Worker, 4, 1, 1, 2)}) == Gpus{{0, 2}, {4, 6}, {1, 3}, {5, 7}});
  CHECK(gpus_of({role(Role::Worker, 2, 1, 1, 3)}) == Gpus{{0, 2, 4}, {1, 3, 5}});
  CHECK(gpus_of({role(Role::Train, 1, 1, 1, 5)}) == Gpus{{0, 1, 2, 4, 6}});
  // The one that is left alone goes first, so that four stay together.
  CHECK(gpus_of({role(Role::Chief, 1, 1, 1, 3), role(Role::Ps, 1, 1, 1, 1), role(Role::Worker, 1, 1, 1, 4)}) == Gpus{{0, 2, 4}, {6}, {1, 3, 5, 7}});
  CHECK(gpus_of({role(Role::Worker, 8, 1, 1, 1)}) == Gpus{{0}, {2}, {4}, {6}, {1}, {3}, {5}, {7}});
}

TEST_CASE("over several hosts: as few as can be, real addresses, the rest on the tightest") {
  Model model;
  for (const char* name : {"n1", "n2", "n3"}) add_host(model, name, 16, 64, 4);
  add_host(model, "n0", 16, 64, 2);
  const Placed gang =
      placed(model, spec_of({role(Role::Worker, 10, 1, 1, 1), role(Role::Ps, 2, 1, 1, 0)}));
  CHECK(hosts_of(gang) == std::set<std::string>{"n0", "n1", "n2"});
  CHECK(gang.seats.front().host.hex == "n1");
  CHECK(gang.seats.front().address == "at-n1");
  CHECK(gang.seats[4].local_rank == 0);
}

TEST_CASE("roles of different sizes are mixed where one host after the other would not take all") {
  Model model;
  add_host(model, "n1", 32, 64, 8);
  add_host(model, "n2", 32, 64, 8);
  // Eight workers first would leave n1 with room for one ps, and n2 has room for two.
  const Placed gang = placed(model, spec_of({role(Role::Master, 1, 1, 4, 1), role(Role::Worker, 7, 1, 4, 1),
                                             role(Role::Ps, 4, 1, 22, 0)}));
  CHECK(gang.notice.empty());
  std::map<std::string, uint64_t> used;
  std::map<std::string, std::set<int>> gpus;
  for (const Seat& seat : gang.seats) {
    used[seat.host.hex] += seat.memory_bytes;
    for (const int gpu : seat.gpus) CHECK(gpus[seat.host.hex].insert(gpu).second);
  }
  CHECK(used == std::map<std::string, uint64_t>{{"n1", 60 * kGiB}, {"n2", 60 * kGiB}});
  take(model, gang);
  CHECK(waits(model, spec_of({role(Role::Master, 1, 1, 4, 1), role(Role::Ps, 4, 1, 22, 0)})) != "");
}

TEST_CASE("a host without an address shares no gang with others") {
  Model model;
  const auto without_address = [&](const std::string& name, double cpus, uint64_t gib) {
    Host& host = add_host(model, name, cpus, gib, 0);
    host.address = "";
    model.free.put(free_host(model, host));
  };
  without_address("n1", 32, 64);
  for (const char* name : {"n2", "n3"}) add_host(model, name, 16, 64, 0);
  const Never refused = never(model, spec_of({role(Role::Worker, 3, 1, 40, 0)}));
  CHECK(refused.reason == "needs several hosts, and n1 has no address that other hosts reach");
  CHECK(refused.hint == "set `address` below `host:` in its config.yml, or join it with --address");
  // The roomiest of all is passed over, and so is the tightest for what is left at the end.
  without_address("n0", 4, 41);
  CHECK(hosts_of(placed(model, spec_of({role(Role::Worker, 2, 1, 40, 0)}))) ==
        std::set<std::string>{"n2", "n3"});
  // What one host takes whole may go there.
  CHECK(hosts_of(placed(model, spec_of({role(Role::Worker, 2, 12, 30, 0)}))) ==
        std::set<std::string>{"n1"});
  CHECK(never(model, spec_of({role(Role::Worker, 4, 1, 40, 0)})).reason ==
        "needs several hosts, and n0 and 1 more have no address that other hosts reach");
  // What addresses don't help is told as ever.
  CHECK(never(model, spec_of({role(Role::Worker, 9, 1, 40, 0)})).reason.starts_with("needs 360 GiB"));
  CHECK(never(model, spec_of({role(Role::Train, 1, 1, 99, 0)})).reason.starts_with("needs 99 GiB"));
}

TEST_CASE("the same question gets the same answer") {
  Model model;
  for (const char* name : {"a", "b", "c", "d"}) add_host(model, name, 4, 8, 1);
  const Spec spec = spec_of({role(Role::Worker, 4, 1.5, 1, 1)});
  CHECK(placed(model, spec).seats == placed(model, spec).seats);
}

TEST_CASE("a gang of more cpus than there are shares idle ones, and says so") {
  Model model;
  add_host(model, "n1", 2, 32, 0);
  const Spec spec = spec_of({role(Role::Master, 1, 1, 1, 0), role(Role::Worker, 2, 1, 1, 0),
                             role(Role::Ps, 1, 1, 1, 0)});
  const Placed gang = placed(model, spec);
  CHECK(gang.notice == "4 replicas ask for 4 cpus and share the 2 of n1");
  take(model, placed(model, spec_of({role(Role::Train, 1, 1, 1, 0)})));
  CHECK(waits(model, spec).find("until the hosts are idle") != std::string::npos);
  // Never by memory.
  CHECK(never(model, spec_of({role(Role::Worker, 4, 1, 10, 0)})).reason.find("GiB") !=
        std::string::npos);
}

TEST_CASE("cpus that are shared are shared evenly") {
  Model model;
  add_host(model, "n1", 2, 32, 0);
  add_host(model, "n2", 2, 32, 0);
  const Placed gang = placed(model, spec_of({role(Role::Worker, 8, 1, 1, 0)}));
  std::map<std::string, int> count;
  for (const Seat& seat : gang.seats) ++count[seat.host.hex];
  CHECK(count["n1"] == 4);
  CHECK(count["n2"] == 4);
}

TEST_CASE("--host takes an ID, or as much of it as `hosts` shows") {
  Model model;
  for (const char* id : {"0123456789abcdef", "0123456fffffffff"}) add_host(model, id, 8, 64, 0).name = "twin";
  const Spec spec = spec_of({role(Role::Train, 1, 1, 1, 0)});
  for (const char* id : {"0123456fffffffff", "0123456f", "01234567"}) {
    CHECK(placed(model, spec, id).seats[0].host.hex.starts_with(id));
  }
  CHECK(never(model, spec, "0123456").hint == "known hosts: twin (01234567), twin (0123456f)");
}

TEST_CASE("--host takes names, pools, labels and GPUs, patterns of these, and which not") {
  Model model;
  Host& n1 = add_host(model, "gpu-1", 4, 8, 0);
  n1.labels = {"fast", "rack=3"};
  add_host(model, "gpu-2", 4, 8, 1).gpus.front().name = "NVIDIA H100 80GB HBM3";
  add_host(model, "cpu", 4, 8, 0).pool = "night";
  const auto wanted = [&](const std::string& text) {
    std::string names;
    for (const auto& [id, host] : model.hosts) names += is_wanted(host, text) ? host.name + " " : "";
    return names;
  };
  CHECK(wanted("") == "cpu gpu-1 gpu-2 ");
  CHECK(wanted("gpu-1") == "gpu-1 ");
  CHECK(wanted("gpu-1,cpu") == "cpu gpu-1 ");
  CHECK(wanted("gpu-*") == "gpu-1 gpu-2 ");
  CHECK(wanted("gpu-*,!gpu-2") == "gpu-1 ");
  CHECK(wanted("!gpu-*") == "cpu ");
  CHECK(wanted("!*H100*,!cpu") == "gpu-1 ");
  CHECK(wanted("fast") == "gpu-1 ");
  CHECK(wanted("rack=?") == "gpu-1 ");
  CHECK(wanted("night") == "cpu ");
  CHECK(wanted("*H100*") == "gpu-2 ");
  CHECK(wanted("gpu") == "");
  const Spec two = spec_of({role(Role::Worker, 2, 4, 6, 0)});
  CHECK(placed(model, two, "gpu-*").seats.size() == 2);
  CHECK(never(model, two, "gpu-1").reason.find("needs") != std::string::npos);
  CHECK(never(model, two, "gpu-7*").reason == "no host is one of 'gpu-7*'");
}

TEST_CASE("a small gang of unlike roles is placed wherever there is a way to do it") {
  Model model;
  add_host(model, "a", 4, 16, 2);
  add_host(model, "b", 5, 7, 1);
  // The workers on a would leave no room there for either of the servers, and b has none for both.
  CHECK(placed(model, spec_of({role(Role::Master, 1, 1.5, 3, 1), role(Role::Worker, 1, 1.5, 3, 1), role(Role::Ps, 2, 1.5, 4, 0)})).seats.size() == 4);
}

TEST_CASE("excluded hosts and --host narrow the choice") {
  Model model;
  add_host(model, "n1", 8, 64, 0);
  add_host(model, "n2", 8, 64, 0);
  const Spec spec = spec_of({role(Role::Train, 1, 1, 1, 0)});
  CHECK(hosts_of(placed(model, spec, "n2")) == std::set<std::string>{"n2"});
  const Placement other = place({1, 0}, spec, model.free, {"", {{"n1"}}, nullptr});
  CHECK(hosts_of(std::get<Placed>(other)) == std::set<std::string>{"n2"});
}

TEST_CASE("a replica of more cpus than --host has does not share them, whatever other hosts have") {
  Model model;
  add_host(model, "small", 2, 64, 0);
  add_host(model, "large", 8, 64, 0);
  CHECK(never(model, spec_of({role(Role::Train, 1, 4, 1, 0)}), "small").reason ==
        "needs 4 cpus on one host; the largest is small with 2");
  const Spec gang = spec_of({role(Role::Worker, 4, 2, 1, 0)});
  CHECK(placed(model, gang, "small").notice == "4 replicas ask for 8 cpus and share the 2 of small");
}

TEST_CASE("who asks for hard limits goes where they can be kept, and nowhere else") {
  Model model;
  add_host(model, "tight", 2, 4, 0).caps_memory = false;
  add_host(model, "large", 8, 16, 0);
  Spec spec = spec_of({role(Role::Train, 1, 2, 1, 0)});
  CHECK(hosts_of(placed(model, spec)) == std::set<std::string>{"tight"});
  spec.hard_cpus = true;
  CHECK(hosts_of(placed(model, spec)) == std::set<std::string>{"tight"});
  spec.hard_memory = true;
  CHECK(hosts_of(placed(model, spec)) == std::set<std::string>{"large"});
  const Spec most = spec_of({role(Role::Train, 1, 8, 1, 0)});
  take(model, placed(model, most));
  CHECK(waits(model, spec) ==
        "needs 2 cpus on one host; free: 0; only hosts that can keep its hard limits count");
  model.hosts[{"large"}].caps_memory = false;
  const Never refused = never(model, spec);
  CHECK(refused.reason ==
        "needs a host that can keep `limits: {cpus: hard, mem: hard}`, and none that is large enough can");
  CHECK(refused.hint == "`dtrain hosts` says why; --set train.limits=null does without");
  spec.hard_cpus = false;
  CHECK(never(model, spec).reason.starts_with("needs a host that can keep `limits: {mem: hard}`"));
  spec.roles[0].resources.cpus = 9;
  CHECK(never(model, spec).reason == "needs 9 cpus on one host; the largest is large with 8");
}

}  // namespace dtrain::daemon
