#include "daemon/placement_explain.h"

#include <doctest/doctest.h>

#include "tests/unit/daemon/placement_scene.h"

namespace dtrain::daemon {

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

}  // namespace dtrain::daemon
