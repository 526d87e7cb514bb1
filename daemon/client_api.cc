#include "daemon/client_api.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include "daemon/fetch_stream.h"
#include "daemon/submit_stream.h"
#include "daemon/watch_stream.h"
#include "schema/clock.h"

namespace dtrain::daemon {

namespace {

// A runner says which environments it could do without once it has done the file work before that.
constexpr std::chrono::seconds kUnusedPatience{30};
// Before the CLI gives up by itself, which could not say why.
constexpr auto kStopPatience = std::chrono::seconds(110);

}  // namespace

ClientApi::ClientApi(const DaemonParts& parts)
    : parts_(parts), started_unix_ms_(static_cast<uint64_t>(unix_ms())), stop_given_up_(parts.loop) {}

Result<Person> ClientApi::person_of(const grpc::CallbackServerContext& call) const {
  const Caller caller = Caller::of(call);
  if (caller.is_own()) return Person();
  if (users_ == nullptr) return Error{Code::PermissionDenied, "this daemon has given nobody a key", ""};
  return users_->person_of(caller.certificate());
}

// It ends with the key.
template <class Stream>
Stream* ClientApi::until_revoked(const grpc::CallbackServerContext& call, const Person& person, const std::shared_ptr<Stream>& stream) {
  if (!person.user.empty()) {
    boost::asio::post(parts_.loop, [this, user = person.user, caller = Caller::of(call), weak = std::weak_ptr(stream)] {
      user_streams_.add(user, weak);
      // It may have been revoked since it came in.
      const auto live = users_->person_of(caller.certificate()).ok() ? nullptr : weak.lock();
      if (live) live->cut();
    });
  }
  return stream.get();
}

// Runs `answer` on the loop and sends what it says. The request and the reply belong to gRPC and live
// until then.
grpc::ServerUnaryReactor* ClientApi::answer(grpc::CallbackServerContext* context, std::function<Status(const Person&)> answer) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  boost::asio::post(parts_.loop, [reactor, answer, person = person_of(*context)] {
    const Status status = person.ok() ? answer(*person) : Status(person.error());
    reactor->Finish(status.ok() ? grpc::Status::OK : to_grpc(status.error()));
  });
  return reactor;
}

grpc::ServerUnaryReactor* ClientApi::answer_admin(grpc::CallbackServerContext* context, std::string_view what,
                                                  std::function<Status()> answer) {
  return this->answer(context, [what = std::string(what), answer = std::move(answer)](const Person& person) -> Status {
    TRY(may_administer(person, what));
    return answer();
  });
}

// The same, sent once what follows from it is durable, or the disk refused it, and `then` has seen that.
grpc::ServerUnaryReactor* ClientApi::durable_answer(grpc::CallbackServerContext* context,
                                                    std::function<Status(const Person&)> answer,
                                                    std::function<Status(const Status& committed)> then) {
  const auto late = LateAnswer::start(parts_.loop);
  boost::asio::post(parts_.loop, [this, late, answer, then, person = person_of(*context)] {
    const Status status = person.ok() ? answer(*person) : Status(person.error());
    if (!status.ok()) return late->finish(to_grpc(status.error()));
    parts_.scheduler.at_end_of_turn([late, then](const Status& committed) {
      if (!late->is_open()) return;
      const Status seen = then(committed);
      late->finish(seen.ok() ? grpc::Status::OK : to_grpc(seen.error()));
    });
  });
  return late.get();
}

grpc::ServerBidiReactor<pb::ExecInput, pb::ExecOutput>* ClientApi::Exec(grpc::CallbackServerContext* context) {
  const auto person = person_of(*context);
  if (!person.ok()) return refuse_stream<pb::ExecInput, pb::ExecOutput>(parts_.loop, *context, person.error());
  return until_revoked(*context, *person, parts_.exec.from_person(*context, *person));
}

// Who knows what a file is called has been told by what they may see.
grpc::ServerWriteReactor<pb::BlobPart>* ClientApi::Fetch(grpc::CallbackServerContext* context, const pb::FetchRequest* request) {
  const auto person = person_of(*context);
  if (!person.ok()) return refuse_stream<pb::BlobPart>(parts_.loop, person.error());
  return until_revoked(*context, *person, start_fetch(parts_.loop, *context, parts_.blobs, *request));
}

grpc::ServerUnaryReactor* ClientApi::Prune(grpc::CallbackServerContext* context, const pb::PruneRequest* request, pb::PruneReply* reply) {
  const auto answer = LateAnswer::start(parts_.loop);
  const auto prune = [this, answer, reply](const pb::PruneRequest& asked, const RunnerApi::Unused& unused) {
    parts_.pruner.prune(asked, [this, answer, reply, asked, unused](Result<pb::PruneReply> done) {
      if (done.ok() && asked.environments() && !asked.dry_run()) parts_.runners.prune_environments();
      if (done.ok() && asked.trees() && !asked.dry_run()) parts_.runners.prune_trees();
      if (!answer->is_open()) return;
      if (!done.ok()) return answer->finish(to_grpc(done.error()));
      *reply = std::move(done).value();
      if (asked.environments()) {
        reply->set_environments(unused.count);
        reply->set_environment_bytes(unused.bytes);
        reply->set_environment_hosts(unused.hosts);
      }
      if (asked.trees()) {
        reply->set_tree_bytes(unused.tree_bytes);
        reply->set_tree_hosts(unused.tree_hosts);
      }
      answer->finish(grpc::Status::OK);
    });
  };
  boost::asio::post(parts_.loop, [this, answer, prune, asked = *request, person = person_of(*context)]() mutable {
    const Status allowed = person.ok() ? may_prune(*person, asked) : Status(person.error());
    if (!allowed.ok()) return answer->finish(to_grpc(allowed.error()));
    asked.set_user(person->is_admin ? "" : person->user);
    if (!asked.environments() && !asked.trees()) return prune(asked, {});
    parts_.runners.count_unused(kUnusedPatience, [answer, prune, asked](auto unused) {
      if (!unused.ok()) return answer->finish(to_grpc(unused.error()));
      if (answer->is_open()) prune(asked, *unused);
    });
  });
  return answer.get();
}

