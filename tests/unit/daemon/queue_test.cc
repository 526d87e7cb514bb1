#include "daemon/queue.h"

#include <doctest/doctest.h>

#include "daemon/claims.h"
#include "daemon/lifecycle.h"
#include "daemon/wait_reason.h"

namespace dtrain::daemon {

namespace {

const Policy kPolicy;

// A model with hosts, asked through step() as the daemon does.
struct Cluster {
  Model model;
  uint32_t number = 0;

  void host(const std::string& name, double cpus, int gpus, bool caps = true) {
    Host host;
    host.id.hex = host.name = host.address = name;
    host.cpus = cpus;
    host.memory_bytes = uint64_t{64} << 30;
    host.same_machine = true;
    host.caps_cpus = host.caps_memory = caps;
    for (int gpu = 0; gpu < gpus; ++gpu) host.gpus.push_back({gpu, "gpu", ""});
    step(model, HostConnected{host, {}}, kPolicy, 1);
  }

  // One replica; returns its experiment.
  ExperimentId submit(int gpus, int priority = 50, int64_t max_duration_ms = 0, int replicas = 1,
                      bool hard = false, int per_host = 0) {
    auto submission = std::make_shared<Submission>();
    submission->number = ++number;
    RoleSpec role;
    role.role = replicas == 1 ? Role::Train : Role::Worker;
    role.count = replicas;
    role.resources.gpus = gpus;
    role.per_host = per_host;
    submission->spec.roles = {role};
    submission->spec.hard_cpus = submission->spec.hard_memory = hard;
    submission->spec.priority = priority;
    submission->spec.max_duration_ms = max_duration_ms;
    step(model, Submitted{submission}, kPolicy, 2);
    return {number, 0};
  }

  void pass() { place_pending(model, kPolicy, 3); }

  void start(const ExperimentId& id, TimeMs now = 3) {
    const Experiment& experiment = model.experiments.at(id);
    step(model, LaunchPrepared{experiment.replicas[0].seat.host, {id, experiment.attempt}}, kPolicy, now);
  }

