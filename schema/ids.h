// The names of things: 4, 4.2, 4.worker.1, 4.2.ps.1, and the host a replica runs on.
//
// Strong types with one text form each; what a person types and what a message carries is parsed
// here and nowhere else. Numbers in IDs start at 1; indices in TF_CONFIG start at 0 (cluster_env.h).
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "schema/result.h"

namespace dtrain {

enum class Role { Train, Master, Chief, Launcher, Worker, Ps, Evaluator, Build, Tensorboard };

std::string_view to_string(Role role);              // "worker"
std::optional<Role> parse_role(std::string_view);   // only the exact lower-case word
// Worker, ps, evaluator and build carry a number; master, chief, launcher, train, tensorboard don't.
bool is_numbered(Role role);

// An experiment (member 0) or a member of a set (member >= 1).
struct ExperimentId {
  uint32_t number = 0;
  uint32_t member = 0;
  auto operator<=>(const ExperimentId&) const = default;
  ExperimentId set() const { return {number, 0}; }
};

// One process (tree) of an experiment. index is 0 for the roles that carry no number.
struct ReplicaId {
  ExperimentId experiment;
  Role role = Role::Train;
  uint32_t index = 0;
  auto operator<=>(const ReplicaId&) const = default;
};

// What a host is told to launch at once: replicas of an experiment, or builds, whose launches are counted apart.
struct LaunchId {
  ExperimentId experiment;
  uint32_t attempt = 0;
  bool of_builds = false;
  auto operator<=>(const LaunchId&) const = default;
};
// The launch that a replica belongs to by its newest attempt.
inline LaunchId launch_of(const ReplicaId& replica, uint32_t attempt) {
  return {replica.experiment, attempt, replica.role == Role::Build};
}

// What a person may type after a command: 4, 4.2, 4.worker, 4.worker.1, 4.2.ps.1. It names every
// experiment and replica that matches() it.
struct IdPattern {
  ExperimentId experiment;       // member 0 matches the set and each of its members
  std::optional<Role> role;
  std::optional<uint32_t> index;
  bool matches(const ReplicaId&) const;
  bool matches(const ExperimentId&) const;  // also true when the pattern names replicas of it
  bool names_replicas() const { return role.has_value(); }
};

// A host's random 128-bit id in hex: host names may repeat (network namespaces share one).
struct HostId {
  std::string hex;
  auto operator<=>(const HostId&) const = default;
};

std::string to_string(const ExperimentId&);
std::string to_string(const ReplicaId&);
std::string to_string(const LaunchId&);   // "4.2@1", "4.2.build@1"
std::string to_string(const IdPattern&);
std::vector<std::string> to_strings(const std::vector<ExperimentId>& ids);

// InvalidArgument with the accepted forms as hint. Leading zeros, signs, 0, overflow and any byte
// that does not belong are refused.
Result<ExperimentId> parse_experiment_id(std::string_view text);
Result<ReplicaId> parse_replica_id(std::string_view text);
Result<LaunchId> parse_launch_id(std::string_view text);
Result<IdPattern> parse_id_pattern(std::string_view text);

}  // namespace dtrain

template <>
struct std::hash<dtrain::ExperimentId> {
  size_t operator()(const dtrain::ExperimentId& id) const noexcept {
    return std::hash<uint64_t>{}((uint64_t{id.number} << 32) | id.member);
  }
};
template <>
struct std::hash<dtrain::HostId> {
  size_t operator()(const dtrain::HostId& id) const noexcept {
    return std::hash<std::string>{}(id.hex);
  }
};
