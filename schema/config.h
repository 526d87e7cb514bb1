// DTRAIN_HOME/config.yml: what one dtrain lets its owner set. Every key may be left out.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "schema/home.h"
#include "schema/result.h"

namespace dtrain {

struct PortRange {
  uint32_t first = 20'000;
  uint32_t last = 29'999;  // included
  bool operator==(const PortRange&) const = default;
};

// Hosts that a Slurm lends, for as long as something here needs them.
struct SlurmPool {
  std::string name;                   // how people and --host call its hosts
  // Of each host, as it is asked for.
  double cpus = 0;
  uint64_t memory_bytes = 0;
  int gpus = 0;
  int hosts_max = 0;                  // at once
  int64_t time_ms = 0;                // for which hosts are asked
  int64_t idle_release_ms = 300'000;  // unused that long they are given back
  std::string partition;              // empty: Slurm's default
  std::vector<std::string> options;   // of sbatch besides, "--account=lab"
  std::string dtrain;                 // that program on its hosts; empty: by the path that the daemon runs from
};

// What the experiments of one user may have at once; what is left out is not limited.
struct UserQuota {
  std::string user;   // empty: of each user that is not named before
  std::optional<double> cpus;
  std::optional<uint64_t> memory_bytes;
  std::optional<int> gpus;
  bool operator==(const UserQuota&) const = default;
};

// How much of what there is one user is to have beside others, where more is wanted.
struct UserWeight {
  std::string user;   // empty: each user that is not named before
  double weight = 1;
  bool operator==(const UserWeight&) const = default;
};

struct Config {
  // ADDRESS:PORT on which hosts with a key join over the network; empty: only this machine's do. Port 0: a free one.
  std::string listen;
  std::vector<SlurmPool> pools;
  std::vector<UserQuota> quotas;   // the first that is for a user counts
  std::vector<UserWeight> fair_share;   // likewise; empty: there is none
  // ADDRESS:PORT on which metrics are read by HTTP; empty: nowhere. Port 0: a free one.
  std::string open_metrics;
  // How other hosts reach this machine; empty: nobody knows, and no gang is spread over it and others.
  std::string address;
  // What it offers to experiments.
  std::optional<double> cpus;  // empty: all that the runner may use
  std::optional<uint64_t> memory_bytes;
  PortRange ports;
  std::vector<std::string> labels;
  // Sent files that its runner keeps for later launches.
  std::optional<uint64_t> cache_bytes;
  // Output of one replica that may wait on a host's disk for the daemon.
  uint64_t spool_limit_bytes = uint64_t{4} << 30;
  // A runner that says nothing for that long is given up; that of this machine is started anew.
  int64_t runner_timeout_ms = 60'000;
  // What ended is forgotten after so long, and what ended first when there are more output lines in all.
  // Empty: never.
  std::optional<int64_t> keep_ended_ms;
  std::optional<uint64_t> keep_log_bytes;
  // A project of this size is remarked on, and from the second size on agreed to.
  uint64_t sync_warn_bytes = uint64_t{50} << 20;
  uint64_t sync_ask_bytes = uint64_t{1} << 30;
  uint64_t sync_file_bytes_max = uint64_t{10} << 30;
};

// InvalidArgument names every mistake with line and column, in a file called `file_name`.
Result<Config> parse_config(std::string_view yaml, const std::string& file_name);

// The home's file; the defaults when there is none.
Result<Config> read_config(const Home& home);

// "20000-29999"; nothing when it is not that, with 1 <= first <= last <= 65535.
std::optional<PortRange> parse_port_range(std::string_view text);

// Letters, digits, '.', '-' and '_'.
bool is_host_name(std::string_view text);

bool is_ip_address(std::string_view text);

// What another host may dial: an IP address or a name, with neither port nor brackets. Not loopback.
bool is_host_address(std::string_view text);

}  // namespace dtrain
