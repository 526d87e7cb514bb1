// The place of this process in its experiment, as TF_CONFIG tells it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "schema/result.h"

namespace dtrain::engine {

enum class Role { Worker, Ps };

struct Place {
  Role role = Role::Worker;
  int index = 0;                     // within its role; worker 0 is the master
  std::vector<std::string> workers;  // "host:port" of each; one, empty, when this process is alone
  std::vector<std::string> ps;
  uint64_t key = 0;  // of this launch: a straggler of an earlier attempt has another

  bool alone() const { return workers.size() == 1 && ps.empty(); }
  bool is_master() const { return role == Role::Worker && index == 0; }
  const std::string& address() const {
    return (role == Role::Worker ? workers : ps)[static_cast<size_t>(index)];
  }
};

// "worker 2 at 10.0.0.3:4000": what messages call a process. As dtrain names its replicas: servers from 1, and workers,
// the first of which is the master, from 0.
std::string process_name(Role role, int index, const std::string& address);

uint64_t launch_key(std::string_view experiment, std::string_view attempt);

// A chief or master counts as worker 0, before the others. No text: one process by itself.
// InvalidArgument says what is wrong with the text.
Result<Place> parse_place(std::string_view tf_config, uint64_t key);

// What no other experiment on these hosts has: EXPERIMENT_ID, which counts from 1 in each daemon, and DTRAIN_SUBMISSION.
std::string experiment_from_environment();

// From TF_CONFIG, the experiment and DTRAIN_ATTEMPT.
Result<Place> place_from_environment();

}  // namespace dtrain::engine
