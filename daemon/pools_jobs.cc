// How the jobs of an allocation fare: looking at them, taking them back, and what their ends mean.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <utility>

#include "daemon/pools.h"
#include "daemon/wait_reason.h"
#include "schema/clock.h"
#include "schema/quote.h"

namespace dtrain::daemon {

namespace {

constexpr std::chrono::seconds kSlurmPatience{60};

}  // namespace

// What a job said last, in words for people; its file is on the nodes' disk, which may not be this machine's.
std::string Pools::last_words(const pb::AllocationRecord& record) const {
  const std::filesystem::path log = log_of(record);
  std::ifstream file(log);
  std::string last;
  for (std::string line; std::getline(file, line);) {
    if (line.find_first_not_of(" \t") != std::string::npos) last = line;
  }
  if (last.empty()) {
    return fmt::format("it left no word in {}; where its nodes don't see that, `options: [--output=FILE]` has it say why elsewhere",
                       log.parent_path().string());
  }
  return fmt::format("the last line of {}: {}", log.string(), in_quotes(last));
}

void Pools::run(std::vector<std::string> words, const std::string& input, ProgramDone done) const {
  run_program(parts_.loop, std::move(words), input, kSlurmPatience,
              [done = std::move(done), goes_on = std::weak_ptr(goes_on_)](const Result<std::string>& output) {
                if (!goes_on.expired()) done(output);
              });
}

// Others may wait for what was given back.
std::chrono::milliseconds Pools::until_look() {
  const bool any_ends = std::any_of(allocations_.begin(), allocations_.end(),
                                    [](const auto& entry) { return entry.second.record.given_back(); });
  if (!any_ends) return times_.look_every;
  ending_wait_ = std::clamp(ending_wait_ * 2, times_.look_at_ending, times_.look_every);
  return ending_wait_;
}

void Pools::look_soon(std::chrono::milliseconds wait) {
  if (looking_ || allocations_.empty()) return;
  look_timer_.expires_after(wait);
  look_timer_.async_wait([this, goes_on = std::weak_ptr(goes_on_)](boost::system::error_code failed) {
    if (!failed && !goes_on.expired()) look();
  });
}

void Pools::look() {
  if (looking_) return;
  looking_ = true;
  run(slurm::queue_words(), "", [this, look = ++looks_](const Result<std::string>& output) { on_looked(look, output); });
}

void Pools::on_looked(uint64_t look, const Result<std::string>& output) {
  looking_ = false;
  if (!output.ok()) {
    std::fprintf(stderr, "%s\n", output.error().message.c_str());
    for (auto& [name, state] : pools_) {
      if (state.closed_until_ms == 0) state.trouble = output.error().message;
    }
    return look_soon(times_.look_every);
  }
  for (auto& [name, state] : pools_) {
    if (state.closed_until_ms == 0) state.trouble.clear();
  }
  const auto jobs = slurm::queued_jobs(*output);
  std::map<uint32_t, std::string> ended;
  for (auto& [number, allocation] : allocations_) {
    if (allocation.submitting || look < allocation.looked_from) continue;
    const auto job = jobs.find(job_name(allocation.record));
    if (job == jobs.end() || slurm::is_over(job->second)) {
      ended[number] = job == jobs.end() ? "is not known to Slurm" : "ended (" + job->second.state + ")";
      continue;
    }
    allocation.job = job->second;
    if (allocation.record.job().empty()) {
      allocation.record.set_job(job->second.id);
      (void)parts_.store.put_allocation(allocation.record).ok();   // else the next daemon finds it by its name, too
    }
    const bool runs = job->second.state == "RUNNING";
    if (runs && allocation.runs_since_ms == 0) allocation.runs_since_ms = boottime_ms();
    // Once more: it may not have been heard.
    if (allocation.record.given_back() && job->second.state != "COMPLETING") cancel(allocation.record.job(), until_look());
  }
  cancel_strays(jobs);
  for (const auto& [number, how] : ended) on_ended(number, how);
  look_soon(until_look());
  after_turn();
}

void Pools::on_ended(uint32_t number, const std::string& how) {
  Allocation& allocation = allocations_.at(number);
  const pb::AllocationRecord& record = allocation.record;
  const bool for_nothing = !record.joined() && !record.given_back() && !record.job().empty();
  if (for_nothing) {
    fail(record.pool(), fmt::format("job {} {} before a host of it joined; {}", record.job(), how, last_words(record)));
  }
  const std::string job = record.job().empty() ? "its job" : "job " + record.job();
  if (!record.given_back()) judge_use(allocation);
  std::fprintf(stderr, "%s: %s %s\n", key_name(record).c_str(), job.c_str(), how.c_str());
  if (!for_nothing) {
    std::error_code ignored;
    std::filesystem::remove(log_of(record), ignored);
  }
  forget(number);
}

// No host comes by its key any more, and those that had are forgotten once nothing of them is awaited.
void Pools::forget(uint32_t number) {
  const pb::AllocationRecord record = allocations_.at(number).record;
  const std::string key = key_name(record);
  const auto hosts = parts_.keys.take_back(key);
  if (!hosts.empty()) parts_.runners.cut(key);
  for (const HostId& host : hosts) parts_.scheduler.handle(HostRevoked{host});
  if (const Status removed = parts_.store.remove_allocation(number); !removed.ok()) {
    std::fprintf(stderr, "%s\n", removed.error().message.c_str());   // the next daemon finds that there is no such job
  }
  allocations_.erase(number);
}

void Pools::give_back(Allocation& allocation, const std::string& why) {
  const std::string key = key_name(allocation.record);
  std::fprintf(stderr, "%s: given back, %s\n", key.c_str(), why.c_str());
  for (const HostId& host : allocation.hosts) parts_.scheduler.handle(HostLeaves{host, why});
  allocation.record.set_given_back(true);
  if (const Status kept = parts_.store.put_allocation(allocation.record); !kept.ok()) {
    std::fprintf(stderr, "%s\n", kept.error().message.c_str());   // a daemon that comes to it anew gives it back, too
  }
  judge_use(allocation);
  ending_wait_ = times_.look_at_ending;
  if (!allocation.submitting) cancel(allocation.record.job(), std::chrono::milliseconds(0));
}

// What of this daemon's jobs it knows nothing of: an sbatch that was given up made it after all.
void Pools::cancel_strays(const std::map<std::string, slurm::Job>& jobs) {
  const std::string own = fmt::format("dtrain-{}-", tag_);
  std::set<std::string> known;
  for (const auto& [number, allocation] : allocations_) known.insert(job_name(allocation.record));
  for (auto job = jobs.lower_bound(own); job != jobs.end() && job->first.starts_with(own); ++job) {
    const auto is_of = [&job](uint32_t number) { return job->first.ends_with(fmt::format("-{}", number)); };
    if (std::ranges::any_of(unreadable_, is_of)) continue;
    if (known.contains(job->first) || slurm::is_over(job->second) || job->second.state == "COMPLETING") continue;
    std::fprintf(stderr, "job %s (%s) is cancelled: nobody knows of it\n", job->second.id.c_str(), job->first.c_str());
    cancel(job->second.id, times_.look_every);
  }
}

void Pools::cancel(const std::string& job, std::chrono::milliseconds look_after) {
  if (job.empty()) return look_soon(look_after);
  run(slurm::cancel_words(job), "", [this, look_after](const Result<std::string>& output) {
    if (!output.ok()) std::fprintf(stderr, "%s\n", output.error().message.c_str());
    look_soon(output.ok() ? look_after : times_.look_every);
  });
}

// Its hosts came, and who they were asked for waits still: to ask again at once would go on for ever.
void Pools::judge_use(Allocation& allocation) {
  const auto id = parse_experiment_id(allocation.record.for_whom());
  const auto& experiments = parts_.scheduler.model().experiments;
  const auto whom = id.ok() ? experiments.find(*id) : experiments.end();
  if (allocation.was_used || allocation.was_judged || allocation.hosts.empty() || whom == experiments.end() || !is_queued(whom->second)) return;
  if (allocation.asked_at != whom->second.attempt) return;   // it was placed since, if only for a moment
  allocation.was_judged = true;
  fail(allocation.record.pool(), fmt::format("{} came and {} was not placed there: {}", key_name(allocation.record),
                                             allocation.record.for_whom(),
                                             wait_reason(parts_.scheduler.model(), *id, boottime_ms())));
}

void Pools::fail(const std::string& pool, const std::string& why) {
  std::fprintf(stderr, "pool %s: %s\n", pool.c_str(), why.c_str());
  const auto found = pools_.find(pool);
  if (found == pools_.end()) return;
  State& state = found->second;
  constexpr uint32_t kDoublingsMax = 16;
  const auto wait = std::min(times_.first_retry * (1 << std::min(state.failures, kDoublingsMax)), times_.last_retry);
  if (state.closed_until_ms == 0) ++state.failures;   // what fails together is one failure
  state.closed_until_ms = boottime_ms() + wait.count();
  state.trouble = as_utf8(why);
  review_at(state.closed_until_ms);
  after_turn();
}

}  // namespace dtrain::daemon
