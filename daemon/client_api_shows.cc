// What the CLI shows: the daemon, what a submission would come to, lists, and all of one experiment.
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <set>

#include "daemon/client_api.h"
#include "daemon/describe.h"
#include "daemon/fair_share.h"
#include "daemon/incoming_messages.h"
#include "daemon/record.h"
#include "daemon/placement_elastic.h"
#include "daemon/preemption.h"
#include "daemon/quota.h"
#include "daemon/summary.h"
#include "daemon/waits_for.h"
#include "schema/clock.h"
#include "schema/version.h"

namespace dtrain::daemon {

namespace {

// So that a reply stays a message, whatever the size of a set.
constexpr size_t kShownEventsMax = 2'000;
// Of all members of a reply together.
constexpr size_t kShownMetricsMax = 16'000;
constexpr size_t kShownParameterBytesMax = size_t{512} << 10;
// Past this much a list goes on in another reply.
constexpr size_t kListBytes = size_t{512} << 10;
constexpr size_t kListedNoteBytes = 200;

size_t members_at_once(const Spec& spec) {
  size_t parameter_bytes = 1;
  for (const Parameter& parameter : spec.parameters) {
    size_t longest = 0;
    for (const std::string& value : parameter.values) longest = std::max(longest, value.size());
    parameter_bytes += parameter.name.size() + longest;
  }
  return std::max<size_t>(
      std::min({kShownMembersMax, kShownMetricsMax / std::max<size_t>(spec.metrics.size(), 1),
                kShownParameterBytesMax / parameter_bytes}),
      1);
}

// A note is as long as somebody likes. Of one of many its beginning will do.
pb::ExperimentInfo for_list(pb::ExperimentInfo info) {
  std::string& note = *info.mutable_note();
  if (note.size() <= kListedNoteBytes) return info;
  size_t end = kListedNoteBytes;
  while (end > 0 && (note[end] & 0xC0) == 0x80) --end;   // no half of a character
  note.resize(end);
  note += "...";
  return info;
}

void add_metrics(const Metrics::Values& metrics, uint32_t member, pb::ExperimentInfo& info) {
  const auto found = metrics.find(member);
  if (found == metrics.end()) return;
  info.mutable_metrics()->Add(found->second.begin(), found->second.end());
}

// Those from `first` on, as many as fit.
std::vector<const Experiment*> page_of(const std::vector<const Experiment*>& members, uint32_t first,
                                       size_t most) {
  const auto begin = std::find_if(members.begin(), members.end(), [&](const Experiment* member) {
    return member->id.member >= first;
  });
  const auto left = static_cast<size_t>(members.end() - begin);
  return {begin, begin + static_cast<std::ptrdiff_t>(std::min(left, most))};
}

}  // namespace

grpc::ServerUnaryReactor* ClientApi::Info(grpc::CallbackServerContext* context,
                                          const pb::InfoRequest*, pb::InfoReply* reply) {
  return answer(context, [this, reply](const Person&) { return info(*reply); });
}

grpc::ServerUnaryReactor* ClientApi::Plan(grpc::CallbackServerContext* context,
                                          const pb::PlanRequest* request, pb::PlanReply* reply) {
  return answer(context, [this, request, reply](const Person& person) { return plan_for(person, *request, *reply); });
}

grpc::ServerUnaryReactor* ClientApi::List(grpc::CallbackServerContext* context,
                                          const pb::ListRequest* request, pb::ListReply* reply) {
  return answer(context, [this, request, reply](const Person&) { return list(*request, *reply); });
}

grpc::ServerUnaryReactor* ClientApi::Show(grpc::CallbackServerContext* context,
                                          const pb::ShowRequest* request, pb::ShowReply* reply) {
  return answer(context, [this, request, reply](const Person& person) { return show(person, *request, *reply); });
}

Status ClientApi::info(pb::InfoReply& reply) {
  const Model& model = parts_.scheduler.model();
  reply.set_trouble(parts_.scheduler.trouble());
  reply.set_version(kVersion);
  reply.set_protocol(kProtocol);
  reply.set_pid(static_cast<uint64_t>(getpid()));
  reply.set_home(parts_.home.root.string());
  reply.set_socket(parts_.home.socket().string());
  reply.set_started_unix_ms(started_unix_ms_);
  if (network_ != nullptr) {
    const Endpoint& at = network_->listens();
    if (at.port != 0) reply.set_listens(to_string(at));
    reply.set_listen_trouble(network_->trouble());
  }
  if (parts_.open_metrics != nullptr) {
    const Endpoint& at = parts_.open_metrics->listens();
    if (at.port != 0) reply.set_open_metrics(fmt::format("http://{}/metrics", to_string(at)));
    reply.set_open_metrics_trouble(parts_.open_metrics->trouble());
  }
  const FairShare share(model);
  for (const UserUse& use : users_of(model)) {
    pb::UserInfo& info = *reply.add_users();
    info.set_user(use.user);
    info.set_cpus(use.used.cpus);
    info.set_memory_bytes(static_cast<uint64_t>(use.used.memory_bytes));
    info.set_gpus(static_cast<uint32_t>(use.used.gpus));
    if (!model.fair_share.empty()) {
      info.set_share(share.part_of(use.user));
      info.set_weight(share.weight_of(use.user));
    }
    if (use.quota == nullptr) continue;
    if (use.quota->cpus) info.set_cpus_quota(*use.quota->cpus);
    if (use.quota->memory_bytes) info.set_memory_quota(*use.quota->memory_bytes);
    if (use.quota->gpus) info.set_gpus_quota(static_cast<uint32_t>(*use.quota->gpus));
  }
  reply.set_experiments_live(static_cast<uint32_t>(parts_.scheduler.live_count()));
  reply.set_replicas_running(static_cast<uint32_t>(running_replicas().size()));
  reply.set_hosts_connected(static_cast<uint32_t>(
      std::count_if(model.hosts.begin(), model.hosts.end(),
                    [](const auto& entry) { return entry.second.connected; })));
  return ok();
}

Status ClientApi::plan_for(const Person& person, const pb::PlanRequest& request, pb::PlanReply& reply) {
  const std::string& user = person.user.empty() ? request.user() : person.user;
  ParseOptions options;
  options.file_name = "the submitted YAML";
  TRY(const Spec spec, parse_spec(request.spec_yaml(), options));
  TRY(const std::string awaited, parts_.scheduler.check_awaited(spec));
  TRY(parts_.scheduler.check_quota(spec, user));
  const std::string over_quota = quota_wait_text(parts_.scheduler.model(), spec, user);
  const Placement placement = plan(parts_.scheduler.model(), spec, hosts_wanted(spec));
  if (const auto* never = std::get_if<Never>(&placement)) {
    return Error{Code::InvalidArgument, never->reason, never->hint};
  }
  if (const auto* waits = std::get_if<Waits>(&placement)) {
    std::string reason = awaited.empty() ? waits->reason : fmt::format("{}; {}", awaited, waits->reason);
    const auto who = who_would_give_way(parts_.scheduler.model(), spec, hosts_wanted(spec), boottime_ms());
    if (!over_quota.empty()) reason = over_quota + "; " + reason;
    if (!who.empty() && awaited.empty() && over_quota.empty()) reason += "; " + give_way_text(who);
    reply.set_wait_reason(reason);
    return ok();
  }
  const Placed& placed = std::get<Placed>(placement);
  reply.set_notice(placed.notice);
  reply.set_wait_reason(over_quota);
  if (spec.suspend) reply.set_wait_reason("it begins suspended, until `resume`");
  if (!spec.suspend && !awaited.empty()) reply.set_wait_reason(awaited);
  for (const Seat& seat : placed.seats) {
    pb::SeatInfo& info = *reply.add_seats();
    info = to_message(seat);
    const auto host = parts_.scheduler.model().hosts.find(seat.host);
    if (host != parts_.scheduler.model().hosts.end()) info.set_host_name(host->second.name);
  }
  return ok();
}

Status ClientApi::list(const pb::ListRequest& request, pb::ListReply& reply) {
  std::vector<uint32_t> numbers;
  if (request.all()) {
    TRY(numbers, parts_.store.numbers(request.project_dir(), request.last()));
    std::reverse(numbers.begin(), numbers.end());
  } else {
    const Model& model = parts_.scheduler.model();
    for (const uint32_t number : parts_.scheduler.live_numbers()) {
      const Experiment& first = model.experiments.lower_bound({number, 0})->second;
      const std::string& project = first.submission->project_dir;
      if (!request.project_dir().empty() && project != request.project_dir()) continue;
      numbers.push_back(number);
    }
    TRY(add_unreadable(request.project_dir(), numbers));
  }
  size_t bytes = 0;
  for (const uint32_t number : numbers) {
    if (number < request.from()) continue;
    if (bytes > kListBytes) {
      reply.set_next(number);
      break;
    }
    const int before = reply.experiments_size();
    const Status added = add_to_list(number, request.members(), reply);
    if (!added.ok() && added.error().code != Code::DataLoss) return added;
    if (!added.ok()) {
      pb::ExperimentInfo& unreadable = *reply.add_experiments();
      unreadable.set_id(std::to_string(number));
      unreadable.set_state(std::string(kUnreadable));
      unreadable.set_reason(added.error().message);
    }
    for (int i = before; i < reply.experiments_size(); ++i) bytes += reply.experiments(i).ByteSizeLong();
  }
  return ok();
}

// They may live.
Status ClientApi::add_unreadable(const std::string& project_dir, std::vector<uint32_t>& numbers) {
  const auto& unreadable = parts_.scheduler.unreadable();
  if (unreadable.empty()) return ok();
  TRY(const auto here, parts_.store.numbers(project_dir, 0));
  std::ranges::copy_if(here, std::back_inserter(numbers), [&](uint32_t number) { return unreadable.contains(number); });
  std::ranges::sort(numbers);
  return ok();
}

Status ClientApi::add_to_list(uint32_t number, bool members, pb::ListReply& reply) {
  const Model& model = parts_.scheduler.model();
  const TimeMs now = boottime_ms();
  TRY(const auto known, parts_.scheduler.find({number, 0}));
  const bool is_set = known.submission->spec.is_set();
  *reply.add_experiments() = for_list(summary_of(known, {number, 0}, model, now));
  if (is_set && !members) return ok();
  TRY(const auto metrics, metrics_of(*known.submission));
  if (!is_set) add_metrics(metrics, 0, *reply.mutable_experiments()->rbegin());
  if (!is_set) return ok();
  for (const Experiment* member : shown_members(known, members_at_once(known.submission->spec))) {
    *reply.add_experiments() = for_list(describe(*member, model, now));
    add_metrics(metrics, member->id.member, *reply.mutable_experiments()->rbegin());
  }
  return ok();
}

// By member; nothing for an experiment that declares none.
Result<Metrics::Values> ClientApi::metrics_of(const Submission& submission) {
  if (submission.spec.metrics.empty()) return Metrics::Values();
  const auto& live = parts_.scheduler.model().experiments;
  const auto first = live.lower_bound({submission.number, 0});
  return parts_.metrics.values(submission,
                               first != live.end() && first->first.number == submission.number);
}

void ClientApi::add_members(const std::vector<const Experiment*>& members,
                            const Metrics::Values& metrics, pb::ShowReply& reply) {
  for (const Experiment* member : members) {
    *reply.add_members() = for_list(describe(*member, parts_.scheduler.model(), boottime_ms()));
    add_metrics(metrics, member->id.member, *reply.mutable_members()->rbegin());
  }
}

// The one that is named, else the newest of the project, else of all; by a key those that are that person's own.
Result<ExperimentId> ClientApi::id_of(const Person& person, const pb::ShowRequest& request) {
  constexpr uint32_t kLookedAtMost = 200;
  if (!request.id().empty()) return parse_experiment_id(request.id());
  for (const std::string& project : {request.project_dir(), std::string()}) {
    TRY(const auto newest, parts_.store.numbers(project, person.user.empty() ? 1 : kLookedAtMost));
    for (const uint32_t number : newest) {
      if (person.user.empty()) return ExperimentId{number, 0};
      const auto known = parts_.scheduler.find({number, 0});
      if (known.ok() && known->submission->user == person.user) return ExperimentId{number, 0};
    }
  }
  return Error{Code::NotFound, "nothing was ever submitted here", "`dtrain train` submits"};
}

Status ClientApi::show(const Person& person, const pb::ShowRequest& request, pb::ShowReply& reply) {
  TRY(const ExperimentId id, id_of(person, request));
  TRY(const auto known, parts_.scheduler.find(id));
  TRY(check_exists(known, {id, {}, {}}));
  TRY(const auto metrics, metrics_of(*known.submission));
  const bool whole_set = known.submission->spec.is_set() && id.member == 0;
  const size_t members_most = members_at_once(known.submission->spec);
  if (whole_set && request.members_from() > 0) {
    const auto page = page_of(known.experiments, request.members_from(), members_most);
    add_members(page, metrics, reply);
    const uint32_t last = page.empty() ? UINT32_MAX : page.back()->id.member;
    reply.set_members_left_out(static_cast<uint32_t>(
        std::count_if(known.experiments.begin(), known.experiments.end(),
                      [last](const Experiment* member) { return member->id.member > last; })));
    return ok();
  }
  *reply.mutable_experiment() = summary_of(known, id, parts_.scheduler.model(), boottime_ms());
  if (!whole_set) {
    std::string& reason = *reply.mutable_experiment()->mutable_reason();
    const std::string besides = holds_up(known, id);
    reason += (reason.empty() || besides.empty() ? "" : "; ") + besides;
  }
  reply.set_spec_yaml(known.submission->spec_yaml);
  reply.set_snapshot(known.submission->snapshot);
  TRY(const SubmissionExtras extras, parts_.store.extras(id.number));
  reply.mutable_user_env()->insert(extras.user_env.begin(), extras.user_env.end());
  reply.set_output_dir(parts_.scheduler.output_dir(id).string());
  reply.set_host(known.submission->host);
  for (std::string& awaited : to_strings(known.submission->spec.after)) reply.add_after(std::move(awaited));
  for (std::string& awaited : to_strings(known.submission->spec.after_end)) reply.add_after_end(std::move(awaited));
  if (whole_set) {
    const auto shown = shown_members(known, members_most);
    add_members(shown, metrics, reply);
    reply.set_members_left_out(static_cast<uint32_t>(known.experiments.size() - shown.size()));
  }
  if (!whole_set) add_metrics(metrics, id.member, *reply.mutable_experiment());
  // Each member of a set shows its own.
  std::vector<const Experiment*> own;
  if (!whole_set) own = members_of(known, id);
  if (known.shared != nullptr) own.push_back(known.shared);
  for (const Experiment* experiment : own) {
    for (const Replica& replica : experiment->replicas) {
      if (!is_shown(replica)) continue;
      *reply.add_replicas() = describe(*experiment, replica, parts_.scheduler.model().hosts);
    }
    // Of very many that have no room the reason of the whole says enough.
    constexpr int kMissingShown = 32;
    const bool placed = !experiment->replicas.empty();
    if (placed && missing_workers(*experiment) > kMissingShown) continue;
    for (const ReplicaId& replica : replica_ids(experiment->id, experiment->spec())) {
      const bool missing = is_missing(*experiment, replica);
      if (placed && !missing) continue;
      pb::ReplicaInfo& info = *reply.add_replicas();
      info.set_id(to_string(replica));
      info.set_state(std::string(to_string(State::Created)));
      if (missing) info.set_reason(kNoRoomForIt);
    }
  }
  TRY(auto events, parts_.store.events(id.number));
  std::erase_if(events, [pattern = IdPattern{id, {}, {}}](const pb::StateEvent& event) {
    const auto subject = parse_id_pattern(event.id());
    return !subject.ok() || !pattern.matches(subject->experiment);
  });
  const size_t left_out = events.size() - std::min(events.size(), kShownEventsMax);
  reply.set_events_left_out(static_cast<uint32_t>(left_out));
  for (size_t i = left_out; i < events.size(); ++i) *reply.add_events() = std::move(events[i]);
  return ok();
}

// What the disk doesn't take holds up every step of it.
std::string ClientApi::holds_up(const Scheduler::Known& known, const ExperimentId& id) const {
  std::string text;
  bool over = true;
  for (const Experiment* experiment : members_of(known, id)) {
    text = waits_for(*experiment, parts_.scheduler.model(), boottime_ms());
    over = experiment->over;
  }
  const std::string trouble = over ? "" : parts_.scheduler.trouble();
  return text + (text.empty() || trouble.empty() ? "" : "; ") + trouble;
}

}  // namespace dtrain::daemon
