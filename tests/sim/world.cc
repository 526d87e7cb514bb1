#include "sim/world.h"

#include <algorithm>

#include "daemon/placement.h"
#include "daemon/queue.h"
#include "daemon/record.h"

namespace dtrain::sim {

using namespace daemon;

namespace {

constexpr size_t kHeardMax = 64;
constexpr size_t kTraceMax = 400;
constexpr const char* kBoot = "0123";

Host make_host(int n) {
  Host host;
  host.id.hex = fmt::format("{:032x}", n + 1);
  host.name = fmt::format("n{}", n);
  host.address = fmt::format("10.0.0.{}", n + 1);
  host.same_machine = n == 0;
  host.cpus = n == 0 ? 4 : 8;
  host.memory_bytes = uint64_t{16} << 30;
  host.port_first = 20'000;
  host.port_last = 20'099;
  for (int gpu = 0; gpu < (n == 0 ? 2 : 4); ++gpu) host.gpus.push_back({gpu, "fake", ""});
  return host;
}

Policy short_policy() {
  Policy policy;
  policy.lease_ms = 60'000;
  policy.lease_margin_ms = 5'000;
  policy.local_grace_ms = 30'000;
  return policy;
}

// What the database keeps of an experiment.
Experiment durable(Experiment experiment) {
  experiment.held = experiment.held && experiment.attempt > 0;
  experiment.awaits = false;
  experiment.wait_reason.clear();
  experiment.grows_from_ms = 0;
  experiment.preempts_from_ms = 0;
  experiment.regrows = false;
  experiment.heard_ms = experiment.silence_due_ms = 0;
  experiment.silence_confirmed = false;
  for (Replica& replica : experiment.replicas) replica.stop_sent = replica.leaves = false;
  return experiment;
}

const HostId& host_of(const Send& send) {
  return std::visit([](const auto& any) -> const HostId& { return any.host; }, send);
}

std::string text_of(const Send& send) {
  return std::visit(
      [&](const auto& message) {
        constexpr const char* kNames[] = {"Launch", "Start", "Stop", "Forget"};
        std::string text =
            fmt::format("{} ", kNames[send.index()]);
        if constexpr (requires { message.id; }) text += to_string(message.id);
        else text += to_string(message.experiment);
        return text;
      },
      send);
}

// What can take nothing away that was free, or is about to be.
bool leaves_room_alone(const Event& event) {
  return std::holds_alternative<Submitted>(event) || std::holds_alternative<Tick>(event) || std::holds_alternative<KillWanted>(event) || std::holds_alternative<SuspendWanted>(event) || std::holds_alternative<HostContact>(event) ||
         std::holds_alternative<LaunchPrepared>(event) || std::holds_alternative<ReplicaStarted>(event) ||
         std::holds_alternative<ReplicaExited>(event) || std::holds_alternative<ReplicaReleased>(event) || std::holds_alternative<OutputCame>(event);
}

}  // namespace

World::World(uint64_t seed, bool traced)
    : random_(seed), traced_(traced), policy_(short_policy()), model_(std::make_unique<Model>()) {
  const int count = 2 + static_cast<int>(below(3));
  const size_t broken = below(20);
  pace_ms_ = chance(50) ? 3'000 : 100;
  some_give_way_ = chance(50);
  some_have_policies_ = chance(40);
  make_quotas();
  make_fair_share();
  model_->quotas = quotas_;
  model_->fair_share = fair_share_;
  for (int n = 0; n < count; ++n) {
    const auto lag_ms =
        chance(50) ? policy_.lease_margin_ms - 1 : static_cast<TimeMs>(below(5'000));
    hosts_.emplace_back(make_host(n), lag_ms, broken == static_cast<size_t>(n));
    hosts_.back().lacks_data = chance(40);
    if (n == 0 && chance(50)) hosts_.back().inventory.address.clear();
  }
}

Counts World::counts() const {
  Counts all = counts_;
  for (const FakeHost& host : hosts_) all += host.counts;
  return all;
}

void World::remember(const std::string& line) {
  trace_.push_back(fmt::format("{:6} t={:<9} {}", steps_, now_, line));
  if (trace_.size() > kTraceMax) trace_.pop_front();
}

// ---- a turn: events are decided one by one, then committed together, and only then told

void World::happen(const Event& event) {
  if (const auto* hello = std::get_if<HostConnected>(&event)) {
    // Meant for an earlier stream of the host.
    std::erase_if(waiting_.send, [&](const Send& send) { return host_of(send) == hello->host.id; });
  } else if (!std::holds_alternative<Submitted>(event) && !std::holds_alternative<Tick>(event) &&
             !std::holds_alternative<SuspendWanted>(event) && !std::holds_alternative<RungReached>(event) &&
             !std::holds_alternative<OutputCame>(event)) {
    heard_.push_back(event);
    if (heard_.size() > kHeardMax) heard_.pop_front();
  }
  if (const auto* contact = std::get_if<HostContact>(&event)) {
    const auto host = model_->hosts.find(contact->host);
    if (host != model_->hosts.end() && host->second.connected) contact_ms_[contact->host] = now_;
  }
  if (const auto* failed = std::get_if<LaunchFailed>(&event);
      failed != nullptr && failed->port_taken != 0 && concerns_anybody(*failed)) {
    taken_ports_[failed->host].insert_or_assign(failed->port_taken, now_);
  }
  if (!leaves_room_alone(event)) regrown_.clear();
  const auto stopped = being_stopped(event);
  const auto judged = being_judged(event);
  const auto unfit = being_unfit(event);
  std::set<HeldReplicaFact> lost;
  if (std::holds_alternative<Tick>(event)) lost = lost_ones();
  const std::map<ExperimentId, Failing> failed = failing();
  const size_t open = model_->free.open().size();
  keep(daemon::step(*model_, event, policy_, now_));
  if (model_->free.open().size() < open) regrown_.clear();
  // What was known of a host is forgotten with it.
  std::erase_if(taken_ports_, [&](const auto& known) { return !model_->hosts.contains(known.first); });
  if (stopped) check_consequence(*stopped);
  if (judged) check_judged(*judged);
  check_verdicts(failed);
  for (const auto& [id, now_failing] : failing()) {
    if (!failed.contains(id) && !now_failing.failure.cause) check_ended_for_silence(id);
  }
  listen(event);
  if (unfit) check_unfit(*unfit, std::get<LaunchFailed>(event).host);
  if (std::holds_alternative<Tick>(event)) {
    check_lost(lost);
    require(model_->deadlines.empty() || model_->deadlines.begin()->first > now_,
            "a tick leaves nothing that is due");
  }
  if (const auto* hello = std::get_if<HostConnected>(&event)) {
    if (said_unfit_.erase(hello->host.id) > 0) counts_.add(Seen::UnfitAgainAsked);
  }
}

void World::keep(Effects effects) {
  for (size_t i = 0; i < effects.persist.size(); ++i) {
    const auto later = effects.persist.begin() + static_cast<long>(i) + 1;
    require(std::find(later, effects.persist.end(), effects.persist[i]) == effects.persist.end(),
            "persist names a row once");
  }
  for (const ExperimentId& id : effects.persist) {
    check_given_up(model_->experiments.at(id));
    check_restarts(model_->experiments.at(id));
  }
  for (const Send& send : effects.send) {
    const bool begins = std::holds_alternative<SendLaunch>(send) || std::holds_alternative<SendStart>(send);
    if (begins) contact_ms_[host_of(send)] = now_;
  }
  waiting_.rows.insert(effects.persist.begin(), effects.persist.end());
  std::move(effects.send.begin(), effects.send.end(), std::back_inserter(waiting_.send));
  std::move(effects.notify.begin(), effects.notify.end(), std::back_inserter(waiting_.notify));
}

void World::end_turn() {
  if (model_->place_wanted) {
    const std::vector<ExperimentId> waited = waiting_in_order();
    const Sizes before = sizes(waited);
    const auto had = users_have();
    const EachHas each_had = each_has();
    const Favours favours = favours_before(waited);
    keep(place_pending(*model_, policy_, now_));
    const std::vector<ExperimentId> turns = in_turn(waited, each_had, before.regrowing);
    check_turns(turns, before, each_had);
    check_backfill(turns);
    check_quota_order(turns, had);
    check_avoided(waited);
    check_sizes(waited, before);
    check_give_way(waited, favours);
  }
  if (waiting_.empty() && waiting_.killed.empty()) return;
  if (!calm_ && one_in(400)) {
    note("the daemon dies before its commit");
    restart_daemon();
    return;
  }
  if (!commit()) return;
  const std::vector<Send> send = std::exchange(waiting_, {}).send;
  for (const Send& message : send) {
    if (!calm_ && one_in(600)) {
      note("the daemon dies after its commit, before all is sent");
      counts_.add(Seen::SendsLost);
      restart_daemon();
      return;
    }
    if (const auto* launch = std::get_if<SendLaunch>(&message); launch && !calm_ && one_in(300)) {
      note("a Launch of {} can't be sent", to_string(launch->id));
      counts_.add(Seen::LaunchUnsent);
      happen(LaunchFailed{launch->host, launch->id, "no folder", 0, true});
      continue;
    }
    deliver(message);
  }
  if (calm_ || chance(50)) close_finished();
}

void World::write_rows() {
  for (const ExperimentId& id : waiting_.rows) {
    Experiment& row = rows_[id];
    row = durable(model_->experiments.at(id));
    spent_rows_[id] = spent_[id];
    check_committed(row);
  }
}

// What the bytes in the database say of a row.
Experiment World::read_row(const Experiment& row) const {
  pb::ExperimentRecord record;
  const std::string bytes = to_record(row, now_, kBoot).SerializeAsString();
  require(record.ParseFromString(bytes), "a row can be read");
  auto read = from_record(record, row.id, row.submission, now_, kBoot);
  require(read.ok(), "a row makes sense");
  require(*read == row, [&] { return to_string(row.id) + " is read as it was written"; });
  return std::move(*read);
}

// False: everything waits for the next try. The disk may have kept it all the same, as the next
// daemon sees when this one dies first.
bool World::commit() {
  if (!calm_ && one_in(50)) {
    note("the commit fails");
    counts_.add(Seen::CommitFailed);
    if (chance(30)) {
      counts_.add(Seen::FailedCommitKept);
      write_rows();
      kept_notify_ = waiting_.notify;
    }
    return false;
  }
  write_rows();
  for (const ExperimentId& id : waiting_.killed) {
    const auto row = rows_.find(id);
    require(row != rows_.end() && row->second.outcome.has_value(),
            [&] { return to_string(id) + " has its end in the database when a kill is answered"; });
  }
  kept_notify_.clear();
  for (const StateChange& change : waiting_.notify) check_shown(change);
  return true;
}

void World::deliver(const Send& send) {
  for (FakeHost& host : hosts_) {
    if (host.inventory.id != host_of(send) || !host.at_daemon) continue;
    if (traced_) note("to {}: {}", host.inventory.name, text_of(send));
    check_sendable(host, send);
    check_said_once(*host.at_daemon, send);
    if (!host.at_daemon->runner_open) continue;  // into a pipe that nobody reads
    std::deque<ToRunner>& down = host.at_daemon->down;
    if (const auto* launch = std::get_if<SendLaunch>(&send)) {
      const Experiment& experiment = model_->experiments.at(launch->id.experiment);
      LaunchMessage message{
          launch->id, experiment.spec().stop_grace_ms,
          !experiment.spec().data.empty(), {}};
      for (const Replica& replica : experiment.replicas) {
        const auto& named = launch->replicas;
        if (std::find(named.begin(), named.end(), replica.id) == named.end()) continue;
        message.replicas.emplace_back(replica.seat, replica.lease_ms);
      }
      down.emplace_back(std::move(message));
    } else if (const auto* start = std::get_if<SendStart>(&send)) {
      down.emplace_back(*start);
    } else if (const auto* stop = std::get_if<SendStop>(&send)) {
      down.emplace_back(*stop);
    } else {
      down.emplace_back(std::get<SendForget>(send));
    }
  }
}

// ---- streams: each is read in order; between those of one host there is none

void World::read_stream(FakeHost& host) {
  std::vector<std::shared_ptr<Stream>> readable;
  for (const auto& stream : host.unread) {
    if (stream->up.empty() || !stream->daemon_open) continue;
    const bool late = stream->dawdles && !stream->greeted && !calm_;
    if (!late || one_in(50)) readable.push_back(stream);
  }
  std::erase_if(host.unread, [](const auto& stream) {
    return !stream->daemon_open || (!stream->runner_open && stream->up.empty());
  });
  if (readable.empty()) return;
  const std::shared_ptr<Stream> stream = readable[below(readable.size())];
  const FromRunner message = std::move(stream->up.front());
  stream->up.pop_front();
  if (const auto* hello = std::get_if<HelloMessage>(&message)) {
    on_hello(host, stream, *hello);
    return;
  }
  if (!stream->runner_open && host.stream) counts_.add(Seen::BrokenStreamRead);
  if (const auto* renew = std::get_if<RenewMessage>(&message)) {
    happen(HostContact{host.inventory.id});
    if (stream->runner_open) stream->down.emplace_back(RenewedMessage{renew->sent_ms});
    return;
  }
  const Event& event = std::get<Event>(message);
  note("{} reports (event {})", host.inventory.name, event.index());
  happen(event);
}

// What an older stream still carries is dropped from here on; its Hello may yet come, as late as it
// likes, and is refused.
void World::on_hello(FakeHost& host, const std::shared_ptr<Stream>& stream,
                     const HelloMessage& hello) {
  note("{} says hello with {} held", host.inventory.name, hello.event.held.size());
  uint64_t& newest = newest_dial_[host.inventory.id];
  if (hello.dialled < newest) {
    note("its hello is older than the last one");
    counts_.add(Seen::OlderHelloRefused);
    stream->daemon_open = false;
    return;
  }
  newest = hello.dialled;
  if (host.at_daemon && host.at_daemon != stream) {
    if (!host.at_daemon->up.empty()) counts_.add(Seen::OlderStreamDropped);
    host.at_daemon->daemon_open = false;
  }
  stream->greeted = true;
  host.at_daemon = stream;
  if (stream->runner_open) stream->down.emplace_back(WelcomeMessage{hello.sent_ms});
  for (const HeldReplicaFact& fact : hello.event.held) {
    const auto found = model_->experiments.find(fact.replica.experiment);
    if (found == model_->experiments.end()) continue;
    for (const Replica& replica : found->second.replicas) {
      if (replica.id == fact.replica && replica.attempt == fact.attempt && replica.lost) {
        counts_.add(Seen::CameBackAfterLoss);
      }
    }
  }
  happen(hello.event);
  const auto known = model_->hosts.find(host.inventory.id);
  if (!known->second.strays.empty()) counts_.add(Seen::Stray);
}

void World::see_closed(FakeHost& host) {
  if (!host.at_daemon || host.at_daemon->runner_open) return;
  note("the daemon sees that {} is gone", host.inventory.name);
  host.at_daemon->daemon_open = false;
  host.at_daemon = nullptr;
  happen(HostDisconnected{host.inventory.id});
  // With another key it may come back all the same.
  if (!calm_ && one_in(8)) happen(HostRevoked{host.inventory.id});
}

// By the daemon: what it said is still read.
void World::end_stream(FakeHost& host) {
  if (!host.at_daemon) return;
  note("the daemon ends the stream of {}", host.inventory.name);
  host.at_daemon->daemon_open = false;
  host.at_daemon = nullptr;
  happen(HostDisconnected{host.inventory.id});
}

// ---- what outlives the daemon

void World::restart_daemon() {
  if (!waiting_.empty()) counts_.add(Seen::TailLost);
  waiting_ = {};
  regrown_.clear();
  for (FakeHost& host : hosts_) {
    for (const auto& stream : host.unread) stream->daemon_open = false;
    host.unread.clear();
    host.at_daemon = nullptr;
  }
  listened_.clear();
  heard_.clear();  // said to the daemon that died; what matters is said again after Hello
  model_ = std::make_unique<Model>();
  model_->quotas = quotas_;
  model_->fair_share = fair_share_;
  newest_dial_.clear();
  taken_ports_.clear();
  for (const auto& submission : submissions_) {
    const uint32_t last = submission->last_member();
    for (uint32_t member = submission->first_member(); member <= last; ++member) {
      Experiment experiment = first_state(submission, member);
      model_->experiments.emplace(experiment.id, std::move(experiment));
    }
  }
  for (const auto& [id, row] : rows_) model_->experiments.insert_or_assign(id, read_row(row));
  model_->drained = drained_;
  spent_ = spent_rows_;
  forget_unsaid();
  rebuild(*model_, now_);
  // That a Hello made up for it may not have been committed; each host says Hello again.
  for (const auto& [host, ids] : model_->unfit) said_unfit_[host].insert(ids.begin(), ids.end());
  restarted_ms_ = model_->live.empty() ? 0 : now_;
  for (const StateChange& change : std::exchange(kept_notify_, {})) check_shown(change);
}

void World::tick_if_due() {
  if (model_->deadlines.empty() || model_->deadlines.begin()->first > now_) return;
  note("tick");
  happen(Tick{});
}

// What is over, and committed, leaves memory.
void World::close_finished() {
  std::erase_if(submissions_, [&](const auto& submission) {
    const ExperimentId first{submission->number, 0};
    const auto live = model_->live.lower_bound(first);
    if (live != model_->live.end() && live->number == submission->number) return false;
    const auto of_it = [&](const auto& entry) { return entry.first.number == submission->number; };
    std::erase_if(model_->experiments, of_it);
    std::erase_if(rows_, of_it);
    std::erase_if(spent_, of_it);
    std::erase_if(spent_rows_, of_it);
    return true;
  });
}

}  // namespace dtrain::sim
