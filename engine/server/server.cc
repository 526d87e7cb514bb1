#include "engine/server/server.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "engine/comm/hash.h"
#include "engine/server/shards.h"
#include "schema/clock.h"

namespace dtrain::engine {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kConnectionsBeyondWorkers = 64;
constexpr size_t kBytesATurn = 1 << 20;     // of one worker, before the others have theirs
constexpr std::chrono::seconds kLinger{2};  // for a refused worker to close
constexpr double kGreeting = 0.25;            // of the deadline, for who connects to say who it is
constexpr std::chrono::seconds kNoRoom{1};    // until connections are accepted again
constexpr int kLook_ms = 50;                // while somebody waits: at who is gone or too slow

std::string state_path(const ServerConfig& config) {
  if (config.directory.empty()) return "";
  std::string name = config.experiment;
  std::replace(name.begin(), name.end(), '/', '_');
  return fmt::format("{}/{}-{}-of-{}.state", config.directory, name.empty() ? "shard" : name,
                     config.index, config.servers.size());
}

}  // namespace

uint64_t server_job(const std::string& experiment, const EngineSpec& spec, const Layout& layout,
                    size_t servers, size_t workers, const std::string& data) {
  uint64_t hash = hash_of(data, hash_of(experiment));
  hash = hash_of(to_json(without_paths(spec)), hash);
  for (const Parameter& parameter : layout.parameters()) {
    hash =
        hash_of(fmt::format("{}@{}+{}", parameter.name, parameter.offset, parameter.size()), hash);
  }
  return hash_of(fmt::format("{} of {} for {}", layout.size(), servers, workers), hash);
}

Server::Server(const ServerConfig& config, const Layout& layout)
    : config_(config),
      sync_(config.spec.strategy.mode == ServerMode::Sync),
      deadline_(config.spec.deadline_seconds),
      job_(server_job(config.experiment, config.spec, layout, config.servers.size(),
                      config.workers.size(), config.data)),
      kernel_(config.spec.optimizer, layout),
      clocks_(static_cast<int>(config.workers.size())),
      workers_(config.workers.size()) {}

Server::~Server() = default;

Result<std::unique_ptr<Server>> Server::open(const ServerConfig& config, const Layout& layout) {
  INVARIANT(config.index >= 0 && static_cast<size_t>(config.index) < config.servers.size(),
            "a server is one of the cluster's");
  std::unique_ptr<Server> server(new Server(config, layout));
  const Range range = shards_of(
      layout.size(), static_cast<int>(config.servers.size()))[static_cast<size_t>(config.index)];
  const auto workers = static_cast<int>(config.workers.size());
  const ShardState::Shape shape{.job = server->job_,
                                .elements = range.size(),
                                .states = server->kernel_.states(),
                                .writers = workers + 1,
                                .boot = hash_of(boot_id())};
  TRY(auto state, ShardState::open(range.size() == 0 ? "" : state_path(config), shape,
                                   Deadline::after(config.spec.deadline_seconds)));
  server->shard_ = std::make_unique<server::Shard>(std::move(state), server->kernel_, range);
  server->stop_ = Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!server->stop_) return errno_error("eventfd", errno);

  TRY(server->listen());
  const auto now = Clock::now();
  for (int worker = 0; worker < workers; ++worker) {
    Worker& of = server->workers_[static_cast<size_t>(worker)];
    of.lost = now;
    server->clocks_.advance(worker, server->shard_->last(worker));
  }
  return server;
}

Status Server::listen() {
  const std::string& address = config_.servers[static_cast<size_t>(config_.index)];
  TRY(const HostPort at, parse_host_port(address));
  if (config_.spec.strategy.data_path == DataPath::Grpc) {
    return listen_locally(fmt::format("{} of {}", config_.index, address));
  }
  // First where workers of this host look second: who finds the one finds the other. Without it TCP
  // serves them all.
  if (at.port != 0) static_cast<void>(listen_locally(address));
  TRY(const HostPort everywhere, parse_host_port(listening_address(address)));
  TRY(listener_, Listener::open(everywhere.host, everywhere.port));
  if (at.port == 0) static_cast<void>(listen_locally(fmt::format("{}:{}", at.host, port())));
  return ok();
}

Status Server::listen_locally(const std::string& address) {
  local_address_ = server::local_address(address, job_);
  TRY(local_, Listener::open_unix(local_address_));
  return ok();
}

void Server::stop() {
  const uint64_t one = 1;
  static_cast<void>(!::write(stop_.get(), &one, sizeof(one)));  // it is there until it is read
}

