#include "daemon/placement.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <map>
#include <random>
#include <set>

#include "tests/sim/room_search.h"

namespace dtrain::daemon {

namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

Host& add_host(Model& model, const std::string& name, double cpus, uint64_t gib, int gpus) {
  Host& host = model.hosts[{name}];
  host.id.hex = name;
  host.name = name;
  host.address = "at-" + name;
  host.cpus = cpus;
  host.memory_bytes = gib * kGiB;
  for (int gpu = 0; gpu < gpus; ++gpu) host.gpus.push_back({gpu, "gpu", ""});
  host.connected = true;
  model.free.put(free_host(model, host));
  return host;
}

RoleSpec role(Role name, int count, double cpus, uint64_t gib, int gpus) {
  RoleSpec made;
  made.role = name;
  made.count = count;
  made.resources = {cpus, gib * kGiB, gpus};
  return made;
}

RoleSpec limited(RoleSpec made, int per_host) {
  made.per_host = per_host;
  return made;
}

Spec spec_of(std::vector<RoleSpec> roles) {
  Spec spec;
  spec.project = "test";
  spec.roles = std::move(roles);
  return spec;
}

Placed placed(const Model& model, const Spec& spec, const std::string& host = "") {
  const Placement placement = plan(model, spec, host);
  const auto* found = std::get_if<Placed>(&placement);
  REQUIRE(found != nullptr);
  return *found;
}

std::string waits(const Model& model, const Spec& spec, const std::string& host = "") {
  const Placement placement = plan(model, spec, host);
  const auto* found = std::get_if<Waits>(&placement);
  REQUIRE(found != nullptr);
  return found->reason;
}

Never never(const Model& model, const Spec& spec, const std::string& host = "") {
  const Placement placement = plan(model, spec, host);
  const auto* found = std::get_if<Never>(&placement);
  REQUIRE(found != nullptr);
  return *found;
}

void take(Model& model, const Placed& taken) {
  for (const Seat& seat : taken.seats) model.free.take(seat);
}

std::set<std::string> hosts_of(const Placed& gang) {
  std::set<std::string> hosts;
  for (const Seat& seat : gang.seats) hosts.insert(seat.host.hex);
  return hosts;
}

}  // namespace

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

TEST_CASE("where an address would let a gang start, the reason to wait and the notice say so") {
  Model model;
  for (const char* name : {"n1", "n2"}) add_host(model, name, 2, 64, 0);
  Host& host = model.hosts.at({"n1"});
  host.address = "";
  model.free.put(free_host(model, host));
  const Placed gang = placed(model, spec_of({role(Role::Worker, 2, 1.5, 1, 0)}));
  CHECK(hosts_of(gang).size() == 1);
  CHECK(gang.seats[0].address == "127.0.0.1");
  CHECK(gang.notice ==
        "2 replicas ask for 3 cpus and share the 2 of n1; it can't be spread, since n1 has no address "
        "that other hosts reach: set `address` below `host:` in its config.yml, or join it with "
        "--address");
  const Spec one = spec_of({role(Role::Train, 1, 0.5, 1, 0)});
  for (const char* name : {"n1", "n2"}) take(model, placed(model, one, name));
  CHECK(waits(model, spec_of({role(Role::Worker, 2, 1, 1, 0)})).starts_with(
      "needs 2 cpus; free: 1.5+1.5; it can't be spread, since n1 has no address"));
  CHECK(waits(model, spec_of({role(Role::Worker, 2, 1.5, 1, 0)})).find("; it can't be spread") !=
        std::string::npos);
  CHECK(waits(model, spec_of({role(Role::Train, 1, 2, 1, 0)})).find("spread") == std::string::npos);
}

TEST_CASE("the same question gets the same answer") {
  Model model;
  for (const char* name : {"a", "b", "c", "d"}) add_host(model, name, 4, 8, 1);
  const Spec spec = spec_of({role(Role::Worker, 4, 1.5, 1, 1)});
  CHECK(placed(model, spec).seats == placed(model, spec).seats);
}

TEST_CASE("all or none, with the reason") {
  Model model;
  add_host(model, "n1", 16, 64, 4);
  add_host(model, "n2", 16, 64, 4);
  take(model, placed(model, spec_of({role(Role::Train, 1, 1, 1, 1)}), "n1"));
  CHECK(waits(model, spec_of({role(Role::Worker, 2, 1, 1, 4)})) ==
        "needs 4 GPUs on each of 2 hosts; free: 4+3");
  CHECK(waits(model, spec_of({role(Role::Worker, 8, 1, 1, 1)})) ==
        "needs 4 GPUs on each of 2 hosts; free: 4+3");
}

