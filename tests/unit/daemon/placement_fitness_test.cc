#include "daemon/placement_fitness.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <memory>

#include "daemon/lifecycle_turn.h"
#include "daemon/placement.h"
#include "daemon/queue.h"
#include "daemon/wait_reason.h"

namespace dtrain::daemon {

namespace {

constexpr TimeMs kNow = 100'000;

HostId id_of(int n) {
  return {fmt::format("{:032x}", n)};
}

void add_host(Model& model, int n, bool connected = true, int gpus = 0) {
  Host host;
  host.id = id_of(n);
  host.name = fmt::format("n{}", n);
  host.cpus = 4;
  host.memory_bytes = uint64_t{8} << 30;
  host.connected = connected;
  for (int gpu = 0; gpu < gpus; ++gpu) host.gpus.push_back({gpu, "gpu", ""});
  const Host& kept = model.hosts[host.id] = host;
  model.free.put(free_host(model, kept));
}

Experiment& add_experiment(Model& model, int gpus = 0, const std::string& chosen = "") {
  auto submission = std::make_shared<Submission>();
  submission->number = 1;
  submission->host = chosen;
  RoleSpec role{Role::Train, 1, {}, {"x"}, OnFailure::Fail};
  role.resources.gpus = gpus;
  submission->spec.roles.push_back(role);
  Experiment experiment;
  experiment.id = {1, 0};
  experiment.submission = submission;
  return model.experiments[experiment.id] = experiment;
}

void mark_unfit(Experiment& experiment, int n, const std::string& lack) {
  if (!experiment.unfit_hosts) experiment.unfit_hosts = std::map<HostId, std::string>();
  (*experiment.unfit_hosts)[id_of(n)] = lack;
}

}  // namespace

TEST_CASE("what hosts lack is told of a few of them") {
  Model model;
  Experiment& experiment = add_experiment(model);
  CHECK(lacks_text(model, experiment).empty());
  for (int n = 1; n <= 6; ++n) {
    add_host(model, n);
    mark_unfit(experiment, n, "data d: /d is not there");
  }
  CHECK(lacks_text(model, experiment) == "data d: /d is not there on n1, n2, n3 and 3 more");
  mark_unfit(experiment, 6, "data d: /d can't be read");
  mark_unfit(experiment, 5, "python /p is not there");
  CHECK(lacks_text(model, experiment) ==
        "data d: /d can't be read on n6; data d: /d is not there on n1, n2, n3 and 1 more; "
        "python /p is not there on n5");
  mark_unfit(experiment, 4, "python /q is not there");
  CHECK(lacks_text(model, experiment).ends_with("python /p is not there on n5; and 1 more"));
}

TEST_CASE("no host is left when none of the others could ever take it") {
  Model model;
  add_host(model, 1);
  Experiment& experiment = add_experiment(model);
  CHECK_FALSE(has_no_host_left(model, experiment, kNow));
  mark_unfit(experiment, 1, "data d: /d is not there");
  CHECK(has_no_host_left(model, experiment, kNow));
  CHECK(no_host_left_text(model, experiment) ==
        "data d: /d is not there on n1; put it there by the same path, or name another one in "
        "dtrain.yml");

  SUBCASE("a host that is away could") {
    add_host(model, 2, false);
    CHECK_FALSE(has_no_host_left(model, experiment, kNow));
  }
  SUBCASE("a host that is known from its seats only could, while it has any") {
    model.hosts[id_of(2)].id = id_of(2);
    model.free.put(free_host(model, model.hosts.at(id_of(2))));
    Seat seat;
    seat.host = id_of(2);
    model.free.take(seat);
    CHECK_FALSE(has_no_host_left(model, experiment, kNow));
    model.free.give(seat);
    CHECK(has_no_host_left(model, experiment, kNow));
  }
  SUBCASE("after a restart of the daemon any host could, for a while") {
    model.hosts_awaited_until_ms = kNow + 1;
    CHECK_FALSE(has_no_host_left(model, experiment, kNow));
    CHECK(has_no_host_left(model, experiment, kNow + 1));
  }
  SUBCASE("one without its GPUs could not") {
    model.experiments.clear();
    Experiment& large = add_experiment(model, 2);
    add_host(model, 1, true, 2);
    add_host(model, 2, true, 1);
    mark_unfit(large, 1, "data d: /d is not there");
    CHECK(has_no_host_left(model, large, kNow));
    CHECK(no_host_left_text(model, large).find("on n1, and no other host could take it; put") !=
          std::string::npos);
  }
  SUBCASE("nor could one that was not chosen") {
    model.experiments.clear();
    Experiment& chosen = add_experiment(model, 0, "n1");
    add_host(model, 2);
    mark_unfit(chosen, 1, "data d: /d is not there");
    CHECK(has_no_host_left(model, chosen, kNow));
  }
}

TEST_CASE("who waits for a host that is away says so, and what the others lack") {
  Model model;
  add_host(model, 1);
  add_host(model, 2, false);
  Experiment& experiment = add_experiment(model);
  mark_unfit(experiment, 1, "data d: /d is not there");
  index(model, experiment);
  CHECK(wait_reason(model, {1, 0}, kNow) ==
        "data d: /d is not there on n1; waits for n2, which is not connected");
}

TEST_CASE("an unfit host stays excluded where hosts with failed starts are tried again") {
  Model model;
  add_host(model, 1);
  add_host(model, 2);
  Experiment& experiment = add_experiment(model);
  mark_unfit(experiment, 1, "data d: /d is not there");
  experiment.excluded_hosts = {id_of(2)};
  CHECK(choice_of(model, experiment).excluded == std::vector<HostId>{id_of(1)});
}

}  // namespace dtrain::daemon
