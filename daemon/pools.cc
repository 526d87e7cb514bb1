#include "daemon/pools.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <utility>

#include "daemon/authority.h"
#include "daemon/queue.h"
#include "schema/clock.h"
#include "schema/quote.h"

namespace dtrain::daemon {

namespace {

constexpr std::chrono::seconds kSlurmPatience{60};
// What happens close together is looked at once.
constexpr int64_t kGatherMs = 50;
constexpr size_t kTagDigits = 8;

// Two allocations may have a node in common, whose runners know nothing of each other: each has ports of its own.
PortRange ports_of(const PortRange& all, uint32_t number, const std::string& tag) {
  constexpr uint32_t kSlicesMax = 20, kSliceMin = 100;
  const uint32_t count = all.last - all.first + 1;
  uint32_t tag_number = 0;   // other daemons begin elsewhere
  for (const char digit : tag) tag_number = tag_number * 31 + static_cast<unsigned char>(digit);
  const uint32_t slices = std::clamp(count / kSliceMin, 1U, kSlicesMax);
  const uint32_t size = count / slices, first = all.first + (number + tag_number) % slices * size;
  return {first, first + size - 1};
}

std::string own_program() {
  std::error_code error;
  const auto path = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return "dtrain";
  // Replaced by another version since this daemon began: that one lies there now.
  constexpr std::string_view kReplaced = " (deleted)";
  std::string text = path.string();
  if (text.ends_with(kReplaced)) text.resize(text.size() - kReplaced.size());
  return text;
}

// What a job said last, in words for people; its file is on the nodes' disk, which may not be this machine's.
std::string last_words(const std::filesystem::path& log) {
  std::ifstream file(log);
  std::string last;
  for (std::string line; std::getline(file, line);) {
    if (line.find_first_not_of(" \t") != std::string::npos) last = line;
  }
  if (last.empty()) {
    return fmt::format("its nodes don't see {}, where it would say why: `options: [--output=FILE]` has it say so elsewhere",
                       log.parent_path().string());
  }
  return fmt::format("the last line of {}: {}", log.string(), in_quotes(last));
}

std::string hosts_text(int count) { return fmt::format("{} host{}", count, count == 1 ? "" : "s"); }

}  // namespace

Pool facts_of(const SlurmPool& pool) {
  return {pool.name, pool.cpus, pool.memory_bytes, pool.gpus, pool.hosts_max, pool.time_ms};
}

Pools::Pools(const PoolParts& parts, std::vector<SlurmPool> pools, const PoolTimes& times)
    : parts_(parts),
      times_(times),
      tag_(fingerprint(parts.keys.authority().certificate()).substr(0, kTagDigits)),
      review_timer_(parts.loop),
      look_timer_(parts.loop) {
  for (SlurmPool& pool : pools) {
    const std::string name = pool.name;
    pools_[name].pool = std::move(pool);
  }
}

std::string Pools::key_name(const pb::AllocationRecord& record) {
  return fmt::format("{}-{}", record.pool(), record.number());
}

std::string Pools::job_name(const pb::AllocationRecord& record) const {
  return fmt::format("dtrain-{}-{}", tag_, key_name(record));
}

std::filesystem::path Pools::log_of(const pb::AllocationRecord& record) const {
  return parts_.home.pools() / (key_name(record) + ".log");
}

Status Pools::load() {
  std::error_code error;
  std::filesystem::create_directories(parts_.home.pools(), error);
  if (error) return errno_error(fmt::format("create {}", parts_.home.pools().string()), error.value());
  TRY(const auto records, parts_.store.allocations());
  for (const pb::AllocationRecord& record : records) {
    Allocation& allocation = allocations_[record.number()];
    allocation.record = record;
    allocation.job.id = record.job();
    // They dial again; until then they count as here.
    for (const HostId& host : parts_.keys.hosts_of(key_name(record))) allocation.hosts.insert(host);
    // An sbatch of an earlier daemon may be about to make the job: one look is not enough to see that there is none.
    allocation.looked_from = record.job().empty() ? 2 : 0;
  }
  if (!allocations_.empty()) look();
  return ok();
}

// ---- what is needed

void Pools::after_turn() { review_at(boottime_ms() + kGatherMs); }

void Pools::review_at(TimeMs at_ms) {
  if (!goes_on_) return;
  if (review_ms_ != 0 && review_ms_ <= at_ms) return;
  review_ms_ = at_ms;
  review_timer_.expires_after(std::chrono::milliseconds(std::max<int64_t>(at_ms - boottime_ms(), 0)));
  review_timer_.async_wait([this](boost::system::error_code failed) {
    if (!failed) review();
  });
}

// Not all of its hosts are here. Until then those that are wait for the others.
bool Pools::is_coming(const Allocation& allocation) const {
  return !allocation.record.given_back() && pools_.contains(allocation.record.pool()) &&
         allocation.hosts.size() < allocation.record.hosts();
}

bool Pools::is_idle(const Allocation& allocation) const {
  const Model& model = parts_.scheduler.model();
  return std::none_of(allocation.hosts.begin(), allocation.hosts.end(), [&](const HostId& id) {
    const auto host = model.hosts.find(id);
    return host != model.hosts.end() && (model.seated.contains(id) || !host->second.strays.empty());
  });
}

// All of its hosts have come, and their time is over.
bool Pools::is_left(const Allocation& allocation) const {
  const auto& hosts = parts_.scheduler.model().hosts;
  return !allocation.hosts.empty() && std::all_of(allocation.hosts.begin(), allocation.hosts.end(), [&](const HostId& id) {
    const auto host = hosts.find(id);
    return host == hosts.end() || host->second.leaving;
  });
}

Demand Pools::demand(TimeMs now) const {
  std::vector<Coming> coming;
  std::map<std::string, int> taken;
  for (const auto& [number, allocation] : allocations_) {
    const int hosts = static_cast<int>(allocation.record.hosts());
    taken[allocation.record.pool()] += hosts;
    if (is_coming(allocation)) coming.push_back({number, allocation.record.pool(), hosts});
  }
  std::set<std::string> closed;
  for (const auto& [name, state] : pools_) {
    if (state.closed_until_ms > now) closed.insert(name);
  }
  return demand_on_pools(parts_.scheduler.model(), coming, taken, closed, now);
}

void Pools::review() {
  review_ms_ = 0;
  const TimeMs now = boottime_ms();
  for (auto& [name, state] : pools_) {
    if (state.closed_until_ms != 0 && state.closed_until_ms <= now) {
      state.closed_until_ms = 0;
      state.trouble.clear();
    }
  }
  const Demand wanted = demand(now);
  for (const Ask& what : wanted.asks) ask(what);
  watch_use(wanted, now);
  say(wanted);
  for (const auto& [name, state] : pools_) {
    if (state.closed_until_ms != 0) review_at(state.closed_until_ms);
  }
}

void Pools::ask(const Ask& what) {
  Allocation allocation;
  allocation.record.set_pool(what.pool);
  allocation.record.set_hosts(static_cast<uint32_t>(what.hosts));
  allocation.record.set_for_whom(to_string(what.for_whom));
  const auto number = parts_.store.add_allocation(allocation.record);
  if (!number.ok()) return fail(what.pool, number.error().message);
  allocation.record.set_number(*number);
  Allocation& kept = allocations_[*number] = std::move(allocation);
  if (const Status submitted = submit(kept); !submitted.ok()) {
    const std::string& hint = submitted.error().hint;
    fail(what.pool, submitted.error().message + (hint.empty() ? "" : "; " + hint));
    forget(*number);
  }
}

Status Pools::submit(Allocation& allocation) {
  const pb::AllocationRecord& record = allocation.record;
  const SlurmPool& pool = pools_.at(record.pool()).pool;
  TRY(const Endpoint daemon, parts_.dialled_as());
  slurm::Request request;
  request.name = job_name(record);
  request.hosts = static_cast<int>(record.hosts());
  request.dtrain = own_program();
  request.log = log_of(record).string();
  request.ports = ports_of(parts_.ports, record.number(), tag_);
  TRY(request.key, parts_.keys.lend(key_name(record), daemon, request.hosts));
  allocation.submitting = true;
  run(slurm::submit_words(pool, request), slurm::script(pool, request),
      [this, number = record.number()](const Result<std::string>& output) { on_submitted(number, output); });
  return ok();
}

void Pools::on_submitted(uint32_t number, const Result<std::string>& output) {
  Allocation& allocation = allocations_.at(number);
  allocation.submitting = false;
  allocation.looked_from = looks_ + 1;
  const auto job = output.ok() ? slurm::submitted_job(*output) : Result<std::string>(output.error());
  if (job.ok()) {
    allocation.job = {*job, "PENDING", "None"};
    allocation.record.set_job(*job);
    const Status kept = parts_.store.put_allocation(allocation.record);
    if (!kept.ok()) std::fprintf(stderr, "%s\n", kept.error().message.c_str());   // it is found by its name
    std::fprintf(stderr, "%s: %s asked of Slurm for %s, job %s\n", key_name(allocation.record).c_str(),
                 hosts_text(static_cast<int>(allocation.record.hosts())).c_str(), allocation.record.for_whom().c_str(),
                 job->c_str());
    if (allocation.record.given_back()) cancel(allocation);
  } else {
    fail(allocation.record.pool(), job.error().message);
  }
  // Where it failed there may be a job all the same: a look at those of its name tells.
  look_soon(job.ok() ? times_.look_every : std::chrono::milliseconds(0));
  after_turn();
}

// Gives back what nobody needs.
void Pools::watch_use(const Demand& wanted, TimeMs now) {
  std::set<std::string> short_of_hosts;
  for (const auto& [id, pool] : wanted.exhausted) short_of_hosts.insert(pool);
  const auto due = [&](TimeMs at_ms) {
    if (at_ms > now) review_at(at_ms);
    return at_ms <= now;
  };
  for (auto& [number, allocation] : allocations_) {
    if (allocation.record.given_back()) continue;
    const auto state = pools_.find(allocation.record.pool());
    if (state == pools_.end()) {
      if (is_idle(allocation)) give_back(allocation, "config.yml has no such pool any more");
    } else if (is_coming(allocation)) {
      const bool is_new = std::any_of(wanted.asks.begin(), wanted.asks.end(), [&](const Ask& what) {
        return allocation.submitting && to_string(what.for_whom) == allocation.record.for_whom();
      });
      if (!is_new && !wanted.awaited.contains(number) && is_idle(allocation)) {
        give_back(allocation, "nobody waits for it any more");
      } else if (allocation.runs_since_ms != 0 && due(allocation.runs_since_ms + times_.join_within.count())) {
        fail(allocation.record.pool(),
             fmt::format("job {} runs, and {} of {} joined; {}", allocation.job.id, allocation.hosts.size(),
                         hosts_text(static_cast<int>(allocation.record.hosts())), last_words(log_of(allocation.record))));
        give_back(allocation, "not all of its hosts joined");
      }
    } else if (!is_idle(allocation)) {
      allocation.idle_since_ms = 0;
    } else {
      if (allocation.idle_since_ms == 0) allocation.idle_since_ms = now;
      const bool room_is_wanted = short_of_hosts.contains(allocation.record.pool());
      if (is_left(allocation)) {
        give_back(allocation, "its time is over");
      } else if (room_is_wanted || due(allocation.idle_since_ms + state->second.pool.idle_release_ms)) {
        give_back(allocation, room_is_wanted ? "others wait for hosts of its pool" : "nothing ran there for a while");
      }
    }
  }
}

std::string Pools::words_of(const Allocation& allocation) const {
  const pb::AllocationRecord& record = allocation.record;
  const std::string hosts = hosts_text(static_cast<int>(record.hosts()));
  if (record.job().empty()) return fmt::format("{} being asked of {}", hosts, record.pool());
  if (allocation.job.state == "PENDING") {
    const bool says_why = !allocation.job.reason.empty() && allocation.job.reason != "None";
    return fmt::format("{} asked of {}: job {} is in the queue of Slurm{}", hosts, record.pool(), record.job(),
                       says_why ? fmt::format(" ({})", allocation.job.reason) : "");
  }
  return fmt::format("job {} of {} runs, {} of {} joined", record.job(), record.pool(), allocation.hosts.size(), hosts);
}

// What was asked for whom, where that is news.
void Pools::say(const Demand& wanted) {
  std::map<ExperimentId, std::string> words;
  for (const auto& [id, pool] : wanted.exhausted) {
    const State& state = pools_.at(pool);
    words[id] = fmt::format("all {} of {} are taken{}", hosts_text(state.pool.hosts_max), pool,
                            state.trouble.empty() ? "" : "; " + state.trouble);
  }
  for (const auto& [id, pool] : wanted.refused) {
    words[id] = fmt::format("{} is asked again later: {}", pool, pools_.at(pool).trouble);
  }
  for (const auto& [number, allocation] : allocations_) {
    const auto id = parse_experiment_id(allocation.record.for_whom());
    if (id.ok() && is_coming(allocation)) words[*id] = words_of(allocation);
  }
  for (const auto& [id, text] : said_) {
    if (!words.contains(id)) parts_.scheduler.handle(PoolAsked{id, ""});
  }
  for (const auto& [id, text] : words) {
    const auto before = said_.find(id);
    if (before == said_.end() || before->second != text) parts_.scheduler.handle(PoolAsked{id, text});
  }
  said_ = std::move(words);
}

// ---- how the jobs fare

void Pools::run(std::vector<std::string> words, const std::string& input, ProgramDone done) const {
  run_program(parts_.loop, std::move(words), input, kSlurmPatience,
              [done = std::move(done), goes_on = std::weak_ptr(goes_on_)](const Result<std::string>& output) {
                if (!goes_on.expired()) done(output);
              });
}

void Pools::stop() {
  // What was asked for people who are here no more: nothing of theirs is left to run there.
  if (parts_.scheduler.model().live.empty()) {
    for (auto& [number, allocation] : allocations_) {
      if (!allocation.record.given_back()) give_back(allocation, "the daemon stops");
    }
  }
  goes_on_.reset();
  review_timer_.cancel();
  look_timer_.cancel();
}

void Pools::look_soon(std::chrono::milliseconds wait) {
  if (looking_ || allocations_.empty()) return;
  look_timer_.expires_after(wait);
  look_timer_.async_wait([this](boost::system::error_code failed) {
    if (!failed) look();
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
    if (allocation.record.given_back()) cancel(allocation);   // once more: it may not have been heard
  }
  for (const auto& [number, how] : ended) on_ended(number, how);
  look_soon(times_.look_every);
  after_turn();
}

void Pools::on_ended(uint32_t number, const std::string& how) {
  const Allocation& allocation = allocations_.at(number);
  const pb::AllocationRecord& record = allocation.record;
  const bool for_nothing = !record.joined() && !record.given_back() && !record.job().empty();
  if (for_nothing) {
    fail(record.pool(), fmt::format("job {} {} before a host of it joined; {}", record.job(), how, last_words(log_of(record))));
  }
  const std::string job = record.job().empty() ? "its job" : "job " + record.job();
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
  const auto hosts = parts_.keys.revoke(key);
  parts_.runners.cut(key);
  if (hosts.ok()) {
    for (const HostId& host : *hosts) parts_.scheduler.handle(HostRevoked{host});
  }
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
  if (!allocation.submitting) cancel(allocation);
}

void Pools::cancel(const Allocation& allocation) {
  if (allocation.record.job().empty()) return look_soon(std::chrono::milliseconds(0));
  run(slurm::cancel_words(allocation.record.job()), "", [this](const Result<std::string>& output) {
    if (!output.ok()) std::fprintf(stderr, "%s\n", output.error().message.c_str());
    look_soon(output.ok() ? std::chrono::milliseconds(0) : times_.look_every);
  });
}

void Pools::fail(const std::string& pool, const std::string& why) {
  std::fprintf(stderr, "pool %s: %s\n", pool.c_str(), why.c_str());
  const auto found = pools_.find(pool);
  if (found == pools_.end()) return;
  State& state = found->second;
  constexpr uint32_t kDoublingsMax = 16;
  const auto wait = std::min(times_.first_retry * (1 << std::min(state.failures, kDoublingsMax)), times_.last_retry);
  ++state.failures;
  state.closed_until_ms = boottime_ms() + wait.count();
  state.trouble = as_utf8(why);
  review_at(state.closed_until_ms);
  after_turn();
}

// ---- hosts that come

Status Pools::admit(const std::string& key, Host& host) {
  const auto found = std::find_if(allocations_.begin(), allocations_.end(),
                                  [&](const auto& entry) { return key_name(entry.second.record) == key; });
  if (found == allocations_.end() || found->second.record.given_back()) {
    return Error{Code::PermissionDenied, fmt::format("{} is not needed any more", key), ""};
  }
  Allocation& allocation = found->second;
  host.pool = allocation.record.pool();
  if (allocation.record.hosts() > 1) {
    const auto id = parse_experiment_id(allocation.record.for_whom());
    const auto& experiments = parts_.scheduler.model().experiments;
    const auto waits = id.ok() ? experiments.find(*id) : experiments.end();
    if (waits != experiments.end() && is_queued(waits->second)) host.kept_lane = lane_of(waits->second);
  }
  allocation.hosts.insert(host.id);
  if (const auto state = pools_.find(host.pool); state != pools_.end()) {
    const SlurmPool& pool = state->second.pool;
    if (static_cast<int>(host.gpus.size()) < pool.gpus) {
      fail(host.pool, fmt::format("{} has {} GPUs, and config.yml says that hosts of {} have {}", host.name, host.gpus.size(),
                                  host.pool, pool.gpus));
    } else {
      state->second.failures = 0;
    }
  }
  if (!allocation.record.joined()) {
    allocation.record.set_joined(true);
    (void)parts_.store.put_allocation(allocation.record).ok();   // only how its end is taken depends on it
  }
  return ok();
}

void Pools::describe(pb::HostsReply& reply) const {
  for (const auto& [name, state] : pools_) {
    pb::PoolInfo& info = *reply.add_pools();
    info.set_name(name);
    info.set_kind("slurm");
    info.set_hosts_max(static_cast<uint32_t>(state.pool.hosts_max));
    info.set_trouble(state.trouble);
    for (const auto& [number, allocation] : allocations_) {
      const pb::AllocationRecord& record = allocation.record;
      if (record.pool() != name) continue;
      info.set_hosts(info.hosts() + record.hosts());
      pb::AllocationInfo& one = *info.add_allocations();
      one.set_name(key_name(record));
      one.set_job(record.job());
      one.set_state(record.given_back() ? "given back" : allocation.job.state);
      one.set_reason(allocation.job.reason);
      one.set_hosts(record.hosts());
      one.set_joined(static_cast<uint32_t>(allocation.hosts.size()));
      one.set_for_whom(record.for_whom());
    }
  }
}

}  // namespace dtrain::daemon
