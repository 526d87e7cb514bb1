#include "daemon/placement_reach.h"

#include <doctest/doctest.h>

#include "schema/tensorboard.h"

namespace dtrain::daemon {
namespace {

constexpr uint64_t kGibibyte = uint64_t{1} << 30;

// Of the smallest host a tight fit would be: what is nobody's machine and nobody reaches comes first, were it not for this.
struct Hosts {
  Model model;

  Host& add(const std::string& name, double cpus, const std::string& address, bool same_machine = false) {
    Host& host = model.hosts[{name}];
    host.id.hex = host.name = name;
    host.address = address;
    host.cpus = cpus;
    host.memory_bytes = 8 * kGibibyte;
    host.same_machine = same_machine;
    host.connected = true;
    put(host);
    return host;
  }
  void put(const Host& host) { model.free.put(free_host(model, host)); }

  // The name of the host that it would go to, else why it waits.
  std::string goes_to(const Spec& spec, const std::string& host = "") const {
    const Placement placement = plan(model, spec, host);
    if (const auto* placed = std::get_if<Placed>(&placement)) return placed->seats.front().host_name;
    const auto* waits = std::get_if<Waits>(&placement);
    return waits == nullptr ? "never" : waits->reason;
  }
  void fill(const std::string& name) {
    Seat all;
    all.host = {name};
    all.cpus = model.hosts.at({name}).cpus;
    model.free.take(all);
  }
};

// As `dtrain tensorboard` begins it.
Spec board() {
  Spec spec;
  spec.project = "test";
  RoleSpec role = tensorboard_role();
  role.role = Role::Train;
  spec.roles = {role};
  spec.env = {{kTensorboardLogdir, "/outputs/4"}};
  return spec;
}

// As the members of a set share one.
Spec shared_board() {
  Spec spec;
  spec.project = "test";
  spec.roles = {tensorboard_role()};
  return spec;
}

TEST_CASE("a TensorBoard goes to the daemon's machine, else to where others reach it") {
  Hosts hosts;
  hosts.add("lonely", 1, "");
  hosts.add("far", 2, "10.0.0.2");
  Host& own = hosts.add("own", 4, "", true);
  for (const Spec& spec : {board(), shared_board()}) CHECK(hosts.goes_to(spec) == "own");
  Spec other = board();
  other.env.clear();
  CHECK(hosts.goes_to(other) == "lonely");   // a tight fit, as ever
  CHECK(hosts.goes_to(board(), "lonely") == "lonely");
  hosts.fill("own");
  for (const Spec& spec : {board(), shared_board()}) CHECK(hosts.goes_to(spec) == "far");
  // Nobody would reach it there: it waits, and what is free there is no reason.
  hosts.fill("far");
  for (const Spec& spec : {board(), shared_board()}) CHECK(hosts.goes_to(spec) == "needs 0.1 cpus on one host; free: 0+0");
  // Unless there is no other.
  for (Host* host : {&own, &hosts.model.hosts.at({"far"})}) {
    host->connected = false;
    hosts.put(*host);
  }
  CHECK(hosts.goes_to(board()) == "lonely");
}

TEST_CASE("a TensorBoard goes elsewhere where the daemon's machine may not take it") {
  Hosts hosts;
  hosts.add("lonely", 1, "");
  hosts.add("own", 4, "", true);
  const Choice unfit{"", {{"own"}}, nullptr};
  const auto seats = fit({1, 0}, board(), hosts.model.free, unfit);
  REQUIRE(seats);
  CHECK(seats->front().host_name == "lonely");
  Hosts beside_small;
  beside_small.add("lonely", 1, "");
  beside_small.add("own", 0.05, "", true);   // which could never take it
  CHECK(beside_small.goes_to(board()) == "lonely");
}

}  // namespace
}  // namespace dtrain::daemon
