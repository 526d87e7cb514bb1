#include "daemon/pools.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <utility>

#include "daemon/authority.h"
#include "daemon/queue.h"
#include "schema/clock.h"
#include "schema/quote.h"

namespace dtrain::daemon {

namespace {

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

}  // namespace

std::string hosts_text(int count) { return fmt::format("{} host{}", count, count == 1 ? "" : "s"); }

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
  TRY(const auto stored, parts_.store.allocations());
  for (const uint32_t number : unreadable_ = stored.unreadable) {
    std::fprintf(stderr, "what was asked of a pool as number %u can't be read: its job, if it has one, is left to itself\n", number);
  }
  for (const pb::AllocationRecord& record : stored.records) {
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

// ---- what is needed

void Pools::after_turn() { review_at(boottime_ms() + kGatherMs); }

void Pools::review_at(TimeMs at_ms) {
  if (!goes_on_) return;
  if (review_ms_ != 0 && review_ms_ <= at_ms) return;
  review_ms_ = at_ms;
  review_timer_.expires_after(std::chrono::milliseconds(std::max<int64_t>(at_ms - boottime_ms(), 0)));
  review_timer_.async_wait([this, goes_on = std::weak_ptr(goes_on_)](boost::system::error_code failed) {
    if (!failed && !goes_on.expired()) review();
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

// All of them were here when what waits was placed: who they came for has had its turn, and the others have theirs.
bool Pools::open_arrived() {
  bool any = false;
  for (auto& [number, allocation] : allocations_) {
    if (is_coming(allocation) || allocation.hosts.empty() || std::exchange(allocation.is_open, true)) continue;
    for (const HostId& host : allocation.hosts) parts_.scheduler.handle(HostOpened{host});
    any = true;
  }
  return any;
}

// After a restart: those that have come to an earlier daemon are on their way.
TimeMs Pools::hosts_return_ms() const {
  const Model& model = parts_.scheduler.model();
  for (const auto& [number, allocation] : allocations_) {
    for (const HostId& id : allocation.hosts) {
      const auto host = model.hosts.find(id);
      if (host == model.hosts.end() || !host->second.connected) return model.hosts_awaited_until_ms;
    }
  }
  return 0;
}

void Pools::review() {
  review_ms_ = 0;
  const TimeMs now = boottime_ms();
  if (const TimeMs wait_ms = hosts_return_ms(); wait_ms > now) return review_at(wait_ms);
  for (auto& [name, state] : pools_) {
    if (state.closed_until_ms != 0 && state.closed_until_ms <= now) {
      state.closed_until_ms = 0;
      state.trouble.clear();
    }
  }
  if (open_arrived()) return after_turn();   // what waits is placed there first
  // Those that are here and had their turn, before the same is asked for again.
  for (auto& [number, allocation] : allocations_) {
    if (allocation.is_open && !allocation.record.given_back()) judge_use(allocation);
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
  remove_old_log(allocation.record);
  allocation.asked_at = parts_.scheduler.model().experiments.at(what.for_whom).attempt;
  Allocation& kept = allocations_[*number] = std::move(allocation);
  if (const Status submitted = submit(kept); !submitted.ok()) {
    const std::string& hint = submitted.error().hint;
    fail(what.pool, submitted.error().message + (hint.empty() ? "" : "; " + hint));
    forget(*number);
  }
}

// Those of jobs that failed stay for a while.
void Pools::remove_old_log(const pb::AllocationRecord& record) const {
  constexpr uint32_t kKept = 100;
  if (record.number() <= kKept) return;
  for (const auto& [name, state] : pools_) {
    pb::AllocationRecord old;
    old.set_pool(name);
    old.set_number(record.number() - kKept);
    std::error_code ignored;
    std::filesystem::remove(log_of(old), ignored);
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
    if (allocation.record.given_back()) cancel(*job, std::chrono::milliseconds(0));
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
    if (!allocation.was_used && !is_idle(allocation)) {
      allocation.was_used = true;
      if (const auto used = pools_.find(allocation.record.pool()); used != pools_.end()) used->second.failures = 0;
    }
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
                         hosts_text(static_cast<int>(allocation.record.hosts())), last_words(allocation.record)));
        if (is_idle(allocation)) {
          give_back(allocation, "not all of its hosts joined");
        } else {
          allocation.record.set_hosts(static_cast<uint32_t>(allocation.hosts.size()));   // those that came are in use
          (void)parts_.store.put_allocation(allocation.record).ok();   // else the next daemon finds that out anew
        }
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
  if (allocation.job.state != "RUNNING") {
    const bool says_why = allocation.job.state == "PENDING" && !allocation.job.reason.empty() && allocation.job.reason != "None";
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
    if (before != said_.end() && before->second == text) continue;
    // Why Slurm lets it wait may change every few seconds, for days.
    const auto without_reason = [](const std::string& of) { return of.substr(0, of.find(" (")); };
    const bool is_news = before == said_.end() || without_reason(before->second) != without_reason(text);
    parts_.scheduler.handle(PoolAsked{id, text, is_news});
  }
  said_ = std::move(words);
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
    if (waits != experiments.end() && is_queued(waits->second)) host.kept_lane = lane_of(parts_.scheduler.model(), waits->second);
  }
  allocation.hosts.insert(host.id);
  if (const auto state = pools_.find(host.pool); state != pools_.end()) {
    const SlurmPool& pool = state->second.pool;
    if (static_cast<int>(host.gpus.size()) < pool.gpus) {
      fail(host.pool, fmt::format("{} has {} GPUs, and config.yml says that hosts of {} have {}", host.name, host.gpus.size(),
                                  host.pool, pool.gpus));
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
