#include "runner/agent.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "runner/carried_outputs.h"
#include "runner/cleanup.h"
#include "runner/gpu_lock.h"
#include "schema/clock.h"
#include "schema/exec_limits.h"
#include "schema/materialise.h"
#include "schema/spread.h"
#include "schema/version.h"

namespace dtrain::runner {
namespace fs = std::filesystem;
namespace asio = boost::asio;
namespace {

// Rounds of output in one turn of the loop: whatever else waits is seen to after a few
// milliseconds.
constexpr int kPumpRounds = 8;
// Copies of outputs that no launch uses are asked about.
constexpr std::chrono::minutes kCopiesEvery{1};

}  // namespace

Agent::Agent(asio::io_context& loop, AgentOptions options, LaunchSite site, Outbox& outbox,
             std::function<pb::Inventory()> inventory)
    : loop_(loop),
      options_(std::move(options)),
      site_(std::move(site)),
      outbox_(outbox),
      gate_(outbox),
      inventory_(std::move(inventory)),
      files_(loop),
      ends_(loop),
      copies_(loop),
      deletions_(loop),
      keepers_(options_.keeper_executable, site_.home / "keepers.log"),
      context_{loop_,
               files_,
               ends_,
               site_,
               gate_,
               keepers_,
               {options_.log_window_bytes, 0},
               [this] { schedule_pump(); },
               [this] { report_inventory(); },
               [this](LaunchId id) {
                 launches_.erase(id);
                 remove_unused_copies();
                 end_when_left();
               }},
      usage_(loop, options_.usage, gate_, launches_),
      renew_timer_(loop),
      old_work_timer_(loop),
      copies_timer_(loop) {}

Agent::~Agent() {
  deletes_no_more_ = true;
  for (const auto& [session, exec] : std::exchange(execs_, {})) exec->drop();
  for (const auto& [session, forward] : std::exchange(forwards_, {})) forward->drop();
  for (const auto& [session, left] : std::exchange(lefts_, {})) left->drop();
}

Status Agent::adopt() {
  std::error_code error;
  for (const fs::path& folder : {site_.launches(), site_.work()}) {
    fs::create_directories(folder, error);
    if (error) return errno_error("make " + folder.string(), error.value());
    spread_subdirectories(folder);
  }
  std::set<LaunchId> held;
  for (const fs::directory_entry& entry : fs::directory_iterator(site_.launches(), error)) {
    const std::string name = entry.path().filename().string();
    const auto id = parse_launch_id(name);
    if (!id.ok()) continue;
    auto launch = std::make_unique<HeldLaunch>(context_, *id);
    if (auto adopted = launch->adopt(); !adopted.ok()) {
      if (adopted.error().code != Code::NotFound) return std::move(adopted).error();
      fmt::print(stderr, "{}: not adopted: {}\n", name, adopted.error().message);
      continue;
    }
    fmt::print(stderr, "{}: adopted\n", name);
    held.insert(*id);
    launches_.emplace(*id, std::move(launch));
  }
  if (error) return errno_error("read " + site_.launches().string(), error.value());
  remove_old_work(site_, held, wall_pace_.keeps(unix_ms(), boottime_ms()));
  remove_old_work_later();
  delete_put_away_environments();
  return ok();
}

// Not put off as other deleting is: a launch that is not among the held ones is prepared after it.
void Agent::remove_old_work_later() {
  old_work_timer_.expires_after(options_.old_work_every);
  old_work_timer_.async_wait([this](boost::system::error_code error) {
    if (error) return;
    std::set<LaunchId> held;
    for (const auto& [id, launch] : launches_) held.insert(id);
    const bool ages_believed = wall_pace_.keeps(unix_ms(), boottime_ms());
    files_.run([&site = site_, held, ages_believed] { remove_old_work(site, held, ages_believed); },
               [this] { remove_old_work_later(); });
  });
}

// Copies of outputs stay until their experiments are over: what starts again here finds what was there.
void Agent::remove_unused_copies() {
  ask_of_copies_again_ = std::exchange(asking_of_copies_, true);
  if (ask_of_copies_again_) return;
  struct Found {
    std::vector<CarriedPlace> over;
    bool others = false;
  };
  const auto found = std::make_shared<Found>();
  const auto in_use = [this] {
    std::set<std::string> experiments;
    for (const auto& [id, launch] : launches_) experiments.insert(to_string(id.experiment));
    return experiments;
  };
  copies_.run(
      [found, in_use = in_use(), &site = site_] {
        pb::OverRequest request;
        for (const auto& [experiment, submission] : unused_copies(site.outputs(), in_use)) {
          request.add_experiments(experiment);
          request.add_submissions(submission);
        }
        if (request.experiments_size() == 0) return;
        const auto reply = site.store->over(request);
        found->others = true;
        if (!reply.ok() || reply->over_size() != request.experiments_size()) return;
        found->others = false;
        for (int i = 0; i < request.experiments_size(); ++i) {
          const CarriedPlace place = carried_place(site.outputs(), request.experiments(i), request.submissions(i));
          if (reply->over(i) && is_all_carried(place)) found->over.push_back(place);
          found->others = found->others || !reply->over(i);
        }
      },
      [this, found, in_use] {
        // In turn with launches that are prepared: one that comes later finds nothing, and brings it.
        const auto used = in_use();
        for (const CarriedPlace& place : found->over) {
          const std::string name = place.root.filename();
          if (used.contains(name.substr(0, name.find('-')))) continue;
          const auto discarded = std::make_shared<std::filesystem::path>();
          files_.run([place, discarded] { *discarded = discard_copy(place); },
                     [this, discarded] {
                       if (discarded->empty()) return;
                       files_.later([discarded] { return remove_tree(*discarded).ok(); });
                     });
        }
        asking_of_copies_ = false;
        if (ask_of_copies_again_) return remove_unused_copies();
        if (found->others) copies_later();
      });
}

void Agent::copies_later() {
  copies_timer_.expires_after(kCopiesEvery);
  copies_timer_.async_wait([this](boost::system::error_code error) {
    if (!error) remove_unused_copies();
  });
}

void Agent::on_connected() {
  pb::FromRunner message;
  pb::Hello& hello = *message.mutable_hello();
  hello_sent_ms_ = boottime_ms();
  hello.set_version(kVersion);
  hello.set_protocol(kProtocol);
  hello.set_host_id(options_.host_id);
  hello.set_boot_id(boot_id());
  hello.set_dialled_ms(static_cast<uint64_t>(hello_sent_ms_));
  if (options_.lasts_ms > 0) {
    hello.set_lasts_ms(static_cast<uint64_t>(options_.lasts_ms));
    hello.set_left_ms(static_cast<uint64_t>(std::max<int64_t>(options_.ends_ms - boottime_ms(), 0)));
  }
  *hello.mutable_inventory() = inventory();
  address_ = hello.inventory().address();
  last_inventory_ = hello.inventory().SerializeAsString();
  for (const auto& [id, launch] : launches_) {
    for (const auto& replica : launch->replicas()) {
      pb::HeldReplica& held = *hello.add_held();
      held.set_replica(to_string(replica->id()));
      held.set_attempt(replica->attempt());
    }
  }
  outbox_.send(std::move(message));
}

void Agent::on_disconnected() {
  gate_.open = false;
  renew_timer_.cancel();
  usage_.watch({});
  for (const auto& [id, launch] : launches_) launch->pause();
}

void Agent::on_message(const pb::ToRunner& message) {
  switch (message.what_case()) {
    case pb::ToRunner::kWelcome:
      return on_welcome(message.welcome());
    case pb::ToRunner::kLaunch:
      return on_launch(message.launch());
    case pb::ToRunner::kStart:
      return on_start(message.start());
    case pb::ToRunner::kStop:
      return on_stop(message.stop());
    case pb::ToRunner::kForget:
      return on_forget(message.forget());
    case pb::ToRunner::kLogAck:
      return on_log_ack(message.log_ack());
    case pb::ToRunner::kMonitor:
      return usage_.watch(
          {message.monitor().experiments().begin(), message.monitor().experiments().end()});
    case pb::ToRunner::kRenewed:
      return on_renewed(message.renewed());
    case pb::ToRunner::kPruneEnvironments:
      return on_prune_environments();
    case pb::ToRunner::kPruneTrees:
      return files_.run([&site = site_] { prune_trees(site); }, [] {});
    case pb::ToRunner::kCountEnvironments:
      return on_count_environments(message.count_environments());
    case pb::ToRunner::kExec:
      return on_exec(message.exec());
    case pb::ToRunner::kForward:
      return on_forward(message.forward());
    case pb::ToRunner::kLeft:
      return on_left(message.left());
    case pb::ToRunner::WHAT_NOT_SET:
      return;  // of a newer daemon
  }
}

// An experiment's end is told before its launch is removed, and then nothing of it needs an environment any more.
// What was forgotten is not held, while its directory waits to be deleted.
std::set<LaunchId> Agent::live_launches() const {
  std::set<LaunchId> live;
  for (const auto& [id, launch] : launches_) {
    if (launch->replicas().empty() || !launch->all_exited()) live.insert(id);
  }
  return live;
}

void Agent::on_prune_environments() {
  files_.run([&site = site_, live = live_launches()] { prune_environments(site, live); }, [this] { delete_put_away_environments(); });
}

void Agent::delete_put_away_environments() {
  deletions_.run([envs = site_.envs(), &stop = deletes_no_more_] { (void)delete_put_away(envs, stop); }, [] {});
}

void Agent::on_count_environments(const pb::CountEnvironments& asked) {
  auto answer = std::make_shared<pb::FromRunner>();
  answer->mutable_unused_environments()->set_question(asked.question());
  files_.run(
      [&site = site_, live = live_launches(), answer] {
        const Environments unused = count_unused_environments(site, live);
        answer->mutable_unused_environments()->set_count(unused.count);
        answer->mutable_unused_environments()->set_bytes(unused.bytes);
        answer->mutable_unused_environments()->set_tree_bytes(unused_tree_bytes(site));
      },
      [this, answer] { gate_.send(std::move(*answer)); });
}

void Agent::on_welcome(const pb::Welcome& welcome) {
  fmt::print(stderr, "joined the daemon {}\n", welcome.version());
  gate_.open = true;
  contact_ms_ = std::max(contact_ms_, hello_sent_ms_);
  if (welcome.renew_every_ms() > 0) {
    options_.renew_every_ms = static_cast<int64_t>(welcome.renew_every_ms());
  }
  std::map<std::pair<ReplicaId, uint32_t>, uint64_t> offsets;
  for (const pb::LogAck& log : welcome.logs()) {
    if (const auto id = parse_replica_id(log.replica()); id.ok())
      offsets[{*id, log.attempt()}] = log.offset();
  }
  for (const auto& [id, launch] : launches_) {
    std::map<ReplicaId, uint64_t> durable;
    for (const auto& replica : launch->replicas()) {
      const auto found = offsets.find({replica->id(), replica->attempt()});
      if (found != offsets.end()) durable[replica->id()] = found->second;
    }
    launch->resume(durable);
  }
  renew();
  schedule_pump();
  remove_unused_copies();
  say_leaving();
}

// A session is asked for once: the daemon gives it up where nobody claims it.
template <typename Session>
std::shared_ptr<Session> Agent::make_session(Sessions<Session>& among, size_t most, std::string_view what, const std::string& name) {
  if (!options_.dial_exec || among.contains(name)) return nullptr;
  const auto session = std::make_shared<Session>(loop_, options_.dial_exec(name), [&among, name] { among.erase(name); });
  among[name] = session;
  if (among.size() <= most) return session;
  session->refuse({Code::ResourceExhausted, fmt::format("{} {} on that host already", most, what), ""});
  return nullptr;
}

const HeldLaunch* Agent::launch_that_runs(const std::string& replica, uint32_t attempt) {
  const auto id = parse_replica_id(replica);
  const HeldLaunch* launch = id.ok() ? find_of(*id, attempt) : nullptr;
  const bool runs = launch != nullptr && std::any_of(launch->replicas().begin(), launch->replicas().end(), [&](const auto& each) {
    return each->id() == *id && each->started() && !each->exited();
  });
  return runs ? launch : nullptr;
}

void Agent::on_exec(const pb::ExecOpen& open) {
  const auto exec = make_session(execs_, kExecsMost, "commands run beside replicas", open.session());
  if (!exec) return;
  const HeldLaunch* launch = launch_that_runs(open.replica(), open.attempt());
  if (launch == nullptr) return exec->refuse({Code::FailedPrecondition, open.replica() + " does not run any more", ""});
  exec->start(launch->file(), open.replica(), open.start());
}

void Agent::on_forward(const pb::ForwardOpen& open) {
  const auto forward = make_session(forwards_, kForwardsMost, "connections to replicas are open", open.session());
  if (!forward) return;
  if (launch_that_runs(open.replica(), open.attempt()) == nullptr) {
    return forward->refuse({Code::FailedPrecondition, open.replica() + " does not run any more", ""});
  }
  forward->start(static_cast<uint16_t>(open.port()), address_, open.hears_end());
}

void Agent::on_left(const pb::LeftOpen& open) {
  const auto left = make_session(lefts_, kLeftsMost, "people fetch what replicas left", open.session());
  if (left) left->start(ends_, site_.work(), site_.inherited, open);
}

void Agent::on_launch(const pb::Launch& message) {
  const auto experiment = parse_experiment_id(message.experiment());
  std::vector<ReplicaId> replicas;
  for (const std::string& text : message.replicas()) {
    if (const auto id = parse_replica_id(text); id.ok()) replicas.push_back(*id);
  }
  if (!experiment.ok() || replicas.empty()) {
    fmt::print(stderr, "a launch of '{}' makes no sense\n", message.experiment());
    return;
  }
  const LaunchId id = launch_of(replicas.front(), message.attempt());
  auto& launch = launches_[id];
  if (launch) return launch->repeat_prepared();  // asked again: it knows
  launch = std::make_unique<HeldLaunch>(context_, id);
  launch->prepare(message, replicas);
}

void Agent::on_start(const pb::Start& start) {
  const auto experiment = parse_experiment_id(start.experiment());
  if (!experiment.ok()) return;
  if (HeldLaunch* launch = find({*experiment, start.attempt(), start.of_builds()})) launch->start(contact_ms_);
}

void Agent::on_stop(const pb::Stop& stop) {
  for (const pb::HeldReplica& each : stop.replicas()) {
    const auto id = parse_replica_id(each.replica());
    if (!id.ok()) continue;
    if (HeldLaunch* launch = find_of(*id, each.attempt())) {
      launch->stop(*id, static_cast<int64_t>(stop.grace_ms()));
    } else {
      say_released(each);
    }
  }
}

void Agent::on_forget(const pb::Forget& forget) {
  for (const pb::HeldReplica& each : forget.replicas()) {
    const auto id = parse_replica_id(each.replica());
    if (!id.ok()) continue;
    if (HeldLaunch* launch = find_of(*id, each.attempt())) launch->forget(*id);
  }
}

void Agent::on_log_ack(const pb::LogAck& ack) {
  const auto id = parse_replica_id(ack.replica());
  if (!id.ok()) return;
  if (HeldLaunch* launch = find_of(*id, ack.attempt())) {
    launch->acknowledge(*id, ack.offset());
    schedule_pump();  // the window may have room again
  }
}

// The lease counts from when the renewal was sent, not from when its answer came.
void Agent::on_renewed(const pb::Renewed& renewed) {
  const auto sent_ms = static_cast<int64_t>(renewed.sent_ms());
  if (sent_ms > boottime_ms()) return;
  contact_ms_ = std::max(contact_ms_, sent_ms);
  for (const auto& [id, launch] : launches_) launch->renew(contact_ms_);
}

HeldLaunch* Agent::find(const LaunchId& id) {
  const auto found = launches_.find(id);
  return found == launches_.end() ? nullptr : found->second.get();
}

HeldLaunch* Agent::find_of(const ReplicaId& replica, uint32_t attempt) {
  HeldLaunch* launch = find(launch_of(replica, attempt));
  return launch != nullptr && launch->holds(replica) ? launch : nullptr;
}

// Nothing of a replica that is not held is alive here, which is what a Stop is about.
void Agent::say_released(const pb::HeldReplica& replica) {
  pb::FromRunner message;
  message.mutable_released()->set_replica(replica.replica());
  message.mutable_released()->set_attempt(replica.attempt());
  gate_.send(std::move(message));
}

void Agent::schedule_pump() {
  if (pump_scheduled_ || !gate_.open) return;
  pump_scheduled_ = true;
  asio::post(loop_, [this] {
    pump_scheduled_ = false;
    pump();
  });
}

void Agent::pump() {
  for (int round = 0; round < kPumpRounds; ++round) {
    bool more = false;
    for (const auto& [id, launch] : launches_) more = launch->pump() || more;
    if (!more) return;
  }
  schedule_pump();
}

void Agent::renew() {
  pb::FromRunner message;
  message.mutable_renew()->set_sent_ms(static_cast<uint64_t>(boottime_ms()));
  gate_.send(std::move(message));
  report_inventory();
  renew_timer_.expires_after(std::chrono::milliseconds(options_.renew_every_ms));
  renew_timer_.async_wait([this](boost::system::error_code error) {
    if (!error && gate_.open) renew();
  });
}

void Agent::leave(std::function<void()> gone) {
  gone_ = std::move(gone);
  say_leaving();
  end_when_left();
}

void Agent::say_leaving() {
  if (!gone_) return;
  pb::FromRunner message;
  message.mutable_leaving();
  gate_.send(std::move(message));
}

void Agent::end_when_left() {
  if (gone_ && launches_.empty()) boost::asio::post(loop_, gone_);
}

pb::Inventory Agent::inventory() const {
  pb::Inventory now = inventory_();
  std::set<int> keepers;
  for (const auto& [id, launch] : launches_) keepers.insert(launch->keeper_pid());
  mark_locked_gpus(now, [&keepers](int pid) { return keepers.contains(pid); });
  return now;
}

// Only what changed: somebody else's program took or left a GPU.
void Agent::report_inventory() {
  pb::FromRunner message;
  *message.mutable_inventory() = inventory();
  std::string now = message.inventory().SerializeAsString();
  if (now == last_inventory_) return;
  last_inventory_ = std::move(now);
  gate_.send(std::move(message));
}

}  // namespace dtrain::runner