Status Server::run(int ending) {
  std::vector<pollfd> polled;
  while (true) {
    const bool accepts = Clock::now() >= accepts_after_;
    polled = {{stop_.get(), POLLIN, 0},
              {ending, POLLIN, 0},
              {accepts ? listener_.fd() : -1, POLLIN, 0},
              {accepts ? local_.fd() : -1, POLLIN, 0}};
    const size_t first = polled.size();
    // Who is waited for, and async who is silent, is seen by the clock alone.
    bool waiting = !accepts;
    for (const auto& link : links_) {
      // Who does not take its answers is not listened to.
      const short events = link->sending() ? POLLOUT : POLLIN;
      polled.push_back({link->socket.fd(), events, 0});
      waiting |= link->wait != server::Wait::Nothing || link->closing || link->is_stranger() || (!sync_ && !link->left);
    }
    const int ready = ::poll(polled.data(), polled.size(), waiting ? kLook_ms : -1);
    if (ready < 0 && errno != EINTR) return errno_error("poll", errno);
    if (ready < 0) continue;
    if (polled[0].revents != 0 || polled[1].revents != 0) break;

    const size_t known = links_.size();
    for (size_t i = 0; i < known; ++i) {
      Link& link = *links_[i];
      const short events = polled[first + i].revents;
      if (events == 0) continue;
      const Status done = link.sending() ? link.flush() : link.closing ? link.drain() : read(link);
      if (!done.ok()) link.socket.close();
    }
    const Time now = Clock::now();
    if (waiting) look_at_clock(now);
    for (const auto& link : links_) {
      if (link->socket && link->sending() && !link->flush().ok()) link->socket.close();
    }
    for (size_t i = links_.size(); i-- > 0;) {
      const Link& link = *links_[i];
      if (!link.socket || (link.closing && now - link.since > kLinger) ||
          (link.is_stranger() && now - link.since > std::chrono::duration<double>(kGreeting * deadline_))) {
        close(i);
      }
    }
    if (polled[2].revents != 0) accept(listener_);
    if (polled[3].revents != 0) accept(local_);
  }
  if (shard_->state().finished()) shard_->state().remove();
  return ok();
}

void Server::accept(Listener& listener) {
  auto socket = listener.accept(Deadline::after(0));
  if (!socket.ok()) {
    // Who waits to be accepted would wake the loop again at once.
    if (socket.error().code != Code::DeadlineExceeded) accepts_after_ = Clock::now() + kNoRoom;
    return;
  }
  if (links_.size() >= workers_.size() * 2 + kConnectionsBeyondWorkers) return;
  links_.push_back(std::make_unique<Link>(std::move(socket).value()));
  links_.back()->since = links_.back()->heard = Clock::now();
  server::watch_peer(links_.back()->socket);
}

// An error means that the connection is of no use any more. What a worker should know of it, it has
// been told before.
Status Server::read(Link& link) {
  size_t taken = 0;
  const auto refused = [&](Status status) {
    if (!status.ok()) link.refuse(status.error());
    return !status.ok();
  };
  while (taken < kBytesATurn && !link.closing && !link.sending()) {
    const bool in_header = !link.has_header();
    TRY(const size_t count, link.read());
    if (count == 0) return ok();
    taken += count;
    heard(link);
    if (in_header) {
      if (!link.has_header()) continue;
      // Who doesn't speak this language would not understand an answer either.
      TRY(server::check(link.in, false));
      link.payload_left = link.in.payload;
      if (refused(begin(link))) return ok();
    } else if (refused(receive(link))) {
      return ok();
    }
    if (link.payload_left == 0) {
      link.next_frame();
      if (refused(finish(link))) return ok();
    }
  }
  return ok();
}

void Server::close(size_t index) {
  const std::unique_ptr<Link> link = std::move(links_[index]);
  links_.erase(links_.begin() + static_cast<std::ptrdiff_t>(index));
  lost(*link);
}

Status run_server(const ServerConfig& config, const Layout& layout,
                  const std::function<Status(const Server&)>& opened) {
  sigset_t ending;
  ::sigemptyset(&ending);
  ::sigaddset(&ending, SIGTERM);
  ::sigaddset(&ending, SIGINT);
  ::pthread_sigmask(SIG_BLOCK, &ending, nullptr);
  Fd signals(::signalfd(-1, &ending, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals) return errno_error("signalfd", errno);
  TRY(const auto server, Server::open(config, layout));
  if (opened) TRY(opened(*server));
  return server->run(signals.get());
}

}  // namespace dtrain::engine