TEST_CASE("memory is a guarantee") {
  Model model;
  add_host(model, "n1", 16, 32, 0);
  take(model, placed(model, spec_of({role(Role::Train, 1, 1, 20, 0)})));
  CHECK(waits(model, spec_of({role(Role::Train, 1, 1, 16, 0)})) ==
        "needs 16 GiB on one host; most is free on n1: 12 GiB");
  const Never refused = never(model, spec_of({role(Role::Train, 1, 1, 64, 0)}));
  CHECK(refused.reason == "needs 64 GiB on one host; the largest is n1 with 32 GiB");
  CHECK(refused.hint.find("mem=1GiB") != std::string::npos);
  // Each would fit; a number that they may ask for already would be no advice.
  CHECK(never(model, spec_of({role(Role::Worker, 100, 0.1, 1, 0)})).hint ==
        "ask for fewer replicas, for less `mem` each, or add a host");
  CHECK(never(model, spec_of({role(Role::Train, 1, 1, 30 * 1024, 0)})).reason ==
        "needs 30720 GiB on one host; the largest is n1 with 32 GiB");
}

TEST_CASE("where all memory is promised, it is memory that is short") {
  Model model;
  add_host(model, "n1", 16, 32, 0);
  take(model, placed(model, spec_of({role(Role::Train, 1, 1, 32, 0)})));
  CHECK(waits(model, spec_of({role(Role::Train, 1, 1, 16, 0)})) ==
        "needs 16 GiB on one host; most is free on n1: 0 GiB");
  CHECK(waits(model, spec_of({role(Role::Worker, 3, 1, 4, 0)})) ==
        "needs 4 GiB on one host; most is free on n1: 0 GiB");
  // Its runner came back with less.
  model.hosts[{"n1"}].memory_bytes = 24 * kGiB;
  FreeHost free = *model.free.find({"n1"});
  free.memory_bytes -= static_cast<int64_t>(8 * kGiB);
  model.free.put(free);
  CHECK(waits(model, spec_of({role(Role::Train, 1, 1, 16, 0)})) ==
        "needs 16 GiB on one host; most is free on n1: 0 GiB");
}

TEST_CASE("beside a gang that shares the cpus, it is cpus that are short") {
  Model model;
  add_host(model, "n1", 2, 32, 0);
  take(model, placed(model, spec_of({role(Role::Master, 1, 1, 1, 0), role(Role::Worker, 3, 1, 1, 0)})));
  CHECK(waits(model, spec_of({role(Role::Train, 1, 1, 1, 0)})) == "needs 1 cpu on one host; free: 0");
}

TEST_CASE("what is short for a gang over several hosts is what is short") {
  Model model;
  add_host(model, "n1", 8, 64, 2);
  add_host(model, "n2", 8, 64, 2);
  take(model, placed(model, spec_of({role(Role::Train, 1, 7, 1, 0)})));
  CHECK(waits(model, spec_of({role(Role::Worker, 4, 2, 1, 1)})) == "needs 8 cpus; free: 8+1");
  take(model, placed(model, spec_of({role(Role::Train, 1, 1, 60, 0)})));
  CHECK(waits(model, spec_of({role(Role::Worker, 4, 1, 30, 1)})) ==
        "needs 120 GiB; most is free on n2: 64 GiB");
  CHECK(waits(model, spec_of({role(Role::Worker, 4, 1, 1, 0), role(Role::Ps, 12, 1, 1, 0)})) ==
        "needs 16 cpus; free: 8+0");
}

TEST_CASE("what no host can give is refused by name") {
  Model model;
  add_host(model, "n1", 4, 32, 2);
  CHECK(never(model, spec_of({role(Role::Train, 1, 1, 1, 4)})).reason ==
        "needs 4 GPUs; the largest host is n1 with 2 GPUs, all hosts: 2");
  CHECK(never(model, spec_of({role(Role::Train, 1, 1, 1, 4)})).hint ==
        "ask for fewer `gpus`, e.g. --set train.resources.gpus=0, or add a host");
  // Where roles may have resources of their own it would not help.
  CHECK(never(model, spec_of({role(Role::Master, 1, 1, 1, 0), role(Role::Worker, 1, 1, 1, 4)})).hint ==
        "ask for fewer `gpus`, or add a host");
  CHECK(never(model, spec_of({role(Role::Master, 1, 1, 1, 0), role(Role::Worker, 1, 1, 99, 0)})).hint ==
        "lower `mem`, or add a host");
  CHECK(never(model, spec_of({role(Role::Train, 1, 8, 1, 0)})).reason ==
        "needs 8 cpus on one host; the largest is n1 with 4");
  CHECK(never(model, spec_of({role(Role::Train, 1, 1, 1, 0)}), "n7").reason ==
        "no host is named 'n7'");
}

