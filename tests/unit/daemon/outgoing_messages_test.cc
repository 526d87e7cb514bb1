#include "daemon/outgoing_messages.h"

#include <doctest/doctest.h>

#include <memory>

namespace dtrain::daemon {
namespace {

Replica replica_on(const char* host, Role role, uint32_t index) {
  Replica replica;
  replica.id = {{4, 0}, role, index};
  replica.seat.replica = replica.id;
  replica.seat.host = HostId{host};
  return replica;
}

TEST_CASE("a build is told of whom on its host it is for, and of no other") {
  Experiment experiment;
  experiment.id = {4, 0};
  experiment.submission = std::make_shared<Submission>();
  experiment.replicas = {replica_on("a", Role::Master, 0), replica_on("a", Role::Worker, 1), replica_on("b", Role::Worker, 2),
                         replica_on("b", Role::Worker, 3), replica_on("a", Role::Build, 1),  replica_on("b", Role::Build, 2)};
  const auto roles_told = [&](const char* host, bool of_builds, ReplicaId first) {
    const pb::Launch message = to_message(SendLaunch{HostId{host}, {{4, 0}, 1, of_builds}, {first}}, experiment, nullptr, "", "", {}, 0);
    return std::vector<std::string>(message.roles().begin(), message.roles().end());
  };
  CHECK(roles_told("a", true, {{4, 0}, Role::Build, 1}) == std::vector<std::string>{"master", "worker"});
  CHECK(roles_told("b", true, {{4, 0}, Role::Build, 2}) == std::vector<std::string>{"worker"});
  CHECK(roles_told("a", false, {{4, 0}, Role::Master, 0}).empty());
}

}  // namespace
}  // namespace dtrain::daemon
