// dtrain port-forward: ports of this machine that lead to the host of a replica, through the daemon.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/connection.h"
#include "cli/errors.h"
#include "cli/forwarded_connection.h"
#include "cli/forwarded_ports.h"
#include "cli/looked_at.h"
#include "cli/redial.h"
#include "cli/remote.h"
#include "cli/signals.h"
#include "cli/sink.h"
#include "schema/clock.h"
#include "schema/exec_limits.h"
#include "schema/ids.h"
#include "schema/states.h"

namespace dtrain::cli {

namespace {

// Connections of which only the end is missing, and the other side does not bring it.
constexpr size_t kLeftAloneMost = 64;
// What was said before a replica ended is on its way.
constexpr int64_t kLastWordsMs = 2'000;

struct Listening {
  Fd socket;
  ForwardedPort port;
};

Result<Listening> listen_at(ForwardedPort port) {
  Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket) return errno_error("make a socket", errno);
  const int on = 1;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(port.local);
  if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 || ::listen(socket.get(), SOMAXCONN) != 0) {
    const int why = errno;
    if (why != EADDRINUSE) return errno_error(fmt::format("listen on port {}", port.local), why);
    return Error{Code::AlreadyExists, fmt::format("port {} of this machine is in use by another program", port.local),
                 fmt::format("0:{} takes any that is free", port.remote)};
  }
  socklen_t size = sizeof address;
  ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size);
  port.local = ntohs(address.sin_port);
  return Listening{std::move(socket), port};
}

class PortForward {
 public:
  PortForward(Connection& connection, const CommandContext& context, std::string id, IdPattern pattern)
      : connection_(connection),
        signals_({SIGINT, SIGQUIT, SIGTERM, SIGHUP}, true),
        redial_(connection, context, signals_),
        id_(std::move(id)),
        pattern_(pattern) {}

  Result<int> run(const std::vector<ForwardedPort>& ports) {
    for (const ForwardedPort& port : ports) {
      TRY(Listening listening, listen_at(port));
      listening_.push_back(std::move(listening));
    }
    TRY(watch());
    TRY(const pb::ExecStarted leads_to, ask_where());
    for (const Listening& each : listening_) {
      fmt::print("127.0.0.1:{} -> {} on {}, port {}\n", each.port.local, leads_to.replica(), leads_to.host_name(), each.port.remote);
    }
    if (std::fflush(stdout) != 0) return output_error(errno);
    while (true) {
      connection_.channel().advance();
      TRY(follow());
      advance_connections();
      connection_.channel().flush();
      if (signals_.take() != 0) return 0;
      if (!end_.empty() && (in_use_ == 0 || boottime_ms() >= last_words_ms_)) {
        fmt::print(stderr, "{}\n", end_);
        return 0;
      }
      if (!watch_) {
        TRY(const bool again, reconnect());
        if (!again) return 0;
        continue;
      }
      wait();
    }
  }

 private:
  // The states of the experiment, from now on.
  Status watch() {
    pb::WatchRequest request;
    request.set_id(id_);
    request.set_cursor(UINT64_MAX);
    request.set_follow(true);
    request.set_states_only(true);
    watch_.emplace(connection_.channel(), kWatchMethod);
    watch_->write(request);
    watch_->writes_done();
    pb::WatchBatch ids;
    if (!watch_->read(ids)) return watch_->finish();
    return ok();
  }

  Result<pb::ExecStarted> ask_where() {
    RpcCall call(connection_.channel(), kExecMethod, kCallTimeoutMs);
    pb::ExecInput question;
    question.mutable_forward()->set_id(id_);
    call.write(question);
    pb::ExecOutput answer;
    if (call.read(answer)) return answer.started();
    const Status refused = call.finish();
    if (refused.ok()) return Error{Code::Internal, "the daemon does not say where a connection would lead", ""};
    // The ID has been checked: it is the question that makes no sense there.
    if (refused.error().code != Code::InvalidArgument) return refused.error();
    return Error{Code::Unimplemented, "the daemon is of an older dtrain, which forwards nothing", "dtrain daemon stop && dtrain daemon start"};
  }