grpc::ServerBidiReactor<pb::SubmitRequest, pb::SubmitReply>* ClientApi::Submit(
    grpc::CallbackServerContext* call) {
  const auto person = person_of(*call);
  if (!person.ok()) return refuse_stream<pb::SubmitRequest, pb::SubmitReply>(parts_.loop, *call, person.error());
  return until_revoked(*call, *person, start_submit(parts_.loop, *call, parts_.scheduler, parts_.blobs, *person, parts_.submission_patience));
}

grpc::ServerWriteReactor<pb::WatchBatch>* ClientApi::Watch(grpc::CallbackServerContext* call,
                                                           const pb::WatchRequest* request) {
  const auto person = person_of(*call);
  if (!person.ok()) return refuse_stream<pb::WatchBatch>(parts_.loop, person.error());
  return until_revoked(*call, *person, start_watch(parts_.loop, *call, parts_.scheduler, parts_.logs, *request));
}

grpc::ServerWriteReactor<pb::MonitorSample>* ClientApi::Monitor(grpc::CallbackServerContext* call,
                                                                const pb::MonitorRequest* request) {
  const auto person = person_of(*call);
  if (!person.ok()) return refuse_stream<pb::MonitorSample>(parts_.loop, person.error());
  return until_revoked(*call, *person, parts_.monitor.start(*call, *request));
}

grpc::ServerUnaryReactor* ClientApi::Shutdown(grpc::CallbackServerContext* context,
                                              const pb::ShutdownRequest* request,
                                              pb::ShutdownReply* reply) {
  const auto answer = LateAnswer::start(parts_.loop);
  boost::asio::post(parts_.loop, [this, answer, reply, kill = request->kill(), person = person_of(*context)] {
    const Status allowed = person.ok() ? may_administer(*person, "daemon stop") : Status(person.error());
    if (!allowed.ok()) return answer->finish(to_grpc(allowed.error()));
    if (!kill) {
      for (auto& id : running_replicas()) reply->add_left_running(std::move(id));
    } else {
      for (const uint32_t number : parts_.scheduler.live_numbers()) {
        parts_.scheduler.handle(KillWanted{{number, 0}, false});
      }
    }
    abandon_stop();   // the newer request counts
    if (kill) {
      stopping_ = answer;
      parts_.scheduler.take_no_more(true);
      give_up_stop_in(kStopPatience);
      // after_turn() ends it, now or when all is over.
      parts_.scheduler.at_end_of_turn([](const Status&) {});
      return;
    }
    answer->finish(grpc::Status::OK);
    on_stop();
  });
  return answer.get();
}

void ClientApi::abandon_stop() {
  if (stopping_ == nullptr) return;
  finish_stop({grpc::StatusCode::ABORTED, "another stop came in between"});
}

void ClientApi::after_turn() {
  if (stopping_ == nullptr) return;
  if (const std::string why = parts_.scheduler.trouble(); !why.empty()) {
    return finish_stop(to_grpc({Code::ResourceExhausted,
                                why + ". What runs is ended all the same; the daemon stays",
                                "free some space on the disk of DTRAIN_HOME, then stop it again"}));
  }
  if (!parts_.scheduler.model().live.empty()) return;
  finish_stop(grpc::Status::OK);
  on_stop();
}

void ClientApi::finish_stop(const grpc::Status& status) {
  stop_given_up_.cancel();
  if (!status.ok()) parts_.scheduler.take_no_more(false);   // it stays
  std::exchange(stopping_, nullptr)->finish(status);
}

// A host that is away, or a keeper whose disk is full, may take its time: whoever waits is told so.
void ClientApi::give_up_stop_in(std::chrono::seconds time) {
  stop_given_up_.expires_after(time);
  stop_given_up_.async_wait([this](boost::system::error_code error) {
    if (error || stopping_ == nullptr) return;
    std::string ids;
    for (const uint32_t number : parts_.scheduler.live_numbers()) {
      ids += fmt::format("{}{}", ids.empty() ? "" : ", ", number);
    }
    finish_stop(to_grpc({Code::FailedPrecondition,
                         fmt::format("after {} s these have not ended: {}; the daemon stays",
                                     kStopPatience.count(), ids),
                         "`dtrain why ID` says what one waits for"}));
  });
}

std::vector<std::string> ClientApi::running_replicas() const {
  std::vector<std::string> ids;
  const Model& model = parts_.scheduler.model();
  std::set<ExperimentId> placed;
  for (const auto& [host, seated] : model.seated) placed.insert(seated.begin(), seated.end());
  for (const ExperimentId& id : placed) {
    const Experiment& experiment = model.experiments.at(id);
    for (const Replica& replica : experiment.replicas) {
      if (state_of(experiment, replica) == State::Running) ids.push_back(to_string(replica.id));
    }
  }
  return ids;
}
}  // namespace dtrain::daemon