  bool is_placed(const ExperimentId& id) const {
    return model.experiments.at(id).phase != Phase::None;
  }
  std::string reason(const ExperimentId& id) const { return wait_reason(model, id, 3); }
};

}  // namespace

TEST_CASE("who may not lie beside its like is in another lane than who may") {
  Cluster cluster;
  cluster.host("n1", 8, 0);
  const ExperimentId apart = cluster.submit(0, 50, 0, 2, false, 1), together = cluster.submit(0, 50, 0, 2);
  const auto lane = [&](const ExperimentId& id) { return lane_of(cluster.model, cluster.model.experiments.at(id)); };
  CHECK(lane(apart) != lane(together));
  cluster.pass();
  CHECK(cluster.is_placed(together));
  CHECK(!cluster.is_placed(apart));
  CHECK(cluster.reason(apart).find("needs 2 hosts for its workers, one each; there is one") == 0);
  cluster.host("n2", 8, 0);
  cluster.pass();
  CHECK(cluster.is_placed(apart));
}

TEST_CASE("lanes tell apart what ends in time, and what only shows something") {
  Cluster cluster;
  const ExperimentId lasting = cluster.submit(0), ending = cluster.submit(0, 50, 60'000), board = cluster.submit(0);
  const auto submission_of = [&](const ExperimentId& id) { return std::make_shared<Submission>(*cluster.model.experiments.at(id).submission); };
  const auto lane = [&](const ExperimentId& id, const std::shared_ptr<Submission>& as) {
    Experiment experiment = cluster.model.experiments.at(id);
    experiment.submission = as;
    return lane_of(cluster.model, experiment);
  };
  auto longer_grace = submission_of(lasting);
  longer_grace->spec.stop_grace_ms += 60'000;   // the same sum
  CHECK(lane(lasting, longer_grace) != lane(ending, submission_of(ending)));
  auto only_shown = submission_of(board);
  only_shown->spec.roles[0].role = Role::Tensorboard;
  CHECK(lane(board, only_shown) != lane(lasting, submission_of(lasting)));
}

TEST_CASE("higher priority first, then the order of submission") {
  Cluster cluster;
  const auto low = cluster.submit(1, 10);
  const auto first = cluster.submit(1);
  const auto second = cluster.submit(1);
  const auto high = cluster.submit(1, 90);
  cluster.host("n1", 8, 2);
  cluster.pass();
  CHECK(cluster.is_placed(high));
  CHECK(cluster.is_placed(first));
  CHECK_FALSE(cluster.is_placed(second));
  CHECK_FALSE(cluster.is_placed(low));
  CHECK(cluster.reason(second) == "needs 1 GPU on one host; free: 0");
  CHECK(cluster.reason(low) == "needs 1 GPU on one host; free: 0; 1 experiment ahead of it");
  CHECK(cluster.reason(high) == "");
}

TEST_CASE("who waits is told of all that are ahead of it, whatever they ask for") {
  Cluster cluster;
  cluster.host("n1", 16, 2);
  cluster.submit(2);
  cluster.pass();
  const auto low = cluster.submit(1, 10);
  const auto large = cluster.submit(2, 90);
  const auto between = cluster.submit(1);
  cluster.pass();
  CHECK(cluster.reason(large) == "needs 2 GPUs on one host; free: 0");
  CHECK(cluster.reason(between) == "needs 1 GPU on one host; free: 0; 1 experiment ahead of it");
  CHECK(cluster.reason(low) == "needs 1 GPU on one host; free: 0; 2 experiments ahead of it");
}

TEST_CASE("the first that waits keeps its hosts free; others go beside it") {
  Cluster cluster;
  cluster.host("n1", 16, 4);
  const auto runs = cluster.submit(2);
  cluster.pass();
  const auto head = cluster.submit(4);
  const auto takes = cluster.submit(1);
  const auto beside = cluster.submit(0);
  cluster.pass();
  CHECK(cluster.is_placed(runs));
  CHECK_FALSE(cluster.is_placed(head));
  CHECK_FALSE(cluster.is_placed(takes));
  CHECK(cluster.is_placed(beside));
  CHECK(cluster.reason(takes) == "2 is ahead of it and keeps its hosts free");
}

TEST_CASE("only on the hosts the first one waits for") {
  Cluster cluster;
  cluster.host("n1", 16, 4);
  cluster.host("n2", 16, 2);
  cluster.submit(1);
  cluster.pass();   // the tightest: n2
  cluster.submit(3);
  cluster.pass();   // n1
  const auto head = cluster.submit(4);
  const auto elsewhere = cluster.submit(1);
  cluster.pass();
  CHECK_FALSE(cluster.is_placed(head));
  CHECK(cluster.is_placed(elsewhere));
  CHECK(cluster.model.experiments.at(elsewhere).replicas[0].seat.host.hex == "n2");
}

TEST_CASE("who ends in time may go ahead") {
  Cluster cluster;
  cluster.host("n1", 16, 4);
  const auto runs = cluster.submit(2, 50, 600'000);
  cluster.pass();
  cluster.start(runs);
  const auto head = cluster.submit(4);
  const auto too_long = cluster.submit(1, 50, 700'000);
  const auto short_one = cluster.submit(1, 50, 60'000);
  cluster.pass();
  CHECK_FALSE(cluster.is_placed(head));
  CHECK_FALSE(cluster.is_placed(too_long));
  CHECK(cluster.is_placed(short_one));
}

TEST_CASE("who would end in time is looked at again once the end of what runs is known") {
  Cluster cluster;
  cluster.host("n1", 16, 4);
  const auto runs = cluster.submit(2, 50, 600'000);
  cluster.pass();
  cluster.submit(4);
  const auto short_one = cluster.submit(1, 50, 60'000);
  cluster.pass();
  CHECK_FALSE(cluster.is_placed(short_one));
  cluster.start(runs);
  if (cluster.model.place_wanted) cluster.pass();
  CHECK(cluster.is_placed(short_one));
}

TEST_CASE("who waits for a host that keeps hard limits holds up nobody who needs none") {
  Cluster cluster;
  const auto capped = cluster.submit(1, 50, 0, 1, true);
  const auto plain = cluster.submit(1);
  cluster.host("n1", 8, 1, false);
  cluster.pass();
  CHECK_FALSE(cluster.is_placed(capped));
  CHECK(cluster.is_placed(plain));
  CHECK(cluster.reason(capped).starts_with("needs a host that can keep `limits: "));
  cluster.host("n2", 8, 1);
  cluster.pass();
  CHECK(cluster.is_placed(capped));
}

TEST_CASE("what no host can take holds nobody up") {
  Cluster cluster;
  cluster.host("n1", 16, 4);
  const auto impossible = cluster.submit(8);
  const auto small = cluster.submit(4);
  cluster.pass();
  CHECK_FALSE(cluster.is_placed(impossible));
  CHECK(cluster.is_placed(small));
}

TEST_CASE("who is held back by a reservation is told whose it is") {
  Cluster cluster;
  cluster.host("n1", 16, 4);
  cluster.submit(2);
  cluster.pass();
  const auto impossible = cluster.submit(8), head = cluster.submit(4), small = cluster.submit(1);
  cluster.pass();
  CHECK_FALSE(cluster.is_placed(impossible));
  CHECK_FALSE(cluster.is_placed(head));
  CHECK_FALSE(cluster.is_placed(small));
  CHECK(cluster.reason(small) == "3 is ahead of it and keeps its hosts free");
}

TEST_CASE("the reservation: concrete hosts, and when it starts") {
  Cluster cluster;
  cluster.host("n1", 16, 4);
  const auto runs = cluster.submit(3, 50, 100'000);
  cluster.pass();
  cluster.start(runs, 1'000);
  const auto head = cluster.submit(2);
  const auto reservation = reserve(cluster.model, cluster.model.experiments.at(head), 2'000);
  REQUIRE(reservation.has_value());
  REQUIRE(reservation->others_may_use.contains({"n1"}));
  CHECK(reservation->others_may_use.at({"n1"}).gpus == -1);
  CHECK(reservation->starts_ms == 1'000 + 100'000 + 10'000);
}

TEST_CASE("the reservation is where the room is known to come, not where what runs may never end") {
  Cluster cluster;
  cluster.host("n1", 16, 4);
  cluster.host("n2", 16, 4);
  const auto endless = cluster.submit(1), ends = cluster.submit(4, 50, 100'000);
  cluster.pass();
  const HostId of_endless = cluster.model.experiments.at(endless).replicas[0].seat.host;
  const HostId of_ends = cluster.model.experiments.at(ends).replicas[0].seat.host;
  REQUIRE(!(of_endless == of_ends));
  cluster.start(endless, 1'000);
  cluster.start(ends, 1'000);
  const auto head = cluster.submit(4);
  const auto reservation = reserve(cluster.model, cluster.model.experiments.at(head), 2'000);
  REQUIRE(reservation.has_value());
  CHECK(reservation->others_may_use.contains(of_ends));
  CHECK(reservation->starts_ms == 1'000 + 100'000 + 10'000);
  // Meanwhile others may have what it does not need.
  const auto small = cluster.submit(1);
  cluster.pass();
  CHECK(cluster.is_placed(small));
  CHECK(cluster.model.experiments.at(small).replicas[0].seat.host == of_endless);
}

TEST_CASE("what runs beside is not waited for where the rest is enough") {
  Cluster cluster;
  cluster.host("n1", 16, 4);
  cluster.host("n2", 16, 4);
  const auto endless = cluster.submit(2), ends = cluster.submit(2, 50, 100'000), beside = cluster.submit(1);
  cluster.pass();
  for (const auto& id : {endless, ends, beside}) cluster.start(id, 1'000);
  const HostId full = cluster.model.experiments.at(endless).replicas[0].seat.host;
  REQUIRE(cluster.model.experiments.at(ends).replicas[0].seat.host == full);
  const auto endless_too = cluster.submit(2);
  cluster.pass();
  cluster.start(endless_too, 1'000);
  const auto head = cluster.submit(2);
  const auto reservation = reserve(cluster.model, cluster.model.experiments.at(head), 2'000);
  REQUIRE(reservation.has_value());
  CHECK(reservation->others_may_use.contains(full));
  CHECK(reservation->starts_ms == 1'000 + 100'000 + 10'000);
}

TEST_CASE("who must build first does not go ahead by its max-duration, for nobody knows how long that takes") {
  for (const bool builds : {false, true}) {
    CAPTURE(builds);
    Cluster cluster;
    cluster.host("n1", 16, 4);
    const auto runs = cluster.submit(3, 50, 100'000);
    cluster.pass();
    cluster.start(runs, 3);
    const auto head = cluster.submit(4);
    auto submission = std::make_shared<Submission>(*cluster.model.experiments.at(head).submission);
    submission->number = ++cluster.number;
    submission->spec.max_duration_ms = 20'000;
    submission->spec.roles[0].resources.gpus = 1;
    if (builds) submission->spec.install = {"pip install x"};
    REQUIRE(submission->spec.has_build() == builds);
    step(cluster.model, Submitted{submission}, kPolicy, 2);
    cluster.pass();
    CHECK(cluster.is_placed({cluster.number, 0}) != builds);
    CHECK(!cluster.is_placed(head));
  }
}

TEST_CASE("a reason for whoever is held back") {
  Cluster cluster;
  auto submission = std::make_shared<Submission>();
  submission->number = 7;
  RoleSpec role;
  role.role = Role::Train;
  submission->spec.roles = {role};
  submission->spec.parameters = {{"p", {"1", "2", "3"}}};
  submission->spec.concurrency = 1;
  step(cluster.model, Submitted{submission}, kPolicy, 2);
  CHECK(cluster.reason({7, 2}) == "held by concurrency: 1");
  CHECK(cluster.reason({7, 1}) == "no host is connected yet");
  CHECK(cluster.reason({8, 0}) == "");
  CHECK(state_of(cluster.model.experiments.at({7, 2})) == State::Created);
  CHECK(state_of(cluster.model.experiments.at({7, 1})) == State::Pending);
}

TEST_CASE("a reason in the moment between the end of a backoff and the tick that ends it") {
  Cluster cluster;
  cluster.host("n1", 8, 0);
  auto submission = std::make_shared<Submission>();
  submission->number = 1;
  RoleSpec role;
  role.role = Role::Train;
  role.on_failure = OnFailure::Restart;
  submission->spec.roles = {role};
  submission->spec.restart = {1, 100};
  step(cluster.model, Submitted{submission}, kPolicy, 2);
  cluster.pass();
  cluster.start({1, 0});
  const Replica replica = cluster.model.experiments.at({1, 0}).replicas[0];
  step(cluster.model, ReplicaStarted{replica.id, 1, 42, 1, replica.seat.host}, kPolicy, 4);
  Exit exit;
  exit.code = 9;
  step(cluster.model, ReplicaExited{replica.id, 1, exit, replica.seat.host}, kPolicy, 5);
  step(cluster.model, ReplicaReleased{replica.id, 1, "", replica.seat.host}, kPolicy, 6);
  REQUIRE(cluster.model.experiments.at({1, 0}).not_before_ms == 105);
  const std::string why = "restart 1 of 1 after 1.train: exit code 9";
  CHECK(wait_reason(cluster.model, {1, 0}, 7) == why + "; again in 1 s");
  CHECK(wait_reason(cluster.model, {1, 0}, 106) == why + "; again now");
  step(cluster.model, Tick{}, kPolicy, 106);
  CHECK(wait_reason(cluster.model, {1, 0}, 106) == "is placed next");
}

TEST_CASE("a host that comes back under another name is there once") {
  Cluster cluster;
  for (const char* name : {"a", "b", "c"}) cluster.host(name, 8, 1);
  Host renamed = cluster.model.hosts.at({"a"});
  renamed.name = "z";
  step(cluster.model, HostConnected{renamed, {}}, kPolicy, 2);   // its old stream is not known to have ended
  CHECK(cluster.model.free.open().size() == 3);
  const auto gang = cluster.submit(1, 50, 0, 4);
  cluster.pass();
  CHECK_FALSE(cluster.is_placed(gang));
}

TEST_CASE("a host that a daemon never saw is waited for until what was there is lost") {
  Cluster before;
  before.host("gone", 8, 4);
  const auto lost = before.submit(1);
  before.pass();
  before.start(lost);
  Cluster cluster;
  cluster.number = before.number;
  cluster.model.experiments = before.model.experiments;
  rebuild(cluster.model, 10);
  cluster.host("n1", 8, 1);
  const auto large = cluster.submit(4), lacking = cluster.submit(1);
  leave(cluster.model, cluster.model.experiments.at(lacking));
  cluster.model.experiments.at(lacking).unfit_hosts = std::map<HostId, std::string>{{{"n1"}, "no /d"}};
  enqueue(cluster.model, cluster.model.experiments.at(lacking));
  const auto pass_at = [&](TimeMs now) {
    step(cluster.model, Tick{}, kPolicy, now);
    place_pending(cluster.model, kPolicy, now);
  };
  const TimeMs awaited_ms = cluster.model.hosts_awaited_until_ms;
  pass_at(awaited_ms);
  CHECK(cluster.reason(large) == "waits for hosts that have not come back yet");
  CHECK(!cluster.model.experiments.at(lacking).outcome);
  pass_at(awaited_ms + kPolicy.lease_ms + kPolicy.lease_margin_ms);
  CHECK(!cluster.model.experiments.at(lacking).outcome);   // which may not be restarted, and is waited for
  step(cluster.model, HostRevoked{cluster.model.experiments.at(lost).replicas[0].seat.host}, kPolicy, cluster.model.hosts_awaited_until_ms);
  pass_at(awaited_ms + kPolicy.lease_ms + kPolicy.lease_margin_ms);
  REQUIRE(cluster.model.experiments.at(lost).outcome);
  CHECK(cluster.reason(large).starts_with("needs 4 GPUs; the largest host is n1 with 1 GPU"));
  CHECK(cluster.model.experiments.at(lacking).outcome);
}

TEST_CASE("a port that a stranger had is tried again after a while") {
  Cluster cluster;
  Host host;
  host.id.hex = host.name = host.address = "n1";
  host.cpus = 8;
  host.memory_bytes = uint64_t{64} << 30;
  host.same_machine = true;
  host.port_first = host.port_last = 20'000;
  step(cluster.model, HostConnected{host, {}}, kPolicy, 1);
  const auto id = cluster.submit(0);
  cluster.pass();
  CHECK(cluster.is_placed(id));
  step(cluster.model, LaunchFailed{host.id, {id, 1}, "port 20000 is in use", 20'000}, kPolicy, 10);
  const auto is_tried_at = [&](TimeMs now) {
    step(cluster.model, HostContact{host.id}, kPolicy, now);
    if (cluster.model.place_wanted) place_pending(cluster.model, kPolicy, now);
    return cluster.is_placed(id);
  };
  CHECK(!is_tried_at(11));
  CHECK(!is_tried_at(10 + kPolicy.port_quarantine_ms - 1));
  CHECK(is_tried_at(10 + kPolicy.port_quarantine_ms));
}

TEST_CASE("hosts where starts failed are left out while others could do it, the last longest") {
  Cluster cluster;
  const auto excluded = [&](const ExperimentId& id) {
    std::string text;
    const Experiment& experiment = cluster.model.experiments.at(id);
    for (const HostId& host : choice_of(cluster.model, experiment).excluded) text += " " + host.hex;
    return text;
  };
  const auto failed_on = [&](const ExperimentId& id, const std::vector<HostId>& hosts) {
    Experiment& experiment = cluster.model.experiments.at(id);
    leave(cluster.model, experiment);
    experiment.excluded_hosts = hosts;
    enqueue(cluster.model, experiment);
  };
  for (const char* name : {"n1", "n2", "n3"}) cluster.host(name, 8, 2);
  cluster.host("n4", 8, 0);

  const auto one = cluster.submit(2);
  failed_on(one, {{"n3"}, {"n1"}});
  CHECK(excluded(one) == " n3 n1");   // n2 has two GPUs as well
  failed_on(one, {{"n3"}, {"n1"}, {"n2"}});
  CHECK(excluded(one) == " n1 n2");
  cluster.pass();
  CHECK(cluster.model.experiments.at(one).replicas[0].seat.host.hex == "n3");

  const auto pair = cluster.submit(2, 50, 0, 2);
  failed_on(pair, {{"n3"}, {"n1"}, {"n2"}});
  CHECK(excluded(pair) == " n2");   // needs two of them, and n3 is only used, not gone

  const auto full = cluster.submit(2);
  failed_on(full, {{"n1"}, {"n2"}});
  CHECK(cluster.reason(full) ==
        "needs 2 GPUs on one host; free: 2+2+0+0; left out for what failed there: n1, n2; "
        "1 experiment ahead of it");
  cluster.pass();
  step(cluster.model, HostDisconnected{{"n3"}}, kPolicy, 3);
  CHECK(cluster.model.place_wanted);
  CHECK(excluded(full) == " n2");   // nobody waits for a host that may never come back

  const auto giant = cluster.submit(3);
  failed_on(giant, {{"n1"}});
  CHECK(excluded(giant) == "");   // no host could, excluded or not, and its reason says so
  CHECK(cluster.reason(giant) ==
        "needs 3 GPUs; the largest host is n1 with 2 GPUs, all hosts: 2+2+2+0; ask for fewer `gpus`, "
        "e.g. --set train.resources.gpus=0, or add a host");
}

}  // namespace dtrain::daemon
