// What the CLI wants ended, given back for a while, or forgotten: kill, suspend and resume, and who may prune what.
#include <utility>
#include <vector>

#include "daemon/client_api.h"
#include "daemon/summary.h"
#include "daemon/waits_for.h"
#include "schema/clock.h"
#include "schema/problems.h"

namespace dtrain::daemon {

namespace {

// Each is looked for while everybody else waits.
constexpr size_t kIdsMost = 10'000;
constexpr size_t kRefusalsTold = 8;

Error not_written_down(const pb::KillReply& reply, const Error& disk) {
  std::string ids;
  for (const auto& item : reply.items()) ids += (ids.empty() ? "" : ", ") + item.id();
  return {disk.code,
          fmt::format("the processes of {} are being ended, but that can't be written down: {}", ids,
                      disk.message),
          "free some space on the disk of DTRAIN_HOME; the rest then goes by itself"};
}

}  // namespace

grpc::ServerUnaryReactor* ClientApi::Kill(grpc::CallbackServerContext* context, const pb::KillRequest* request, pb::KillReply* reply) {
  return durable_answer(context, [this, request, reply](const Person& person) { return kill(person, *request, *reply); },
                        [reply](const Status& committed) {
                          return committed.ok() ? ok() : Status(not_written_down(*reply, committed.error()));
                        });
}

grpc::ServerUnaryReactor* ClientApi::Suspend(grpc::CallbackServerContext* context, const pb::SuspendRequest* request,
                                             pb::SuspendReply* reply) {
  return durable_answer(context, [this, request, reply](const Person& person) { return suspend(person, *request, *reply); },
                        [this, reply](const Status& committed) { return committed.ok() ? add_states(*reply) : committed; });
}

// All or none: that the second word is a mistake must not be found out after the first is dead.
Status ClientApi::kill(const Person& person, const pb::KillRequest& request, pb::KillReply& reply) {
  TRY(check_each_whole(person, request.ids(), "kill"));
  const std::string& by = person.user.empty() ? request.user() : person.user;
  for (const auto& id : request.ids()) {
    pb::KillReply::Item& item = *reply.add_items();
    item.set_id(id);
    TRY(kill_one(id, request.force(), by, item));
  }
  return ok();
}

Status ClientApi::check_each_whole(const Person& person, const google::protobuf::RepeatedPtrField<std::string>& ids, std::string_view verb) {
  if (static_cast<size_t>(ids.size()) > kIdsMost) {
    return Error{Code::InvalidArgument, fmt::format("{} IDs are more than {} at once", ids.size(), kIdsMost), "a part of them at a time"};
  }
  std::vector<Error> refused;
  for (const std::string& id : ids) {
    if (auto status = check_whole(person, id, verb); !status.ok()) refused.push_back(std::move(status).error());
    if (refused.size() == kRefusalsTold) break;
  }
  if (refused.empty()) return ok();
  Error all = joined(std::move(refused));
  if (ids.size() > 1) all.message += "; nothing is done";
  return all;
}

Status ClientApi::check_whole(const Person& person, const std::string& id, std::string_view verb) {
  TRY(const IdPattern pattern, parse_id_pattern(id));
  if (pattern.names_replicas()) {
    return Error{Code::InvalidArgument, fmt::format("{} is one replica of a gang", id),
                 fmt::format("of the whole experiment: dtrain {} {}", verb, to_string(pattern.experiment))};
  }
  if (verb == "kill" && pattern.experiment.member == 0 && parts_.scheduler.unreadable().contains(pattern.experiment.number)) {
    return may_administer(person, "kill of what can't be read");   // nor whose it is
  }
  TRY(const auto known, parts_.scheduler.find(pattern.experiment));
  TRY(check_exists(known, pattern));
  return may_change(person, *known.submission, verb, id);
}

Status ClientApi::suspend(const Person& person, const pb::SuspendRequest& request, pb::SuspendReply& reply) {
  TRY(check_each_whole(person, request.ids(), request.resume() ? "resume" : "suspend"));
  for (const std::string& id : request.ids()) {
    TRY(const IdPattern pattern, parse_id_pattern(id));
    pb::SuspendReply::Item& item = *reply.add_items();
    item.set_id(id);
    item.set_ending(true);
    // As it is decided, which may not be committed yet.
    const auto& experiments = parts_.scheduler.model().experiments;
    const auto end = experiments.lower_bound({pattern.experiment.number + 1, 0});
    for (auto it = experiments.lower_bound(pattern.experiment); it != end; ++it) {
      const Experiment& each = it->second;
      if (!pattern.matches(each.id) || each.is_shared() || each.outcome) continue;
      item.set_ending(false);
      item.set_changed(item.changed() || each.suspended == request.resume());
    }
    parts_.scheduler.handle(SuspendWanted{pattern.experiment, !request.resume()});
  }
  return ok();
}

// What has ended of somebody's own; what is everybody's, by an admin.
Status ClientApi::may_prune(const Person& person, const pb::PruneRequest& request) const {
  if (static_cast<size_t>(request.numbers_size()) > kIdsMost) {
    return Error{Code::InvalidArgument, fmt::format("{} numbers are more than {} at once", request.numbers_size(), kIdsMost), "a part of them at a time"};
  }
  if (person.is_admin) return ok();
  if (request.environments() || request.trees()) return may_administer(person, "prune of what hosts keep");
  for (const uint32_t number : request.numbers()) {
    TRY(const auto known, parts_.scheduler.find({number, 0}));
    TRY(may_change(person, *known.submission, "prune", std::to_string(number)));
  }
  return ok();
}

Status ClientApi::add_states(pb::SuspendReply& reply) {
  for (auto& item : *reply.mutable_items()) {
    TRY(const IdPattern pattern, parse_id_pattern(item.id()));
    TRY(const auto known, parts_.scheduler.find(pattern.experiment));
    item.set_state(summary_of(known, pattern.experiment, parts_.scheduler.model(), boottime_ms()).state());
  }
  return ok();
}

Status ClientApi::kill_one(const std::string& id, bool force, const std::string& by, pb::KillReply::Item& item) {
  TRY(const IdPattern pattern, parse_id_pattern(id));
  if (parts_.scheduler.unreadable().contains(pattern.experiment.number)) {
    item.set_already_over(true);
    item.set_message(fmt::format("{} is given up, for what is stored of it can't be read; what hosts still run of it is ended", id));
    return parts_.scheduler.give_up_unreadable(pattern.experiment.number, force);
  }
  TRY(const auto known, parts_.scheduler.find(pattern.experiment));
  const auto info =
      summary_of(known, pattern.experiment, parts_.scheduler.model(), boottime_ms());
  bool fixed = true;
  for (const Experiment* member : members_of(known, pattern.experiment)) {
    fixed = fixed && member->outcome.has_value();
  }
  // A second kill may still want to be harder than the first.
  if (fixed && (!force || is_terminal(*parse_state(info.state())))) {
    item.set_already_over(true);
    const std::string besides = out_of_reach(parts_.scheduler.model(), pattern.experiment);
    item.set_message(fmt::format("{} is already {}{}{}", id, info.state(), besides.empty() ? "" : "; ",
                                 besides));
    return ok();
  }
  item.set_message(out_of_reach(parts_.scheduler.model(), pattern.experiment));
  parts_.scheduler.handle(KillWanted{pattern.experiment, force, by});
  return ok();
}

}  // namespace dtrain::daemon