  // An Error: nothing more can be forwarded.
  Status follow() {
    if (!watch_ || !end_.empty()) return ok();
    pb::WatchBatch batch;
    bool replica_ended = false;
    while (watch_->take_arrived(batch)) {
      for (const auto& item : batch.items()) replica_ended = replica_ended || (item.has_state() && ends_one_of_ours(item.state()));
      if (batch.end()) {
        const auto& outcome = batch.outcome();
        return end(fmt::format("{} is over: {}{}", to_string(pattern_.experiment), outcome.state(),
                               outcome.reason().empty() ? "" : fmt::format(" ({})", outcome.reason())));
      }
    }
    if (replica_ended) look_whether_any_is_left();
    const auto status = watch_->ended();
    if (!status || !end_.empty()) return ok();
    if (!status->ok() && !Redial::may_resume(status->error().code)) return status->error();
    connections_.clear();   // they went by that channel
    watch_.reset();
    return ok();
  }

  bool ends_one_of_ours(const pb::StateEvent& event) const {
    const auto replica = parse_replica_id(event.id());
    return pattern_.names_replicas() && replica.ok() && pattern_.matches(*replica) && is_over(event.state());
  }

  // An experiment that goes on without them brings none of them back; one that begins again does.
  void look_whether_any_is_left() {
    RpcCall call(connection_.channel(), "/dtrain.pb.Client/Show", kCallTimeoutMs);
    pb::ShowRequest request;
    request.set_id(to_string(pattern_.experiment));
    call.write(request);
    call.writes_done();
    pb::ShowReply shown;
    if (!call.read(shown) || shown.experiment().state() != to_string(State::Running)) return;
    std::string last;
    for (const auto& replica : shown.replicas()) {
      const auto replica_id = parse_replica_id(replica.id());
      if (!replica_id.ok() || !pattern_.matches(*replica_id)) continue;
      if (!is_over(replica.state())) return;
      last = replica.state();
    }
    (void)end(fmt::format("{} has ended: {}", id_, last));
  }

  Status end(std::string why) {
    end_ = std::move(why);
    last_words_ms_ = boottime_ms() + kLastWordsMs;
    listening_.clear();
    return ok();
  }

  void advance_connections() {
    for (auto& connection : connections_) {
      const bool had_worked = connection.has_worked();
      connection.advance();
      if (!had_worked && connection.has_worked()) said_.erase(connection.port());
      if (connection.trouble()) say(connection.port(), *connection.trouble());
    }
    const auto is_over = [](const auto& connection) { return connection.is_over(); };
    if (connections_.remove_if(is_over) > 0) out_of_descriptors_ = false;
    const auto is_left_alone = [](const auto& connection) { return connection.is_left_alone(); };
    const auto left_alone = static_cast<size_t>(std::ranges::count_if(connections_, is_left_alone));
    in_use_ = connections_.size() - left_alone;
    if (in_use_ >= kForwardsOfOneMost) make_room();
    if (left_alone > kLeftAloneMost) std::ranges::find_if(connections_, is_left_alone)->drop();   // the oldest; taken out in the next turn
  }

  // A server that hangs answers nobody, and who gave up waiting for it can't be told from who has only said all, nor a server
  // that has gone from one that still hears: of these the oldest gives its place to others.
  void make_room() {
    const auto oldest = std::ranges::find_if(connections_, [](const auto& one) { return !one.is_over() && !one.is_left_alone() && one.is_half_over(); });
    if (oldest != connections_.end()) return oldest->break_off();
    if (listening_.empty()) return;
    say(listening_.front().port.remote, {Code::ResourceExhausted, fmt::format("{} connections are open; others wait until one of them ends", kForwardsOfOneMost), ""});
  }

  // Once, until that port has worked again: a browser tries many times.
  void say(uint16_t port, const Error& trouble) {
    if (said_[port] == trouble.message) return;
    said_[port] = trouble.message;
    print_error(trouble, false);
  }

  // False: a signal ends it.
  Result<bool> reconnect() {
    while (true) {
      TRY(const bool again, redial_.try_again(id_));
      if (signals_.take() != 0) return false;
      if (!again) continue;
      const Status watching = watch();
      if (watching.ok()) {
        redial_.reset();
        return true;
      }
      watch_.reset();
      if (!Redial::may_resume(watching.error().code)) return watching.error();
    }
  }