TEST_CASE("without hosts everything waits") {
  Model model;
  CHECK(waits(model, spec_of({role(Role::Train, 1, 1, 1, 0)})) == "no host is connected yet");
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

TEST_CASE("who waits for GPUs that others use is told who they are") {
  Model model;
  Host& host = add_host(model, "n1", 16, 64, 3);
  host.gpus[1].busy = "user, pid 4242, 31.0 GB";
  model.free.put(free_host(model, host));
  CHECK(waits(model, spec_of({role(Role::Train, 1, 1, 1, 3)})) ==
        "waits for GPUs that others use: GPU 1 of n1 busy: user, pid 4242, 31.0 GB");
  host.gpus[0].busy = host.gpus[2].busy = "another dtrain";
  model.free.put(free_host(model, host));
  CHECK(waits(model, spec_of({role(Role::Train, 1, 1, 1, 1)})) ==
        "waits for GPUs that others use: GPU 0 of n1 busy: another dtrain; "
        "GPU 1 of n1 busy: user, pid 4242, 31.0 GB and 1 more");
}

TEST_CASE("busy GPUs, quarantined ports and hosts that are gone are not used") {
  Model model;
  Host& host = add_host(model, "n1", 8, 64, 3);
  host.gpus[1].busy = "user, pid 4242, 31 GB";
  host.quarantined_ports = {{20'000, 1}, {20'001, 1}};
  model.free.put(free_host(model, host));
  const Placed gang = placed(model, spec_of({role(Role::Train, 1, 1, 1, 2)}));
  CHECK(gang.seats[0].gpus == std::vector<int>{0, 2});
  CHECK(gang.seats[0].port == 20'002);
  host.connected = false;
  model.free.put(free_host(model, host));
  CHECK(waits(model, spec_of({role(Role::Train, 1, 1, 1, 0)})) ==
        "waits for n1, which is not connected");
}

TEST_CASE("ports that strangers have may come back") {
  Model model;
  Host& host = add_host(model, "n1", 8, 64, 1);
  host.port_last = host.port_first + 1;
  host.quarantined_ports = {{host.port_first, 1}, {host.port_last, 1}};
  model.free.put(free_host(model, host));
  CHECK(waits(model, spec_of({role(Role::Train, 1, 1, 1, 1)})) ==
        "waits for ports that other programs use, which are tried again after a while");
  CHECK(never(model, spec_of({role(Role::Worker, 3, 1, 1, 0)})).reason ==
        "needs 3 ports, more than the hosts' port ranges have");
}

TEST_CASE("of the hosts that are away, who waits is told of one that would do") {
  Model model;
  for (const char* name : {"n1", "n2"}) add_host(model, name, 8, 64, name[1] == '2' ? 4 : 0).connected = false;
  add_host(model, "n3", 8, 64, 1);
  for (const auto& [id, host] : model.hosts) model.free.put(free_host(model, host));
  CHECK(waits(model, spec_of({role(Role::Train, 1, 1, 1, 4)})) ==
        "waits for n2, which is not connected");
  model.hosts[{"n2"}].connected = true;
  model.hosts[{"n2"}].strays = {{{{1, 0}, Role::Train, 0}, 1}};
  model.free.put(free_host(model, model.hosts[{"n2"}]));
  CHECK(waits(model, spec_of({role(Role::Train, 1, 1, 1, 4)})) ==
        "waits for n2, which still ends replicas of an earlier attempt");
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

TEST_CASE("a host with less than nothing left takes nothing from what others have") {
  Model model;
  add_host(model, "a", 3, 4, 0);
  add_host(model, "b", 3, 4, 0);
  const Spec gang = spec_of({role(Role::Master, 1, 1, 2, 0), role(Role::Worker, 1, 1, 2, 0), role(Role::Ps, 2, 2, 1, 0)});
  CHECK(placed(model, gang).seats.size() == 4);
  Host& shared = add_host(model, "c", 2, 4, 0);
  FreeHost free = free_host(model, shared);
  free.cpus = -6;
  model.free.put(free);
  CHECK(placed(model, gang).seats.size() == 4);
}

TEST_CASE("a small gang of unlike roles is placed wherever there is a way to do it") {
  Model model;
  add_host(model, "a", 4, 16, 2);
  add_host(model, "b", 5, 7, 1);
  // The workers on a would leave no room there for either of the servers, and b has none for both.
  CHECK(placed(model, spec_of({role(Role::Master, 1, 1.5, 3, 1), role(Role::Worker, 1, 1.5, 3, 1), role(Role::Ps, 2, 1.5, 4, 0)})).seats.size() == 4);
}

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

TEST_CASE("excluded hosts and --host narrow the choice") {
  Model model;
  add_host(model, "n1", 8, 64, 0);
  add_host(model, "n2", 8, 64, 0);
  const Spec spec = spec_of({role(Role::Train, 1, 1, 1, 0)});
  CHECK(hosts_of(placed(model, spec, "n2")) == std::set<std::string>{"n2"});
  const Placement other = place({1, 0}, spec, model.free, {"", {{"n1"}}, nullptr});
  CHECK(hosts_of(std::get<Placed>(other)) == std::set<std::string>{"n2"});
}

TEST_CASE("of --host it is told what that host has, not what others have") {
  Model model;
  add_host(model, "small", 2, 1, 1);
  add_host(model, "large", 8, 64, 4);
  const Never refused = never(model, spec_of({role(Role::Train, 1, 1, 2, 0)}), "small");
  CHECK(refused.reason == "needs 2 GiB on one host; the largest is small with 1 GiB");
  CHECK(refused.hint == "lower `mem`, e.g. --set train.resources.mem=1GiB, or choose another host");
  CHECK(never(model, spec_of({role(Role::Train, 1, 1, 1, 2)}), "small").reason ==
        "needs 2 GPUs; the largest host is small with 1 GPU, all hosts: 1");
  take(model, placed(model, spec_of({role(Role::Train, 1, 2, 1, 1)}), "small"));
  CHECK(waits(model, spec_of({role(Role::Train, 1, 1, 1, 1)}), "small") ==
        "needs 1 GPU on one host; free: 0");
  CHECK(waits(model, spec_of({role(Role::Train, 1, 1, 1, 0)}), "small") ==
        "needs 1 GiB on one host; most is free on small: 0 GiB");
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

TEST_CASE("who may go to one host only is told of what that has") {
  Model model;
  add_host(model, "n1", 8, 64, 2);
  add_host(model, "n2", 32, 256, 8);
  take(model, placed(model, spec_of({role(Role::Train, 1, 6, 60, 1)}), "n1"));
  const auto waits_for_n1 = [&](double cpus, uint64_t gib, int gpus) {
    const Placement placement = plan(model, spec_of({role(Role::Train, 1, cpus, gib, gpus)}), "n1");
    return std::get<Waits>(placement).reason;
  };
  CHECK(waits_for_n1(1, 1, 2) == "needs 2 GPUs on one host; free: 1");
  CHECK(waits_for_n1(1, 8, 0) == "needs 8 GiB on one host; most is free on n1: 4 GiB");
  CHECK(waits_for_n1(4, 1, 0) == "needs 4 cpus on one host; free: 2");
  CHECK(never(model, spec_of({role(Role::Train, 1, 1, 1, 4)}), "n1").reason ==
        "needs 4 GPUs; the largest host is n1 with 2 GPUs, all hosts: 2");
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

TEST_CASE("a freed port is not given again soon, and the range can be used up") {
  Model model;
  Host& host = add_host(model, "n1", 64, 64, 0);
  host.port_last = host.port_first + 2;
  model.free.put(free_host(model, host));
  const Spec one = spec_of({role(Role::Train, 1, 1, 1, 0)});
  const Placed first = placed(model, one);
  take(model, first);
  model.free.give(first.seats[0]);
  CHECK(placed(model, one).seats[0].port == first.seats[0].port + 1);
  CHECK(never(model, spec_of({role(Role::Worker, 4, 1, 1, 0)})).reason.find("port ranges") !=
        std::string::npos);
}

TEST_CASE("ports of another range than the host's present one use up none of it") {
  Model model;
  Host& host = add_host(model, "n1", 64, 64, 0);
  const Spec one = spec_of({role(Role::Train, 1, 1, 1, 0)});
  const Placed before = placed(model, one);
  host.port_first = host.port_last = 30'000;
  host.quarantined_ports = {{20'007, 1}};
  model.free.put(free_host(model, host));
  take(model, before);   // it still runs there
  CHECK(placed(model, one).seats[0].port == 30'000);
  take(model, placed(model, one));
  CHECK(waits(model, one).find("port ranges are in use") != std::string::npos);
}

TEST_CASE("what is taken and given back is as it was") {
  Model model;
  add_host(model, "n1", 8, 64, 4);
  const Placed gang = placed(model, spec_of({role(Role::Worker, 3, 0.1, 1, 1)}));
  take(model, gang);
  CHECK(model.free.find({"n1"})->gpus == std::vector<int>{3});
  for (const Seat& seat : gang.seats) model.free.give(seat);
  const FreeHost* free = model.free.find({"n1"});
  CHECK(free->cpus == 8);
  CHECK(free->memory_bytes == static_cast<int64_t>(64 * kGiB));
  CHECK(free->gpus == std::vector<int>{0, 1, 2, 3});
  CHECK(free->ports_used.empty());
}

}  // namespace dtrain::daemon
