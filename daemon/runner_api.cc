#include "daemon/runner_api.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "daemon/fetch_stream.h"
#include "daemon/failure_rules.h"
#include "daemon/incoming_messages.h"
#include "daemon/placement_elastic.h"
#include "schema/clock.h"
#include "schema/config.h"
#include "schema/quote.h"
#include "schema/version.h"

namespace dtrain::daemon {

namespace {

// A runner speaks up this often within the time after which it is taken for hung. Turns are counted, and
// not the clock read: whatever stops this daemon for a while stops its turns too.
constexpr int kQuietTurnsMax = 6;
constexpr auto kRefusedTime = std::chrono::seconds(1);

Status check_version(const pb::Hello& hello) {
  if (hello.protocol() == kProtocol) return ok();
  return Error{Code::FailedPrecondition,
               fmt::format("the runner speaks protocol {} ({}), this daemon {} ({})",
                           hello.protocol(), in_quotes(hello.version()), kProtocol, kVersion),
               hello.protocol() < kProtocol ? "upgrade dtrain on that host"
                                            : "upgrade dtrain where the daemon runs"};
}

// "gpu-3.node17": whose it is, and where.
std::string name_of_lent(const std::string& key, const std::string& said) {
  constexpr size_t kMost = 120;
  return (is_host_name(said) ? key + "." + said : key).substr(0, kMost);
}

}  // namespace

RunnerApi::RunnerApi(boost::asio::io_context& loop, Blobs& blobs, std::chrono::milliseconds silence)
    : loop_(loop), blobs_(blobs), silence_(silence), silence_timer_(loop) {
  watch_silence();
}

void RunnerApi::watch_silence() {
  silence_timer_.expires_after(silence_ / kQuietTurnsMax);
  silence_timer_.async_wait([this](boost::system::error_code error) {
    if (error) return;
    for (auto& [host, connected] : connected_) {
      if (++connected.quiet_turns <= kQuietTurnsMax) continue;
      std::fprintf(stderr, "runner %s: silent for %lld ms, its stream is ended\n",
                   connected.hello.inventory().name().c_str(),
                   static_cast<long long>(silence_.count()));
      connected.stream->cut();
      connected.quiet_turns = 0;
      if (on_hung) on_hung(host);
    }
    watch_silence();
  });
}

grpc::ServerBidiReactor<pb::FromRunner, pb::ToRunner>* RunnerApi::Connect(
    grpc::CallbackServerContext* call) {
  auto stream = std::make_shared<Stream>(loop_, *call);
  auto peer = std::make_shared<Peer>(Peer{Caller::of(*call)});
  const std::weak_ptr<Stream> weak = stream;
  auto patience = std::make_shared<boost::asio::steady_timer>(loop_);
  stream->on_message = [this, weak, peer](pb::FromRunner& message) {
    if (const auto live = weak.lock()) on_message(live, *peer, message);
  };
  stream->on_reads_done = [weak] {
    if (const auto live = weak.lock()) live->finish(grpc::Status::OK);
  };
  stream->on_closed = [this, raw = stream.get(), peer, patience] {
    patience->cancel();
    const HostId& host = peer->host;
    const auto found = connected_.find(host);
    if (found == connected_.end() || found->second.stream.get() != raw) return;
    std::fprintf(stderr, "host %s is away\n", found->second.hello.inventory().name().c_str());
    connected_.erase(found);
    await_no_more(host);
    scheduler_->handle(HostDisconnected{host});
    if (on_left) on_left(host);
    if (on_disconnected) on_disconnected(host);
  };
  stream->start();
  boost::asio::post(loop_,
                    [this, weak, peer, patience] { await_hello(weak, peer, *patience); });
  return stream.get();
}

// Who has said nothing is not among those that watch_silence() looks at, or that cut() cuts off.
void RunnerApi::await_hello(const std::weak_ptr<Stream>& stream,
                            const std::shared_ptr<Peer>& peer,
                            boost::asio::steady_timer& patience) {
  patience.expires_after(silence_);
  patience.async_wait([stream, peer](boost::system::error_code error) {
    const auto live = stream.lock();
    if (!error && live && peer->host.hex.empty()) live->cut();
  });
}

void RunnerApi::on_message(const std::shared_ptr<Stream>& stream, Peer& peer, pb::FromRunner& message) {
  const HostId& host = peer.host;
  Status status = ok();
  Connected* connected = current(stream, host);
  if (connected != nullptr) connected->quiet_turns = 0;
  if (message.has_hello()) {
    status = on_hello(stream, peer, message.hello());
  } else if (host.hex.empty()) {
    status = Error{Code::FailedPrecondition, "the first message must be Hello", ""};
  } else if (connected == nullptr) {
    return;  // a newer stream of the host has said what is true
  } else if (message.has_log()) {
    on_log(stream, host, message.log());
  } else if (message.has_usage()) {
    on_usage_of(host, message.usage());
  } else if (message.has_unused_environments()) {
    on_unused(host, message.unused_environments());
  } else if (message.has_renew()) {
    scheduler_->handle(HostContact{host});
    pb::ToRunner reply;
    reply.mutable_renewed()->set_sent_ms(message.renew().sent_ms());
    stream->send(std::move(reply));
  } else {
    status = on_fact(host, message);
  }
  if (!status.ok()) {
    note_refusal(host.hex.empty() ? "a runner" : "runner " + host.hex, status.error().message);
    stream->finish(to_grpc(status.error()));
  }
}

// Who is refused dials again each second.
void RunnerApi::note_refusal(const std::string& whom, const std::string& why) {
  const std::string text = fmt::format("{}: {}", whom, why);
  if (refusals_.is_news(text, Seldom::Clock::now())) std::fprintf(stderr, "%s\n", text.c_str());
}

// Null: a newer stream of the host has taken its place, or none said Hello yet.
RunnerApi::Connected* RunnerApi::current(const std::shared_ptr<Stream>& stream, const HostId& host) {
  const auto found = connected_.find(host);
  return found != connected_.end() && found->second.stream == stream ? &found->second : nullptr;
}

// Streams of one host are read side by side, so that the Hello of one it has left long ago may come
// last. What that lists is no more: taken for the present, it would have running replicas given up.
Status RunnerApi::check_newest(const Host& host, const pb::Hello& hello) {
  Dialled& newest = newest_[host.id];
  if (hello.dialled_ms() != 0 && hello.boot_id() == newest.boot_id &&
      hello.dialled_ms() < newest.ms) {
    return Error{Code::FailedPrecondition, host.name + " has dialled again since this stream", ""};
  }
  newest = {hello.boot_id(), hello.dialled_ms()};
  return ok();
}

Status RunnerApi::on_hello(const std::shared_ptr<Stream>& stream, Peer& peer, pb::Hello hello) {
  TRY(check_version(hello));
  // One that comes by a key may be another container of this machine, which ends without it.
  TRY(Host facts, host_from_message(hello, peer.caller.is_own() ? boot_id() : ""));
  std::string key_name;
  if (!peer.caller.is_own()) {
    TRY(const auto admitted, keys_->admit(peer.caller.certificate(), facts.id));
    key_name = admitted.name;
    facts.name = admitted.lent ? name_of_lent(key_name, facts.name) : key_name;
    facts.id = admitted.id;
    if (admitted.lent) facts.same_machine = false;   // what ends it there ends its runner, too: only a lease tells when
    if (admitted.lent && on_lent) TRY(on_lent(key_name, facts));
    hello.mutable_inventory()->set_name(facts.name);
    hello.set_host_id(facts.id.hex);
  }
  TRY(check_newest(facts, hello));
  HostId& host = peer.host;
  host = facts.id;
  HostConnected connected{std::move(facts), {}};
  pb::ToRunner welcome;
  welcome.mutable_welcome()->set_version(kVersion);
  welcome.mutable_welcome()->set_host_address(connected.host.address);
  welcome.mutable_welcome()->set_renew_every_ms(
      static_cast<uint64_t>((silence_ / kQuietTurnsMax).count()));
  for (const auto& held : hello.held()) {
    TRY(const ReplicaId replica, parse_replica_id(held.replica()));
    connected.held.push_back({replica, held.attempt()});
    if (!has_output_of(host, replica, held.attempt())) continue;
    const LogKey key{held.replica(), held.attempt()};
    log_source_[key] = host;
    pb::LogAck& ack = *welcome.mutable_welcome()->add_logs();
    ack.set_replica(held.replica());
    ack.set_attempt(held.attempt());
    ack.set_offset(logs_->durable_offset(replica.experiment.number, key));
  }
  auto& slot = connected_[host];
  if (slot.stream && slot.stream != stream) {
    await_no_more(host);
    std::exchange(slot.stream, nullptr)
        ->cut();  // to one that reads nothing all that waits would stay
  }
  slot = {stream, std::move(hello), std::move(key_name)};
  std::fprintf(stderr, "host %s has joined\n", slot.hello.inventory().name().c_str());
  stream->send(std::move(welcome));
  if (monitored_.experiments_size() > 0) {
    pb::ToRunner message;
    *message.mutable_monitor() = monitored_;
    stream->send(std::move(message));
  }
  scheduler_->handle(std::move(connected));
  if (on_connected) on_connected(host);
  return ok();
}

Status RunnerApi::on_fact(const HostId& host, const pb::FromRunner& message) {
  if (message.has_inventory()) {
    pb::Hello hello = connected_.at(host).hello;
    const std::string name = hello.inventory().name();
    *hello.mutable_inventory() = message.inventory();
    if (!connected_.at(host).key.empty()) hello.mutable_inventory()->set_name(name);
    TRY(Host facts, host_from_message(hello, connected_.at(host).key.empty() ? boot_id() : ""));
    const auto known = scheduler_->model().hosts.find(host);
    if (known != scheduler_->model().hosts.end()) {
      facts.pool = known->second.pool;
      facts.ends_ms = known->second.ends_ms;
      facts.same_machine = known->second.same_machine;
    }
    connected_.at(host).hello = std::move(hello);
    scheduler_->handle(HostChanged{std::move(facts)});
    return ok();
  }
  TRY(auto event, event_from_message(host, message));
  if (!event) return ok();
  if (message.has_released()) {
    const auto source =
        log_source_.find({message.released().replica(), message.released().attempt()});
    if (source != log_source_.end() && source->second == host) log_source_.erase(source);
    look_at_last(std::get<ReplicaReleased>(*event).replica);
  }
  scheduler_->handle(std::move(*event));
  return ok();
}

const Replica* RunnerApi::find(const ReplicaId& id) const {
  const auto experiment = scheduler_->model().experiments.find(id.experiment);
  if (experiment == scheduler_->model().experiments.end()) return nullptr;
  const auto& replicas = experiment->second.replicas;
  const auto found = std::find_if(replicas.begin(), replicas.end(), [&](const Replica& r) { return r.id == id; });
  return found == replicas.end() ? nullptr : &*found;
}

// The seat may be another's by now, of a later attempt: then it is who sent that attempt's output before. Where nobody
// did, it is not known who had it: a host that was lost may come back with all that it printed meanwhile.
bool RunnerApi::has_output_of(const HostId& host, const ReplicaId& id, uint32_t attempt) const {
  if (scheduler_->unreadable().contains(id.experiment.number)) {   // what it says is kept, of whoever says it first
    const auto known = log_source_.find({to_string(id), attempt});
    return known == log_source_.end() || known->second == host;
  }
  const Replica* replica = find(id);
  const auto experiment = scheduler_->model().experiments.find(id.experiment);
  const bool missing = experiment != scheduler_->model().experiments.end() && is_missing(experiment->second, id);
  if (replica == nullptr && !missing) return false;
  const auto source = log_source_.find({to_string(id), attempt});
  if (source != log_source_.end()) return source->second == host;
  if (missing) return attempt < experiment->second.attempt;
  const HostId& seat = replica->seat.host;
  return attempt < replica->attempt || (attempt == replica->attempt && (seat == host || seat.hex.empty()));
}

void RunnerApi::on_usage_of(const HostId& host, const pb::UsageReport& report) {
  if (!on_usage) return;
  pb::UsageReport own;
  for (const auto& usage : report.replicas()) {
    const auto replica = parse_replica_id(usage.replica());
    const Replica* known = replica.ok() ? find(*replica) : nullptr;
    if (known != nullptr && known->seat.host == host) *own.add_replicas() = usage;
  }
  on_usage(own);
}

void RunnerApi::on_log(const std::shared_ptr<Stream>& stream, const HostId& host,
                       const pb::LogData& log) {
  const auto replica = parse_replica_id(log.replica());
  if (!replica.ok()) return;
  const uint64_t end = log.offset() + log.data().size();
  if (!has_output_of(host, *replica, log.attempt())) {
    // Nobody wants it any more; the runner releases the replica once all its output is answered for.
    pb::ToRunner message;
    message.mutable_log_ack()->set_replica(log.replica());
    message.mutable_log_ack()->set_attempt(log.attempt());
    message.mutable_log_ack()->set_offset(end);
    stream->send(std::move(message));
    return;
  }
  note_output(*replica);
  Connected& connected = connected_.at(host);
  const LogKey key{log.replica(), log.attempt()};
  if (connected.refused.contains(key)) return;
  log_source_[key] = host;
  const auto status = logs_->append(replica->experiment.number, log);
  if (!status.ok()) return refuse(key, status.error(), connected);
  const auto found = scheduler_->model().experiments.find(replica->experiment);   // what can't be read is not there
  const bool measured = found != scheduler_->model().experiments.end() && !found->second.spec().metrics.empty() && !found->second.over;
  if (measured) look_at(found->second, metrics_->take(found->second, *replica, log));
  // A repeat of what became durable while the runner was away: no later sync would say so.
  const uint64_t durable = logs_->durable_offset(replica->experiment.number, key);
  if (durable >= end) log_durable(key, durable);
}

// Also what can't be taken for now: whose it is has not fallen silent.
void RunnerApi::note_output(const ReplicaId& id) {
  const auto found = scheduler_->model().experiments.find(id.experiment);
  if (found == scheduler_->model().experiments.end() || id.role == Role::Tensorboard || id.role == Role::Build) return;
  const Experiment& experiment = found->second;
  if (experiment.over || experiment.spec().silence_rule() == nullptr) return;
  if (boottime_ms() >= experiment.heard_ms + unheard_ms(experiment.spec())) scheduler_->handle(OutputCame{id.experiment});
}

// What the scheduler has not been told yet.
void RunnerApi::look_at(const Experiment& experiment, const std::vector<double>& rungs) {
  const size_t told = experiment.costs ? experiment.costs->size() : 0;
  for (size_t rung = told; rung < rungs.size(); ++rung) {
    scheduler_->handle(RungReached{experiment.id, static_cast<uint32_t>(rung), rungs[rung]});
  }
}

// All of a replica's output is here, but the last of it may have come to a daemon that was killed before it could write down what
// follows from that.
void RunnerApi::look_at_last(const ReplicaId& id) {
  const auto found = scheduler_->model().experiments.find(id.experiment);
  if (found == scheduler_->model().experiments.end() || found->second.over) return;
  if (found->second.submission->spec.search.stop_early) look_at(found->second, metrics_->last_rungs(found->second, id));
}

// The runner dials again and resumes at what is durable; but not at once, or what else the host has to say would
// never come as long as one journal takes nothing.
void RunnerApi::refuse(const LogKey& key, const Error& why, Connected& connected) {
  connected.refused.insert(key);
  if (connected.refused.size() > 1) return;
  auto end = std::make_shared<boost::asio::steady_timer>(loop_, kRefusedTime);
  end->async_wait([end, why, stream = std::weak_ptr(connected.stream)](boost::system::error_code) {
    if (const auto live = stream.lock()) live->finish(to_grpc(why));
  });
}

void RunnerApi::log_durable(const LogKey& key, uint64_t offset) {
  const auto source = log_source_.find(key);
  if (source == log_source_.end()) return;
  pb::ToRunner message;
  message.mutable_log_ack()->set_replica(key.first);
  message.mutable_log_ack()->set_attempt(key.second);
  message.mutable_log_ack()->set_offset(offset);
  send(source->second, std::move(message));
}

void RunnerApi::send(const HostId& host, pb::ToRunner message) {
  const auto found = connected_.find(host);
  if (found != connected_.end()) found->second.stream->send(std::move(message));
}

void RunnerApi::monitor(const std::set<ExperimentId>& experiments) {
  monitored_.Clear();
  for (const ExperimentId& id : experiments) monitored_.add_experiments(to_string(id));
  for (auto& [host, connected] : connected_) {
    pb::ToRunner message;
    *message.mutable_monitor() = monitored_;
    connected.stream->send(std::move(message));
  }
}

const pb::Hello* RunnerApi::hello(const HostId& host) const {
  const auto found = connected_.find(host);
  return found == connected_.end() ? nullptr : &found->second.hello;
}

void RunnerApi::count_unused(std::chrono::milliseconds patience, UnusedDone done) {
  if (connected_.empty()) return done(Unused());
  const uint64_t question = next_question_++;
  Counting& counting = countings_.try_emplace(question, loop_).first->second;
  counting.done = std::move(done);
  pb::ToRunner message;
  message.mutable_count_environments()->set_question(question);
  for (const auto& [host, connected] : connected_) {
    counting.awaited.insert(host);
    connected.stream->send(message);
  }
  counting.deadline.expires_after(patience);
  counting.deadline.async_wait([this, question](boost::system::error_code error) {
    const auto found = countings_.find(question);
    if (error || found == countings_.end()) return;
    const auto host = connected_.find(*found->second.awaited.begin());
    INVARIANT(host != connected_.end(), "only who is connected is awaited");
    end_counting(question,
                 Error{Code::Unavailable,
                       fmt::format("{} has not said what it could do without",
                                   host->second.hello.inventory().name()),
                       "it may be busy with files; try again"});
  });
}

void RunnerApi::on_unused(const HostId& host, const pb::UnusedEnvironments& unused) {
  const auto found = countings_.find(unused.question());
  if (found == countings_.end() || found->second.awaited.erase(host) == 0) return;
  Counting& counting = found->second;
  if (unused.count() > 0) ++counting.sum.hosts;
  counting.sum.count += unused.count();
  counting.sum.bytes += unused.bytes();
  if (unused.tree_bytes() > 0) ++counting.sum.tree_hosts;
  counting.sum.tree_bytes += unused.tree_bytes();
  if (counting.awaited.empty()) end_counting(unused.question(), counting.sum);
}

// What was asked of a stream that has ended is not answered any more.
void RunnerApi::await_no_more(const HostId& host) {
  std::vector<uint64_t> complete;
  for (auto& [question, counting] : countings_) {
    counting.awaited.erase(host);
    if (counting.awaited.empty()) complete.push_back(question);
  }
  for (const uint64_t question : complete) end_counting(question, countings_.at(question).sum);
}

void RunnerApi::end_counting(uint64_t question, Result<Unused> result) {
  const auto counting = countings_.extract(question);
  if (!counting.empty()) counting.mapped().done(std::move(result));
}

void RunnerApi::prune_environments() {
  for (const auto& [host, connected] : connected_) {
    pb::ToRunner message;
    message.mutable_prune_environments();
    connected.stream->send(std::move(message));
  }
}

void RunnerApi::prune_trees() {
  for (const auto& [host, connected] : connected_) {
    pb::ToRunner message;
    message.mutable_prune_trees();
    connected.stream->send(std::move(message));
  }
}

void RunnerApi::close() {
  for (auto& [host, connected] : connected_) {
    connected.stream->finish({grpc::StatusCode::UNAVAILABLE, "the daemon stops"});
  }
}

bool RunnerApi::has_joined_by(const std::string& key_name) const {
  return std::any_of(connected_.begin(), connected_.end(),
                     [&](const auto& entry) { return entry.second.key == key_name; });
}

bool RunnerApi::cut(const std::string& key_name) {
  bool any = false;
  for (auto& [host, connected] : connected_) {
    if (connected.key != key_name) continue;
    connected.stream->cut();
    any = true;
  }
  for (const auto& [key, fetch] : fetches_) {
    if (const auto live = fetch.lock(); live && key == key_name) live->cut();
  }
  return any;
}

grpc::ServerBidiReactor<pb::ExecOutput, pb::ExecInput>* RunnerApi::Exec(grpc::CallbackServerContext* call) {
  const Caller caller = Caller::of(*call);
  const auto holder = caller.is_own() ? Result<std::string>(std::string()) : keys_->holder_of(caller.certificate());
  if (holder.ok()) return on_exec(*call);
  return refuse_stream<pb::ExecOutput, pb::ExecInput>(loop_, *call, holder.error());
}

grpc::ServerWriteReactor<pb::BlobPart>* RunnerApi::Fetch(grpc::CallbackServerContext* call,
                                                         const pb::FetchRequest* request) {
  const Caller caller = Caller::of(*call);
  if (caller.is_own()) return start_fetch(loop_, *call, blobs_, *request).get();
  const auto holder = keys_->holder_of(caller.certificate());
  if (!holder.ok()) return refuse_stream<pb::BlobPart>(loop_, holder.error());
  const auto stream = start_fetch(loop_, *call, blobs_, *request);
  boost::asio::post(loop_, [this, key = *holder, fetch = std::weak_ptr(stream)] {
    std::erase_if(fetches_, [](const auto& entry) { return entry.second.expired(); });
    fetches_.emplace_back(key, fetch);
  });
  return stream.get();
}

}  // namespace dtrain::daemon
