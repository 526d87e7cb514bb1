#include "daemon/exec_relay.h"

#include <chrono>
#include <utility>

#include "daemon/exec_target.h"
#include "schema/exec_limits.h"
#include "schema/random_id.h"
#include "schema/tensorboard.h"

namespace dtrain::daemon {

namespace {

// A host answers within that; an older dtrain there never does.
constexpr auto kClaimPatience = std::chrono::seconds(15);
// Before it is claimed: the size of a terminal that is changed, a signal. Input comes once it has started.
constexpr size_t kWaitingMost = 64;
constexpr uint32_t kPortMost = 65535;

Error host_gone(bool is_connection) {
  return {Code::Aborted,
          is_connection ? "its host has broken off, and the connection with it"
                        : "its host has broken off, and the command with it, unless it was told to go on in the background",
          "what trains goes on"};
}

Status check_command(const pb::ExecStart& start) {
  size_t bytes = 0;
  for (const std::string& word : start.argv()) bytes += word.size() + 4;   // as much as it takes to say how long it is
  bytes += start.terminal_kind().size();
  if (bytes <= kExecCommandBytesMax) return ok();
  return Error{Code::InvalidArgument, fmt::format("a command of {} bytes is longer than {}", bytes, kExecCommandBytesMax),
               "put it into a file of the project, or send it on standard input: dtrain exec ID -- sh < FILE"};
}

Status check_start(const pb::ExecInput& first) {
  if (first.has_start()) return check_command(first.start());
  if (first.has_left()) return ok();
  if (!first.has_forward()) return Error{Code::InvalidArgument, "the first message must be the command", ""};
  if (first.forward().port() <= kPortMost) return ok();
  return Error{Code::InvalidArgument, fmt::format("there is no port {}", first.forward().port()), ""};
}

// A TensorBoard, where it listens, or the question whether it is there: everybody sees everything.
bool shows_curves(const Replica& replica, const Submission& submission, uint32_t port) {
  const bool is_board = replica.id.role == Role::Tensorboard || is_only_tensorboard(submission.spec);
  return is_board && (port == 0 || port == static_cast<uint32_t>(replica.seat.port));
}

// What the host is told.
pb::ToRunner opening(const std::string& session, const Replica& replica, const pb::ExecInput& first) {
  pb::ToRunner message;
  if (first.has_start()) {
    pb::ExecOpen& exec = *message.mutable_exec();
    exec.set_session(session);
    exec.set_replica(to_string(replica.id));
    exec.set_attempt(replica.attempt);
    *exec.mutable_start() = first.start();
  } else if (first.has_left()) {
    pb::LeftOpen& left = *message.mutable_left();
    left.set_session(session);
    left.set_replica(to_string(replica.id));
    *left.mutable_what() = first.left();
  } else {
    pb::ForwardOpen& forward = *message.mutable_forward();
    forward.set_session(session);
    forward.set_replica(to_string(replica.id));
    forward.set_attempt(replica.attempt);
    forward.set_port(first.forward().port());
    forward.set_hears_end(first.forward().hears_end());
  }
  return message;
}

const std::string& id_in(const pb::ExecInput& first) {
  return first.has_start() ? first.start().id() : first.has_left() ? first.left().id() : first.forward().id();
}

}  // namespace

ExecRelay::ExecRelay(boost::asio::io_context& loop, Scheduler& scheduler, RunnerOutbox& runners)
    : loop_(loop), scheduler_(scheduler), runners_(runners) {}

std::shared_ptr<ExecRelay::PersonStream> ExecRelay::from_person(grpc::CallbackServerContext& call, const Person& who) {
  const auto stream = std::make_shared<PersonStream>(loop_, call);
  const auto id = std::make_shared<std::string>();
  stream->on_message = [this, weak = std::weak_ptr(stream), who, id](pb::ExecInput& message) {
    if (const auto live = weak.lock()) on_input(live, who, *id, message);
  };
  stream->on_reads_done = [weak = std::weak_ptr(stream)] {
    if (const auto live = weak.lock()) live->finish(grpc::Status::OK);
  };
  stream->on_closed = [this, id] {
    const auto session = sessions_.extract(*id);
    if (session.empty()) return;
    session.mapped()->patience.cancel();
    if (session.mapped()->host_stream) session.mapped()->host_stream->cut();
  };
  stream->start();
  return stream;
}

void ExecRelay::on_input(const std::shared_ptr<PersonStream>& person, const Person& who, std::string& session_id,
                         pb::ExecInput& message) {
  if (session_id.empty()) {
    const Status opened = open(person, who, session_id, message);
    if (!opened.ok()) person->finish(to_grpc(opened.error()));
    return;
  }
  const auto found = sessions_.find(session_id);
  if (found == sessions_.end() || message.has_start() || message.has_forward() || message.has_left()) return;
  Session& session = *found->second;
  if (session.host_stream) return session.host_stream->send(std::move(message));
  if (session.waiting.size() == kWaitingMost) {
    return give_up(session_id, {Code::ResourceExhausted, "too much input before it has begun", ""});
  }
  session.waiting.push_back(std::move(message));
}

Status ExecRelay::open(const std::shared_ptr<PersonStream>& person, const Person& who, std::string& session_id,
                       const pb::ExecInput& first) {
  TRY(check_start(first));
  const std::string& id = id_in(first);
  TRY(const IdPattern pattern, parse_id_pattern(id));
  TRY(const auto known, scheduler_.find(pattern.experiment));
  const auto named = first.has_left() ? placed_target(known, pattern) : exec_target(known, pattern);
  const bool only_looks =
      first.has_left() || (named.ok() && first.has_forward() && shows_curves(*named->replica, *known.submission, first.forward().port()));
  if (!only_looks) TRY(may_change(who, *known.submission, first.has_start() ? "exec" : "port-forward", id));
  TRY(const ExecTarget target, named);
  const auto host = scheduler_.model().hosts.find(target.replica->seat.host);
  const bool is_there = host != scheduler_.model().hosts.end() && host->second.connected;
  const std::string replica = to_string(target.replica->id);
  if (!is_there) {
    return Error{Code::FailedPrecondition,
                 fmt::format("{} is out of reach: {} is not connected at present", replica,
                             host == scheduler_.model().hosts.end() ? "its host" : host->second.name),
                 "dtrain hosts shows when it is back; what trains there goes on"};
  }
  pb::ExecStarted started;
  started.set_replica(replica);
  started.set_host_name(host->second.name);
  started.set_others(target.others);
  if (first.has_forward() && first.forward().port() == 0) {
    pb::ExecOutput answer;
    *answer.mutable_started() = std::move(started);
    person->send(std::move(answer));
    person->finish(grpc::Status::OK);
    return ok();
  }
  TRY(session_id, random_id());
  auto session = std::make_shared<Session>(loop_, person);
  session->host = host->first;
  session->is_connection = !first.has_start();
  session->started = std::move(started);
  session->patience.expires_after(kClaimPatience);
  session->patience.async_wait([this, id = session_id](boost::system::error_code error) {
    const auto found = sessions_.find(id);
    if (error || found == sessions_.end() || found->second->host_stream) return;
    give_up(id, {Code::DeadlineExceeded,
                 fmt::format("{} has not answered within {} s", found->second->started.host_name(), kClaimPatience.count()),
                 "dtrain there may be too old for this: dtrain hosts --json shows versions"});
  });
  sessions_[session_id] = std::move(session);
  runners_.send(host->first, opening(session_id, *target.replica, first));
  return ok();
}

grpc::ServerBidiReactor<pb::ExecOutput, pb::ExecInput>* ExecRelay::from_host(grpc::CallbackServerContext& call) {
  const auto stream = std::make_shared<HostStream>(loop_, call);
  const auto id = std::make_shared<std::string>();
  stream->on_message = [this, weak = std::weak_ptr(stream), id](pb::ExecOutput& message) {
    if (const auto live = weak.lock()) on_output(live, *id, message);
  };
  stream->on_reads_done = [weak = std::weak_ptr(stream)] {
    if (const auto live = weak.lock()) live->finish(grpc::Status::OK);
  };
  stream->on_closed = [this, id] {
    const auto found = sessions_.find(*id);
    if (found != sessions_.end()) give_up(*id, host_gone(found->second->is_connection));
  };
  stream->start();
  boost::asio::post(loop_, [this, weak = std::weak_ptr(stream), id] { await_claim(weak, id); });
  return stream.get();
}

// Who says nothing has no use for the stream.
void ExecRelay::await_claim(const std::weak_ptr<HostStream>& host_stream, const std::shared_ptr<std::string>& session_id) {
  const auto patience = std::make_shared<boost::asio::steady_timer>(loop_, kClaimPatience);
  patience->async_wait([patience, host_stream, session_id](boost::system::error_code) {
    const auto live = host_stream.lock();
    if (live && session_id->empty()) live->cut();
  });
}

void ExecRelay::on_output(const std::shared_ptr<HostStream>& host_stream, std::string& session_id, pb::ExecOutput& message) {
  if (session_id.empty()) return claim(host_stream, session_id, message.claim().session());
  const auto found = sessions_.find(session_id);
  if (found == sessions_.end()) return host_stream->finish(grpc::Status::CANCELLED);
  Session& session = *found->second;
  if (message.has_refused()) {
    const auto& why = message.refused();
    return give_up(session_id, {static_cast<Code>(why.code()), why.message(), why.hint()});
  }
  if (message.has_started()) *message.mutable_started() = session.started;
  const bool ended = message.has_ended();
  session.person->send(std::move(message));
  if (!ended) return;
  session.ended = true;
  session.person->finish(grpc::Status::OK);
}

void ExecRelay::claim(const std::shared_ptr<HostStream>& host_stream, std::string& session_id, const std::string& wanted) {
  const auto found = sessions_.find(wanted);
  // Its person may be gone by now.
  if (found == sessions_.end() || found->second->host_stream) {
    return host_stream->finish({grpc::StatusCode::NOT_FOUND, "nobody waits for that"});
  }
  session_id = wanted;
  Session& session = *found->second;
  session.patience.cancel();
  session.host_stream = host_stream;
  for (pb::ExecInput& message : std::exchange(session.waiting, {})) host_stream->send(std::move(message));
}

// What has ended is ending already.
void ExecRelay::give_up(const std::string& session_id, const Error& why) {
  const auto found = sessions_.find(session_id);
  if (found == sessions_.end() || found->second->ended) return;
  found->second->ended = true;
  found->second->person->finish(to_grpc(why));
}

void ExecRelay::leave(const HostId& host) {
  for (const auto& [id, session] : sessions_) {
    if (session->host != host) continue;
    if (session->host_stream) session->host_stream->cut();
    give_up(id, host_gone(session->is_connection));
  }
}

void ExecRelay::close() {
  for (const auto& [id, session] : sessions_) {
    give_up(id, {Code::Aborted, fmt::format("the daemon stops, and the {} with it", session->is_connection ? "connection" : "command"),
                 "what trains goes on"});
  }
}

}  // namespace dtrain::daemon
