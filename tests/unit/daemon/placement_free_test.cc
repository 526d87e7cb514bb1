#include "daemon/placement_free.h"

#include <doctest/doctest.h>

#include "tests/unit/daemon/placement_scene.h"

namespace dtrain::daemon {

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
