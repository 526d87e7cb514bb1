#include "runner/held_launch.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <utility>

#include "runner/cleanup.h"
#include "runner/keeper.h"
#include "runner/lost_keeper.h"
#include "schema/clock.h"
#include "schema/materialise.h"
#include "schema/quote.h"

namespace dtrain::runner {
namespace asio = boost::asio;
namespace {

constexpr std::chrono::milliseconds kLookAgain{200};

ReplicaExit never_started() {
  ReplicaExit exit;
  exit.code = 128 + SIGTERM;
  exit.signal = SIGTERM;
  exit.cause = "stopped before it started";
  exit.ended_unix_ms = unix_ms();
  return exit;
}

Error keeper_failed(std::string_view word) {
  return {Code::Internal,
          fmt::format("the keeper ended before it was ready{}{}", word.empty() ? "" : ": ", word), ""};
}

// What concerns one replica, to hand to another thread: a gang's file is large.
LaunchRecord only_of(const LaunchRecord& file, const ReplicaId& id) {
  LaunchRecord one;
  one.experiment = file.experiment;
  one.attempt = file.attempt;
  one.work_root = file.work_root;
  one.tree = file.tree;
  for (const ReplicaLaunch& replica : file.replicas) {
    if (replica.id == id) one.replicas.push_back(replica);
  }
  return one;
}

}  // namespace

HeldLaunch::HeldLaunch(LaunchContext& context, const LaunchId& id)
    : context_(context),
      id_(id),
      directory_(context.site.launches() / to_string(id)),
      spools_(directory_),
      facts_(directory_),
      keeper_(context.loop, context.ends, directory_,
              {[this] { on_keeper_gone(); }, [this] { return awaits_ends(); },
               [this](const auto& ends) { on_strays_gone(ends); }}),
      making_(context.loop, context.files, context.site),
      client_(context.loop, {[this] { look(); }, [this] { on_keeper_unreachable(); }}),
      ready_(context.loop),
      look_again_(context.loop) {}

HeldLaunch::~HeldLaunch() = default;

Replica* HeldLaunch::find(const ReplicaId& id) {
  for (const auto& replica : replicas_) {
    if (replica->id() == id) return replica.get();
  }
  return nullptr;
}

bool HeldLaunch::holds(const ReplicaId& id) const {
  return stage_ != Stage::Failed &&
         std::any_of(replicas_.begin(), replicas_.end(),
                     [&](const auto& replica) { return replica->id() == id; });
}

void HeldLaunch::add_replicas(const std::vector<ReplicaId>& ids) {
  for (const ReplicaId& id : ids) {
    replicas_.push_back(std::make_unique<Replica>(spools_, id, id_.attempt, context_.window));
  }
}

// ---- from Launch to Prepared

void HeldLaunch::prepare(const pb::Launch& message, const std::vector<ReplicaId>& replicas) {
  add_replicas(replicas);
  streaming_ = true;  // it came over the stream that is open
  for (const auto& replica : replicas_) replica->resume({});
  for (const pb::SeatInfo& seat : message.gang()) {
    const auto id = parse_replica_id(seat.replica());
    if (!id.ok() || find(*id) == nullptr) continue;
    if (auto held = ports_.hold(static_cast<int>(seat.port())); !held.ok()) {
      const bool taken = held.error().code == Code::AlreadyExists;
      fail(held.error(), taken ? static_cast<int>(seat.port()) : 0);
      return;
    }
  }
  making_.make_ready(message, directory_, [this](LaunchFiles::Made&& made) { on_files_ready(std::move(made)); });
}

void HeldLaunch::on_files_ready(LaunchFiles::Made made) {
  auto& file = made.record;
  if (!file.ok()) return fail(file.error(), 0, made.unfit);
  if (!*file) {
    pb::Prepared& prepared = *failure_.mutable_prepared();
    prepared.set_experiment(to_string(id_.experiment));
    prepared.set_attempt(id_.attempt);
    prepared.set_of_builds(id_.of_builds);
    prepared.set_cached(true);
    return keep_nothing();
  }
  file_ = std::move(**file);
  carry_outputs();
  if (all_asked_to_stop()) return abandon();
  if (auto coming = bring_up_keeper(); !coming.ok()) fail(coming.error(), 0);
}

Status HeldLaunch::bring_up_keeper() {
  TRY(SpawnedKeeper keeper, context_.keepers.start(directory_));
  stage_ = Stage::KeeperComing;
  keeper_.watch(std::move(keeper.process));
  ready_.assign(keeper.ready.release());
  ready_.async_read_some(asio::buffer(word_), [this](boost::system::error_code error, size_t size) {
    if (error != asio::error::operation_aborted) on_keeper_word({word_.data(), size});
  });
  return ok();
}

void HeldLaunch::on_keeper_word(std::string_view word) {
  ready_.close();
  if (stage_ != Stage::KeeperComing) return;
  if (word != "ready\n") {
    context_.host_changed();  // before the daemon places it again: a GPU may be somebody else's now
    return fail(keeper_failed(word), 0);
  }
  if (auto opened = client_.open(file_.ctl); !opened.ok()) return fail(opened.error(), 0);
  stage_ = Stage::Prepared;
  report_prepared();
  for (const auto& [id, grace_ms] : client_.stops()) keeper_.await_ends(grace_ms);
}

void HeldLaunch::report_prepared() {
  pb::FromRunner message;
  message.mutable_prepared()->set_experiment(to_string(id_.experiment));
  message.mutable_prepared()->set_attempt(id_.attempt);
  message.mutable_prepared()->set_of_builds(id_.of_builds);
  context_.outbox.send(std::move(message));
}

// A launch that failed is not held any more: the daemon decides what comes next, and may ask again.
void HeldLaunch::fail(const Error& error, int port_taken, bool unfit) {
  fmt::print(stderr, "{}: not prepared: {}\n", to_string(id_), error.message);
  pb::PrepareFailed& failed = *failure_.mutable_prepare_failed();
  failed.set_experiment(to_string(id_.experiment));
  failed.set_attempt(id_.attempt);
  failed.set_of_builds(id_.of_builds);
  failed.set_reason(
      as_utf8(error.hint.empty() ? error.message : error.message + "; " + error.hint));
  failed.set_port_taken(static_cast<uint32_t>(port_taken));
  failed.set_ours(!unfit && is_hosts_fault(error));
  failed.set_unfit(unfit);
  keep_nothing();
}

void HeldLaunch::keep_nothing() {
  context_.outbox.send(failure_);
  failure_told_ = streaming_;
  ports_.release();
  stage_ = Stage::Failed;
  clear_failed();
}

// Held until nothing of it is left: the daemon may ask for the same launch again.
void HeldLaunch::clear_failed() {
  auto cleared = std::make_shared<bool>(false);
  context_.files.run(
      [cleared, directory = directory_, &site = context_.site] {
        *cleared = kill_launch(directory).ok() && remove_unprepared(site, directory);
      },
      [this, cleared] {
        failure_cleared_ = *cleared;
        if (failure_cleared_) return end_failed();
        look_again_.expires_after(kLookAgain);
        look_again_.async_wait([this, alive = std::weak_ptr(alive_)](boost::system::error_code error) {
          if (!error && !alive.expired()) clear_failed();
        });
      });
}

void HeldLaunch::end_failed() {
  if (failure_told_) context_.over(id_);
}

// Every replica was stopped before there was a keeper: none is started.
void HeldLaunch::abandon() {
  ports_.release();
  stage_ = Stage::KeeperLost;
  std::map<ReplicaId, ReplicaExit> exits;
  for (const auto& replica : replicas_) exits.emplace(replica->id(), never_started());
  take_exits(exits);
}

// ---- what an earlier runner left

Status HeldLaunch::adopt() {
  TRY(const LaunchFacts facts, read_facts(directory_));
  auto file = directory_.read_launch();
  // Its keeper may live: what can't be read can't be called absent.
  if (!file.ok() && file.error().code == Code::ResourceExhausted) return std::move(file).error();
  if (!file.ok() && facts.keeper) {
    TRY(const bool alive, check_alive(*facts.keeper));
    if (alive) return std::move(file).error();
  }
  if (!file.ok() || !*file || !facts.keeper) {
    // It was never said to be prepared: the daemon will ask again.
    TRY(kill_launch(directory_));
    if (const auto key = directory_.begun_key()) remove_begun_cgroups(context_.site.cgroups, *key);
    (void)remove_unprepared(context_.site, directory_);
    return Error{Code::NotFound, to_string(id_) + " was not prepared to the end", ""};
  }
  file_ = std::move(**file);
  if (const bool elsewhere = is_of_another_home(); elsewhere || directory_.is_copy()) {
    TRY(const bool alive, check_alive(*facts.keeper));
    if (alive || (elsewhere && facts.exits.size() < file_.replicas.size())) {
      // Where this home took the place of the one that it was copied from, no runner has an eye on it any more.
      if (!elsewhere) TRY(kill_launch(directory_));
      TRY(remove_tree(directory_.path()));
      return Error{Code::NotFound, "what it runs belongs to a home of which this is a copy: " + file_.work_root, ""};
    }
  }
  carry_outputs();
  for (const ReplicaLaunch& replica : file_.replicas) add_replicas({replica.id});
  const Status watched = keeper_.watch(*facts.keeper);
  // Out of descriptors, or forbidden, is no proof of death.
  if (!watched.ok() && watched.error().code != Code::NotFound) return watched;
  const bool alive = watched.ok();
  if (alive) {
    stage_ = Stage::Prepared;
    if (!client_.open(file_.ctl).ok()) client_.open_later();
  }
  look();
  if (!alive) {
    stage_ = Stage::KeeperLost;
    if (!all_exited()) TRY(keeper_.end_strays_now());
  } else if (std::none_of(replicas_.begin(), replicas_.end(),
                          [](const auto& each) { return each->started() || each->exited(); })) {
    for (const ReplicaLaunch& replica : file_.replicas)
      (void)ports_.hold(leased_port(replica)).ok();
  }
  return ok();
}

// Then its processes are for that home's runner. One that was moved is no other.
bool HeldLaunch::is_of_another_home() const {
  std::error_code unknown;
  return std::filesystem::exists(file_.work_root, unknown) &&
         !std::filesystem::equivalent(file_.work_root, context_.site.work(), unknown) && !unknown;
}

// ---- the keeper

// It may listen in another network namespace, where no line reaches it; a signal does.
void HeldLaunch::on_keeper_unreachable() {
  if (all_asked_to_stop()) keeper_.signal(SIGTERM);
}

void HeldLaunch::on_keeper_gone() {
  client_.close();
  if (stage_ == Stage::KeeperComing) {
    ready_.close();
    return fail(keeper_failed(""), 0);
  }
  if (stage_ != Stage::Prepared) return;
  stage_ = Stage::KeeperLost;
  look();
  if (all_exited()) return;
  fmt::print(stderr, "{}: its keeper died; ending what it left\n", to_string(id_));
  keeper_.end_strays();
}

void HeldLaunch::on_strays_gone(const std::map<ReplicaId, ReplicaExit>& ends) {
  ports_.release();
  look();
  take_exits(ends);  // known already, unless the disk was full
}

void HeldLaunch::look() {
  auto facts = facts_.next();
  if (facts.ok()) {
    if (facts->keeper) keeper_.identify(*facts->keeper);
    for (const auto& [id, start] : facts->starts) {
      if (Replica* replica = find(id)) replica->on_start(start, context_.outbox);
    }
    take_exits(facts->exits);
  } else {
    fmt::print(stderr, "{}: {}; looking again\n", to_string(id_), facts.error().message);
    look_later();
  }
  may_have_output_ = true;
  context_.output_ready();
}

void HeldLaunch::look_later() {
  look_again_.expires_after(kLookAgain);
  look_again_.async_wait([this, alive = std::weak_ptr(alive_)](boost::system::error_code error) {
    if (!error && !alive.expired()) look();
  });
}

void HeldLaunch::take_exits(const std::map<ReplicaId, ReplicaExit>& exits) {
  for (const auto& [id, exit] : exits) {
    Replica* replica = find(id);
    if (replica == nullptr || replica->exited()) continue;
    replica->on_exit(exit, context_.outbox);
    let_go_of_work(*replica);
  }
  if (all_exited()) ports_.release();   // of a launch that never started
}

bool HeldLaunch::all_exited() const {
  return std::all_of(replicas_.begin(), replicas_.end(),
                     [](const auto& each) { return each->exited(); });
}

// ---- what the daemon asks

void HeldLaunch::repeat_prepared() {
  if (stage_ == Stage::Failed) context_.outbox.send(failure_);
  if (stage_ == Stage::Prepared || stage_ == Stage::KeeperLost) report_prepared();
}

void HeldLaunch::start(int64_t contact_ms) {
  // Until Prepared was said nobody may ask; a replica that was stopped stays stopped.
  if (stage_ != Stage::Prepared) return;
  contact_ms_ = contact_ms;
  ports_.release();
  client_.start(contact_ms);
}

void HeldLaunch::stop(const ReplicaId& id, int64_t grace_ms) {
  Replica* replica = find(id);
  if (replica == nullptr || replica->exited()) return;
  client_.stop(id, grace_ms);
  if (all_asked_to_stop()) making_.give_up();
  keeper_.await_ends(grace_ms);
}

bool HeldLaunch::all_asked_to_stop() const {
  return std::all_of(replicas_.begin(), replicas_.end(), [&](const auto& each) {
    return each->exited() || client_.stops().contains(each->id());
  });
}

bool HeldLaunch::awaits_ends() {
  if (stage_ == Stage::Prepared) look();
  if (stage_ != Stage::Prepared && stage_ != Stage::KeeperComing) return false;
  return std::any_of(client_.stops().begin(), client_.stops().end(), [&](const auto& asked) {
    const Replica* replica = find(asked.first);
    return replica != nullptr && !replica->exited();
  });
}

void HeldLaunch::forget(const ReplicaId& id) {
  Replica* replica = find(id);
  if (replica == nullptr || stage_ == Stage::Removing) return;
  forgotten_.insert(id);
  if (!replica->exited()) stop(id, file_.grace_ms);
  settle(*replica);
  remove_if_forgotten();
}

void HeldLaunch::acknowledge(const ReplicaId& id, uint64_t offset) {
  Replica* replica = find(id);
  if (replica == nullptr || !replica->acknowledge(offset)) return;
  client_.acked(id, replica->acked_offset());
  settle(*replica);
}

void HeldLaunch::renew(int64_t contact_ms) {
  contact_ms_ = contact_ms;
  if (file_.lease_ms != 0) client_.renew(contact_ms);
}

// ---- the stream

void HeldLaunch::resume(const std::map<ReplicaId, uint64_t>& durable) {
  streaming_ = true;
  may_have_output_ = true;
  repeat_prepared();
  if (stage_ == Stage::Failed) {
    failure_told_ = true;
    // Not from within a call on this very launch.
    if (failure_cleared_) {
      context_.files.run([] {}, [this, alive = std::weak_ptr(alive_)] {
        if (!alive.expired()) end_failed();
      });
    }
    return;
  }
  for (const auto& replica : replicas_) {
    replica->repeat(context_.outbox);
    const auto found = durable.find(replica->id());
    replica->resume(found == durable.end() ? std::nullopt : std::optional(found->second));
    settle(*replica);
  }
}

void HeldLaunch::pause() {
  streaming_ = false;
  // What was told may not have come. The next Hello names this launch, so the failure must follow it.
  failure_told_ = false;
  for (const auto& replica : replicas_) replica->pause();
}

bool HeldLaunch::pump() {
  if (!may_have_output_) return false;
  bool more = false;
  spools_.forget();
  for (const auto& replica : replicas_) more = replica->pump(context_.outbox) || more;
  // Without room in the window nobody looked; an acknowledgement makes some.
  may_have_output_ = more || !context_.window.has_room();
  const auto hindered = [](const auto& replica) { return replica->is_hindered(); };
  if (!may_have_output_ && std::any_of(replicas_.begin(), replicas_.end(), hindered)) look_later();
  return more;
}

// ---- the end

// The daemon goes on without what has had no contact for the time of its lease, and without what had exited
// when its runner stayed away.
bool HeldLaunch::may_be_outrun() const {
  return contact_ms_ == 0 || (file_.lease_ms != 0 && contact_ms_ + file_.lease_ms <= boottime_ms());
}

void HeldLaunch::carry_outputs() {
  std::optional<CarriedPlace> place;
  bool brings = false;   // for who shows what others write
  for (const ReplicaLaunch& replica : file_.replicas) {
    if (replica.id.role == Role::Build) continue;
    place = carried_place_of(context_.site.outputs(), replica);
    brings = brings || replica.id.role == Role::Tensorboard;
  }
  if (!place) return;
  pb::OutputsRequest of;
  of.set_experiment(to_string(id_.experiment));
  of.set_attempt(id_.attempt);
  of.set_submission(file_.replicas.front().env.at("DTRAIN_SUBMISSION"));
  of.set_host_id(context_.site.host_id);
  carrier_ = std::make_unique<OutputCarrier>(context_.loop, *context_.site.store, std::move(*place), std::move(of), brings);
  carrier_->begin();
}

void HeldLaunch::let_go_of_work(const Replica& replica) {
  const ReplicaId id = replica.id();
  if (!work_releasing_.insert(id).second) return;
  auto left = std::make_shared<ReleasedWork>();
  auto said = std::make_shared<std::string>();  // why it has to wait
  context_.ends.run_until_done(
      [left, said, id, file = only_of(file_, id), directory = directory_, outrun = may_be_outrun()] {
        auto released = release_work(file, directory, id, outrun);
        if (released.ok()) {
          *left = std::move(*released);
        } else if (const std::string why = released.error().message; why != *said) {
          fmt::print(stderr, "{}: {}; trying again\n", to_string(id), why);
          *said = why;
        }
        return released.ok();
      },
      [this, left, id] {
        context_.files.later([file = only_of(file_, id), id, keeps = left->keeps] {
          if (!keeps) return remove_work(file, id);
          remove_layer(file.image_layer_of(id));   // as with a container: what is to stay is in OUTPUT_DIR
          return true;
        });
        const auto released = [this, left, id](std::string remarks) {
          if (!left->remarks.empty() && !remarks.empty()) remarks.insert(0, left->remarks + "; ");
          work_released_[id] = remarks.empty() ? left->remarks : std::move(remarks);
          if (Replica* each = find(id)) settle(*each);
        };
        if (!carrier_) return released({});
        carrier_->finish(to_string(id), released);
      });
}

// Released: it has exited, its output is safe at the daemon (or nobody wants it), its view is gone.
void HeldLaunch::settle(Replica& replica) {
  const auto work = work_released_.find(replica.id());
  if (replica.released() || !replica.exited() || work == work_released_.end()) return;
  if (!replica.drained() && !forgotten_.contains(replica.id())) return;
  replica.release(work->second, context_.outbox);
  say_bye_if_over();
  remove_if_forgotten();
}

void HeldLaunch::say_bye_if_over() {
  const bool over = std::all_of(replicas_.begin(), replicas_.end(),
                                [](const auto& each) { return each->released(); });
  if (over && carrier_) carrier_->end();
  if (over) client_.bye();
}

void HeldLaunch::remove_if_forgotten() {
  if (stage_ == Stage::Removing || forgotten_.size() != replicas_.size()) return;
  for (const auto& replica : replicas_) {
    if (!replica->released()) return;
  }
  stage_ = Stage::Removing;
  context_.files.later([directory = directory_, &site = context_.site] {
    if (!remove_launch(directory)) return false;
    trim_trees(site);
    return true;
  });
  // Not from within a call on this very launch.
  context_.files.run([] {}, [this] { context_.over(id_); });
}

}  // namespace dtrain::runner
