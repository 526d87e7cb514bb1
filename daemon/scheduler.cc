#include "daemon/scheduler.h"

#include <malloc.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "daemon/dependencies.h"
#include "daemon/notices.h"
#include "daemon/outgoing_messages.h"
#include "daemon/quota.h"
#include "daemon/record.h"
#include "daemon/submission_size.h"
#include "daemon/summary.h"
#include "schema/clock.h"
#include "schema/quote.h"
#include "schema/spread.h"

namespace dtrain::daemon {

namespace {

constexpr auto kDiskRetry = std::chrono::seconds(1);
constexpr auto kNoteTimeEvery = std::chrono::seconds(10);
constexpr size_t kLargeTurn = 10'000;

// The highest number that something lies here for. The database may be younger: made anew after somebody moved
// it away, or restored from a backup.
Result<uint32_t> last_number(const Home& home) {
  uint32_t last = 0;
  for (const auto& folder : {home.outputs(), home.logs()}) {
    std::error_code failed;
    std::filesystem::directory_iterator item(folder, failed);
    for (; !failed && item != std::filesystem::directory_iterator(); item.increment(failed)) {
      const auto id = parse_experiment_id(item->path().stem().native());
      if (id.ok()) last = std::max(last, id->number);
    }
    if (failed) return errno_error(fmt::format("list {}", folder.string()), failed.value());
  }
  return last;
}

}  // namespace

Scheduler::Scheduler(boost::asio::io_context& loop, const Home& home, Store& store, Logs& logs,
                     Metrics& metrics, RunnerOutbox& outbox, const Policy& policy,
                     uint64_t spool_limit_bytes)
    : loop_(loop),
      home_(home),
      store_(store),
      logs_(logs),
      metrics_(metrics),
      outbox_(outbox),
      policy_(policy),
      spool_limit_bytes_(spool_limit_bytes),
      boot_id_(boot_id()),
      gathered_(loop),
      deadline_(loop),
      retry_(loop),
      noted_(loop) {}

Status Scheduler::load() {
  TRY(const uint32_t last_given, last_number(home_));
  TRY(store_.leave_out_numbers(last_given));
  TRY(const auto numbers, store_.open_numbers());
  TRY(model_.drained, store_.drained_hosts());
  TRY(const Store::NotedTime noted, store_.noted_time());
  const TimeMs now = boottime_ms();
  TRY(const auto revoked, store_.revoked_hosts());
  for (const auto& [host, known] : revoked) {
    revoked_stored_[host] = known.heard_ms;
    const TimeMs silent_ms = known.boot_id == noted.boot_id ? noted.at_ms - known.heard_ms : 0;
    model_.revoked[host] = known.boot_id == boot_id_ ? known.heard_ms : now - std::max<TimeMs>(silent_ms, 0);
  }
  for (const uint32_t number : numbers) {
    const Status loaded = load_one(number, noted, now);
    if (!loaded.ok()) TRY(set_aside(number, loaded.error()));
  }
  rebuild(model_, now);
  for (const uint32_t number : numbers) close_finished({number});
  arm_deadline();
  end_turn_soon();
  malloc_trim(0);
  return ok();
}

// All of it or nothing.
Status Scheduler::load_one(uint32_t number, const Store::NotedTime& noted, TimeMs now) {
  TRY(const auto submission, store_.submission(number));
  TRY(auto stored, store_.experiments(number));
  TRY(SubmissionExtras extras, store_.extras(number));
  std::vector<Experiment> experiments;
  std::set<ExperimentId> of_an_earlier_boot;
  for (auto& row : stored) {
    if (row.record.boot_id() == noted.boot_id) {
      const auto noted_ms = static_cast<uint64_t>(noted.at_ms);
      row.record.set_stored_at_ms(std::max(row.record.stored_at_ms(), noted_ms));
    }
    TRY(auto experiment, from_record(row.record, row.id, submission, now, boot_id_));
    if (!experiment.over && row.record.boot_id() != boot_id_) of_an_earlier_boot.insert(row.id);
    lighten(experiment);
    experiments.push_back(std::move(experiment));
  }
  const uint32_t last = submission->last_member();
  for (uint32_t member = submission->first_member(); member <= last; ++member) {
    Experiment experiment = first_state(submission, member);
    model_.experiments.emplace(experiment.id, std::move(experiment));
  }
  for (Experiment& experiment : experiments) {
    const ExperimentId id = experiment.id;
    model_.experiments.insert_or_assign(id, std::move(experiment));
  }
  // By this boot's clock, before note_time() forgets what was noted in the one before.
  waiting_rows_.merge(of_an_earlier_boot);
  extras_[number] = std::move(extras);
  logs_.prepare(number);
  return ok();
}

Status Scheduler::set_aside(uint32_t number, Error why) {
  if (why.code != Code::DataLoss) return why;
  if (unreadable_.empty()) TRY(store_.check_file());
  why.hint = fmt::format("the version that took it can read it, or DTRAIN_HOME/db of a backup; `dtrain kill {}` gives it up, and ends what of it still runs", number);
  std::fprintf(stderr, "experiment %u is set aside: %s\n", number, why.message.c_str());
  model_.unreadable.insert(number);
  unreadable_.emplace(number, std::move(why));
  return ok();
}

Status Scheduler::give_up_unreadable(uint32_t number, bool force) {
  TRY(store_.close_submission(number));
  unreadable_.erase(number);
  handle(KillWanted{{number, 0}, force});
  return ok();
}

Status Scheduler::check(const Submission& submission, const SubmissionExtras& extras) {
  TRY(const bool known, store_.has_submission(submission.submission_id));
  if (known) return ok();
  if (takes_no_more_) {
    return Error{Code::FailedPrecondition, "the daemon is being stopped, and takes nothing more", "dtrain daemon start, once it has ended"};
  }
  TRY(check_size(submission, extras));
  TRY(check_awaited(submission.spec));
  TRY(check_quota(submission.spec, submission.user));
  const Placement placement = plan(model_, submission.spec, submission.host);
  if (const Never* never = std::get_if<Never>(&placement)) {
    return Error{Code::InvalidArgument, never->reason, never->hint};
  }
  return ok();
}

Status Scheduler::check_quota(const Spec& spec, const std::string& user) const {
  const std::string over = over_quota_for_ever(model_, spec, user);
  if (over.empty()) return ok();
  return Error{Code::InvalidArgument, over, "with --preemptible it has none; quotas are in the daemon's config.yml"};
}

Status Scheduler::check_is_there(const ExperimentId& id) {
  Known known;
  if (const auto live = model_.experiments.lower_bound({id.number, 0}); live != model_.experiments.end() && live->first.number == id.number) {
    known.submission = live->second.submission;
  } else {
    auto stored = store_.submission(id.number);
    if (!stored.ok() && stored.error().code == Code::NotFound) {
      return Error{Code::NotFound, fmt::format("there is no experiment {}, and this is to come after it", id.number),
                   "--after ID names another; --set train.after=null, or train.after-end, takes it out"};
    }
    TRY(known.submission, std::move(stored));
  }
  return check_exists(known, {id, {}, {}});
}

// Nothing while it lives. What is decided counts, though it may not be committed yet.
Result<std::optional<State>> Scheduler::end_of(const ExperimentId& id) {
  if (lives(model_, id)) return std::optional<State>();
  TRY(const Known known, find(id));
  std::vector<const Experiment*> members;
  for (const Experiment* stored : known.experiments) {
    const auto found = model_.experiments.find(stored->id);
    members.push_back(found == model_.experiments.end() ? stored : &found->second);
  }
  return std::optional(set_state(members));
}

Result<std::string> Scheduler::check_awaited(const Spec& spec) {
  for (const ExperimentId& id : spec.after_end) TRY(check_is_there(id));
  for (const ExperimentId& id : spec.after) {
    TRY(check_is_there(id));
    TRY(const auto end, end_of(id));
    if (!end || *end == State::Finished) continue;
    return Error{Code::FailedPrecondition,
                 fmt::format("{} is {}: what is to come after it would never begin", to_string(id), to_string(*end)),
                 fmt::format("--after ID names another, --after-end {} takes any end", to_string(id))};
  }
  return awaited_text(model_, spec);
}

Result<pb::Accepted> Scheduler::submit(Submission submission, const SubmissionExtras& extras) {
  TRY(check(submission, extras));
  submission.submitted_unix_ms = static_cast<uint64_t>(unix_ms());
  TRY(const auto added, store_.add_submission(submission, extras));
  submission.number = added.number;

  pb::Accepted accepted;
  accepted.set_number(added.number);
  accepted.set_repeated(added.repeated);
  if (submission.spec.is_set()) {
    accepted.set_members(static_cast<uint32_t>(submission.spec.member_count()));
  }
  for (std::string& notice : notices_of(submission.spec, model_)) {
    accepted.add_notices(std::move(notice));
  }
  accepted.set_output_dir(output_dir({added.number, 0}).string());
  std::error_code ignored;   // the runner makes what is missing, and says so when it can't
  std::filesystem::create_directories(output_dir({added.number, 0}), ignored);
  if (submission.spec.is_set()) spread_subdirectories(output_dir({added.number, 0}));
  if (!added.repeated) {
    extras_[added.number] = extras;
    handle(Submitted{std::make_shared<const Submission>(std::move(submission))});
  }
  return accepted;
}

void Scheduler::handle(const Event& event) {
  if (const auto* hello = std::get_if<HostConnected>(&event)) drop_sends_to(hello->host.id);
  if (const auto* kill = std::get_if<KillWanted>(&event)) kills_.push_back(kill->id);
  keep(step(model_, event, policy_, boottime_ms()));
  end_turn_soon();
}

void Scheduler::keep(Effects&& effects) {
  waiting_rows_.insert(effects.persist.begin(), effects.persist.end());
  std::move(effects.send.begin(), effects.send.end(), std::back_inserter(waiting_send_));
  std::move(effects.notify.begin(), effects.notify.end(), std::back_inserter(waiting_notify_));
}

void Scheduler::at_end_of_turn(std::function<void(const Status&)> then) {
  at_end_of_turn_.push_back(std::move(then));
  end_turn_soon();
}

void Scheduler::end_turn_soon() {
  if (turn_posted_) return;
  turn_posted_ = true;
  if (std::chrono::steady_clock::now() - last_turn_ >= 2 * gather_) {
    boost::asio::post(loop_, [this] { end_turn(); });
    return;
  }
  gathered_.expires_after(gather_);
  gathered_.async_wait([this](boost::system::error_code error) {
    if (!error) end_turn();
  });
}

void Scheduler::end_turn() {
  turn_posted_ = false;
  last_turn_ = std::chrono::steady_clock::now();
  if (model_.place_wanted) {
    const auto began = std::chrono::steady_clock::now();
    Effects effects = place_pending(model_, policy_, boottime_ms());
    observed_.gave_way += effects.gave_way;
    keep(std::move(effects));
    observed_.placing.add(std::chrono::steady_clock::now() - began);
  }
  if (model_.place_wanted) end_turn_soon();   // somebody ended in that pass, and others may go on
  const bool large = waiting_notify_.size() > kLargeTurn;
  const Status committed = commit();
  if (!committed.ok()) {
    std::fprintf(stderr, "%s; trying again\n", committed.error().message.c_str());
    set_trouble(committed.error().message);
    send_stops_of_killed();
    retry_.expires_after(kDiskRetry);
    retry_.async_wait([this](boost::system::error_code error) {
      if (!error) end_turn_soon();
    });
  } else {
    set_trouble("");
    kills_.clear();
    note_time();
    if (large) malloc_trim(0);   // what it took for a moment goes back to the system
    arm_deadline();
  }
  for (const auto& then : std::exchange(at_end_of_turn_, {})) then(committed);
  if (on_turn) on_turn();
}

// While anything lives: what a reboot may cost a max-duration.
void Scheduler::note_time() {
  if (noting_time_ || model_.live.empty()) return;
  noting_time_ = true;
  noted_.expires_after(kNoteTimeEvery);
  noted_.async_wait([this](boost::system::error_code error) {
    if (error) return;
    noting_time_ = false;
    if (const auto noted = store_.note_time(boot_id_, boottime_ms()); !noted.ok()) {
      std::fprintf(stderr, "%s\n", noted.error().message.c_str());
    }
    note_time();
  });
}

void Scheduler::set_trouble(std::string why) {
  if (why == trouble_) return;
  trouble_ = std::move(why);
  logs_.wake_all();
}

std::string Scheduler::trouble() const {
  const std::string& why = trouble_.empty() ? logs_.trouble() : trouble_;
  if (why.empty()) return "";
  return fmt::format("the daemon can't write: {}; what it decides waits for that, and goes on by "
                     "itself", as_utf8(why));
}

// With the facts of an experiment that is over go the metrics it said last.
StoredExperiment Scheduler::row_of(const Experiment& experiment, TimeMs now) {
  StoredExperiment row{experiment.id, to_record(experiment, now, boot_id_)};
  if (experiment.over && !experiment.spec().metrics.empty()) {
    row.metrics = metrics_.last_record(experiment);
  }
  return row;
}

// Persist, then notify and send. On error nothing has left the daemon and everything still waits.
Status Scheduler::commit() {
  std::vector<StoredExperiment> rows;
  const TimeMs now = boottime_ms();
  for (const ExperimentId& id : waiting_rows_) {
    const auto found = model_.experiments.find(id);
    if (found == model_.experiments.end()) continue;
    Experiment& experiment = found->second;
    // Killed while it waited, say: no exit told when.
    if (experiment.over && experiment.finished_unix_ms == 0) {
      experiment.finished_unix_ms = static_cast<uint64_t>(unix_ms());
    }
    rows.push_back(row_of(experiment, now));
  }
  std::vector<pb::StateEvent> events;
  for (const StateChange& change : waiting_notify_) {
    events.push_back(to_message(change, static_cast<uint64_t>(unix_ms())));
    logs_.prepare(change.experiment.number);
  }
  if (model_.revoked != revoked_stored_) {
    TRY(store_.put_revoked(model_.revoked, boot_id_));
    revoked_stored_ = model_.revoked;
  }
  const auto began = std::chrono::steady_clock::now();
  TRY(store_.commit(rows, events));
  if (!rows.empty() || !events.empty()) observed_.committing.add(std::chrono::steady_clock::now() - began);
  for (const StateChange& change : waiting_notify_) observe(change);

  // Taken now: sending may fail and decide more, which is for the next commit.
  std::set<uint32_t> touched;
  for (const ExperimentId& id : std::exchange(waiting_rows_, {})) {
    touched.insert(id.number);
    const auto found = model_.experiments.find(id);
    if (found == model_.experiments.end()) continue;
    if (found->second.over) metrics_.forget(id);
    lighten(found->second);
  }
  const auto notified = std::exchange(waiting_notify_, {});
  for (size_t i = 0; i < events.size(); ++i) logs_.append(notified[i].experiment.number, events[i]);
  for (const Send& message : std::exchange(waiting_send_, {})) send(message);
  close_finished(touched);
  for (const uint32_t number : std::exchange(unclosed_, {})) close(number);
  return ok();
}

void Scheduler::observe(const StateChange& change) {
  const auto found = model_.experiments.find(change.experiment);
  if (change.replica || found == model_.experiments.end() || found->second.is_shared()) return;   // a set's own
  if (is_terminal(change.state)) ++observed_.ended[change.state];
  if (change.state == State::Running) ++observed_.starts;
}

// Only live experiments have their journal made good by the next daemon: so it is whole first.
void Scheduler::close_finished(const std::set<uint32_t>& numbers) {
  for (const uint32_t number : numbers) {
    const auto first = model_.experiments.lower_bound({number, 0});
    if (first == model_.experiments.end() || first->first.number != number) continue;
    if (is_over({number, 0})) logs_.close(number, [this, number] { close(number); });
  }
}

// What is over leaves memory: the store has it. Its hosts may forget it too, they were told.
void Scheduler::close(uint32_t number) {
  if (const auto status = store_.close_submission(number); !status.ok()) {
    std::fprintf(stderr, "%s\n", status.error().message.c_str());
    unclosed_.insert(number);   // the next commit that works tries again
    return;
  }
  extras_.erase(number);
  metrics_.close(number);
  model_.experiments.erase(model_.experiments.lower_bound({number, 0}),
                           model_.experiments.lower_bound({number + 1, 0}));
}

void Scheduler::arm_deadline() {
  if (model_.deadlines.empty()) {
    deadline_.cancel();
    return;
  }
  const TimeMs wait_ms = std::max<TimeMs>(model_.deadlines.begin()->first - boottime_ms(), 0);
  deadline_.expires_after(std::chrono::milliseconds(wait_ms));
  deadline_.async_wait([this](boost::system::error_code error) {
    if (!error) handle(Tick{});
  });
}
}  // namespace dtrain::daemon