  void wait() {
    const bool accepts = in_use_ < kForwardsOfOneMost && !out_of_descriptors_;
    waits_.clear();
    waits_.push_back({connection_.channel().fd(), connection_.channel().events(), 0});
    waits_.push_back({signals_.fd(), POLLIN, 0});
    for (const Listening& each : listening_) waits_.push_back({accepts ? each.socket.get() : -1, POLLIN, 0});
    const size_t first = waits_.size();
    for (const auto& connection : connections_) waits_.push_back(connection.wants());
    const int timeout_ms = end_.empty() ? -1 : static_cast<int>(std::max<int64_t>(last_words_ms_ - boottime_ms(), 0));
    if (::poll(waits_.data(), waits_.size(), timeout_ms) <= 0) return;
    size_t at = first;
    for (auto& connection : connections_) {
      const short happened = waits_[at++].revents;
      if (happened != 0) connection.handle(happened);
    }
    for (size_t i = 0; i < listening_.size(); ++i) {
      if (waits_[2 + i].revents != 0) accept_from(listening_[i]);
    }
  }

  void accept_from(const Listening& listening) {
    Fd local(::accept4(listening.socket.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!local) {
      if (errno != EMFILE && errno != ENFILE) return;
      out_of_descriptors_ = true;
      return say(listening.port.remote, errno_error("take another connection", errno));
    }
    const int on = 1;
    ::setsockopt(local.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    connections_.emplace_back(connection_.channel(), id_, listening.port.remote, std::move(local));
  }

  Connection& connection_;
  Signals signals_;
  Redial redial_;
  const std::string id_;
  const IdPattern pattern_;
  std::vector<Listening> listening_;
  std::optional<RpcCall> watch_;                // none: the daemon is away
  std::list<ForwardedConnection> connections_;
  size_t in_use_ = 0;                           // of them: those that are not left alone
  bool out_of_descriptors_ = false;
  std::map<uint16_t, std::string> said_;        // what is wrong, by port
  std::vector<pollfd> waits_;
  std::string end_;                             // why nothing more can be forwarded
  int64_t last_words_ms_ = 0;                   // until when what was said before is waited for; of boottime_ms()
};

// A single number is a port, and may be meant as an experiment.
Status check_is_port(Connection& connection, const ForwardedPorts& typed, const std::vector<std::string>& words) {
  if (!typed.id.empty() || words.size() != 1 || !parse_experiment_id(words.front()).ok()) return ok();
  pb::ShowRequest request;
  request.set_id(words.front());
  if (!connection.show(request).ok()) return ok();   // there is no such experiment
  return Error{Code::InvalidArgument, fmt::format("which port of {}?", words.front()),
               fmt::format("{0} port-forward {1} 6006; port {1} of the newest: {0} port-forward {1}:{1}", called(), words.front())};
}

Result<int> port_forward(const std::vector<std::string>& words, const CommandContext& context) {
  TRY(const ForwardedPorts typed, forwarded_ports(words));
  TRY(Connection connection, connect(Autostart::IfNeeded, context));
  TRY(check_is_port(connection, typed, words));
  TRY(const std::string id, looked_at(connection, typed.id));
  TRY(const IdPattern pattern, parse_id_pattern(id));
  return PortForward(connection, context, id, pattern).run(typed.ports);
}

}  // namespace

Run declare_port_forward(Options& options, CommandContext& context) {
  auto first = std::make_shared<std::string>();
  auto ports = std::make_shared<std::vector<std::string>>();
  options.id(*first, "replica (4.worker.1), or an experiment (4): its master; left out: the newest here that runs");
  options.positionals("PORT", *ports, "of its host; 8888:6006: another one here, 0:6006: any that is free here");
  options.footer(
      "dtrain port-forward 4 6006                    http://127.0.0.1:6006 is port 6006 of 4.master's host\n"
      "dtrain port-forward 4.worker.1 8888:80 0:9000\n"
      "dtrain --on me@cluster port-forward 4.tensorboard 20003\n"
      "It goes on until Ctrl-C, or until what it leads to has ended.");
  return [first, ports, &context] {
    std::vector<std::string> words = *ports;
    if (!first->empty()) words.insert(words.begin(), *first);
    return port_forward(words, context);
  };
}

}  // namespace dtrain::cli
