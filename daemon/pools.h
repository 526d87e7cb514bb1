// Hosts that come and go as they are needed: allocations of a Slurm, asked for by sbatch for what waits, and given
// back by scancel once nothing is on them for a while.
//
// What is asked for is in the store before Slurm hears of it, under a job's name of its own: a daemon that dies in
// between finds the job by that name, or sees that there is none. The hosts come by themselves, as others that have a
// key do; how a job fares nobody tells, so that squeue is asked now and then while there is one.
//
// Owner: daemon main. Thread: loop. Promises: no job of this daemon stays that nobody needs, short of a Slurm that does
// not answer. Never: decides who is placed where.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "daemon/host_keys.h"
#include "daemon/pool_demand.h"
#include "daemon/program_run.h"
#include "daemon/runner_api.h"
#include "daemon/scheduler.h"
#include "daemon/slurm.h"
#include "daemon/store.h"
#include "schema/config.h"

namespace dtrain::daemon {

// "2 hosts".
std::string hosts_text(int count);

// As the core knows it.
Pool facts_of(const SlurmPool& pool);

struct PoolTimes {
  std::chrono::milliseconds look_every{15'000};     // at the jobs, while there are any
  std::chrono::milliseconds look_at_ending{500};    // first, where one was given back; each time twice as long
  std::chrono::milliseconds join_within{90'000};   // of a job that runs: then its hosts are not waited for any more
  std::chrono::milliseconds first_retry{30'000};    // after a failure; each time twice as long
  std::chrono::milliseconds last_retry{600'000};
};

// The parts it needs; all outlive it.
struct PoolParts {
  boost::asio::io_context& loop;
  const Home& home;
  Store& store;
  Scheduler& scheduler;
  RunnerApi& runners;
  HostKeys& keys;
  PortRange ports;
  std::function<Result<Endpoint>()> dialled_as;   // how hosts reach this daemon
};

class Pools {
 public:
  Pools(const PoolParts& parts, std::vector<SlurmPool> pools, const PoolTimes& times = {});
  Pools(const Pools&) = delete;
  Pools& operator=(const Pools&) = delete;

  // Once: what an earlier daemon had asked for.
  Status load();
  // Call after each turn of the scheduler.
  void after_turn();
  // A host has come with a lent key: what is known of it besides. PermissionDenied: nobody wants it any more.
  Status admit(const std::string& key, Host& host);
  // Nothing is asked of Slurm, or heard from it, any more: the next daemon goes on.
  void stop();
  // For people.
  void describe(pb::HostsReply& reply) const;

 private:
  struct Allocation {
    pb::AllocationRecord record;
    slurm::Job job;                // as it was last seen
    std::set<HostId> hosts;        // that have come to this daemon
    bool submitting = false;       // sbatch has not answered yet
    uint64_t looked_from = 0;      // the first look that counts: it began after sbatch had answered
    TimeMs runs_since_ms = 0;
    std::optional<uint32_t> asked_at;   // the attempt that its experiment had; none: an earlier daemon knew
    bool was_used = false;         // something of an experiment was there once
    bool was_judged = false;       // or was not, and that was said
    bool is_open = false;          // its hosts are not kept for whom they came any more
    TimeMs idle_since_ms = 0;      // 0: it is in use, or not all here
  };
  struct State {
    SlurmPool pool;
    uint32_t failures = 0;         // in a row
    TimeMs closed_until_ms = 0;    // nothing is asked of it before
    std::string trouble;
  };

  static std::string key_name(const pb::AllocationRecord& record);
  std::string job_name(const pb::AllocationRecord& record) const;
  std::filesystem::path log_of(const pb::AllocationRecord& record) const;
  bool is_coming(const Allocation& allocation) const;
  bool is_idle(const Allocation& allocation) const;
  bool is_left(const Allocation& allocation) const;

  void review_at(TimeMs at_ms);
  void review();
  bool open_arrived();
  TimeMs hosts_return_ms() const;
  Demand demand(TimeMs now) const;
  void ask(const Ask& what);
  void remove_old_log(const pb::AllocationRecord& record) const;
  Status submit(Allocation& allocation);
  void on_submitted(uint32_t number, const Result<std::string>& output);
  void watch_use(const Demand& wanted, TimeMs now);
  void say(const Demand& wanted);
  std::string words_of(const Allocation& allocation) const;
  std::string last_words(const pb::AllocationRecord& record) const;

  void run(std::vector<std::string> words, const std::string& input, ProgramDone done) const;
  std::chrono::milliseconds until_look();
  void look_soon(std::chrono::milliseconds wait);
  void look();
  void on_looked(uint64_t look, const Result<std::string>& output);
  void give_back(Allocation& allocation, const std::string& why);
  void judge_use(Allocation& allocation);
  void cancel(const std::string& job, std::chrono::milliseconds look_after);
  void cancel_strays(const std::map<std::string, slurm::Job>& jobs);
  void forget(uint32_t number);
  void on_ended(uint32_t number, const std::string& how);
  void fail(const std::string& pool, const std::string& why);

  const PoolParts parts_;
  const PoolTimes times_;
  const std::string tag_;   // in the names of its jobs: no other daemon has it
  std::map<std::string, State> pools_;
  std::map<uint32_t, Allocation> allocations_;
  std::set<uint32_t> unreadable_;   // of which the store has what this daemon can't read
  std::map<ExperimentId, std::string> said_;
  boost::asio::steady_timer review_timer_;
  TimeMs review_ms_ = 0;    // when it is due; 0: not before something happens
  boost::asio::steady_timer look_timer_;
  bool looking_ = false;
  std::chrono::milliseconds ending_wait_{0};   // before the next look at jobs that were given back
  std::shared_ptr<bool> goes_on_ = std::make_shared<bool>(true);   // null: stopped
  uint64_t looks_ = 0;
};

}  // namespace dtrain::daemon
