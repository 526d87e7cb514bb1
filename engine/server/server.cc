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

uint64_t server_job(const std::string& experiment, const EngineSpec& spec, size_t servers, size_t workers) {
  const std::string counts = fmt::format("{} for {}", servers, workers);
  return hash_of(counts, hash_of(to_json(without_paths(spec)), hash_of(experiment)));
}

Server::Server(const ServerConfig& config, ServerPlan plan)
    : config_(config),
      plan_(std::move(plan)),
      sync_(config.spec.strategy.mode == ServerMode::Sync),
      deadline_(config.spec.deadline_seconds),
      job_(server_job(config.experiment, config.spec, config.servers.size(), config.workers.size())),
      kernel_(config.spec.optimizer, plan_.layout),
      clocks_(static_cast<int>(config.workers.size())),
      workers_(config.workers.size()) {}

Server::~Server() = default;

Result<std::unique_ptr<Server>> Server::open(const ServerConfig& config, ServerPlan plan,
                                             std::optional<server::Doors> doors) {
  INVARIANT(config.index >= 0 && static_cast<size_t>(config.index) < config.servers.size(),
            "a server is one of the cluster's");
  std::unique_ptr<Server> server(new Server(config, std::move(plan)));
  const Layout& layout = server->plan_.layout;
  const Range range = shards_of(
      layout.size(), static_cast<int>(config.servers.size()))[static_cast<size_t>(config.index)];
  const auto workers = static_cast<int>(config.workers.size());
  const ShardState::Shape shape{.job = server->job_ ^ server->plan_.data.hash ^ layout.hash(),
                                .elements = range.size(),
                                .states = server->kernel_.states(),
                                .writers = workers + 1,
                                .boot = hash_of(boot_id())};
  TRY(auto state, ShardState::open(range.size() == 0 ? "" : state_path(config), shape,
                                   Deadline::after(config.spec.deadline_seconds)));
  server->shard_ = std::make_unique<server::Shard>(std::move(state), server->kernel_, range);
  server->stop_ = Fd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!server->stop_) return errno_error("eventfd", errno);

  if (!doors) {
    TRY(doors, server::Doors::open(config.servers[static_cast<size_t>(config.index)], config.spec.strategy.data_path,
                                   server->job_));
  }
  server->doors_ = std::move(*doors);
  const auto now = Clock::now();
  for (int worker = 0; worker < workers; ++worker) {
    Worker& of = server->workers_[static_cast<size_t>(worker)];
    of.lost = now;
    server->clocks_.advance(worker, server->shard_->last(worker));
  }
  return server;
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
              {accepts ? doors_.tcp.fd() : -1, POLLIN, 0},
              {accepts ? doors_.local.fd() : -1, POLLIN, 0}};
    const size_t first = polled.size();
    // Who is waited for, and async who is silent, is seen by the clock alone.
    bool waiting = !accepts;
    for (const auto& link : links_) {
      // Who does not take its answers is not listened to.
      const short events = link->sending() ? POLLOUT : POLLIN;
      polled.push_back({link->socket.fd(), events, 0});
      waiting |= link->wait != server::WaitFor::Nothing || link->closing || link->is_stranger() || (!sync_ && !link->left);
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
    if (polled[2].revents != 0) accept(doors_.tcp);
    if (polled[3].revents != 0) accept(doors_.local);
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
}

void Server::adopt(std::vector<std::unique_ptr<Link>> links) {
  links_ = std::move(links);
  Link& first = *links_.front();
  first.next_frame();
  if (const Status done = finish(first); !done.ok()) first.refuse(done.error());
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

Status run_server(const ServerConfig& config, const server::MakePlan& make_plan,
                  const std::function<Status(const server::Doors&)>& listening) {
  sigset_t ending;
  ::sigemptyset(&ending);
  ::sigaddset(&ending, SIGTERM);
  ::sigaddset(&ending, SIGINT);
  ::pthread_sigmask(SIG_BLOCK, &ending, nullptr);
  Fd signals(::signalfd(-1, &ending, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!signals) return errno_error("signalfd", errno);
  const uint64_t job = server_job(config.experiment, config.spec, config.servers.size(), config.workers.size());
  TRY(auto doors, server::Doors::open(config.servers[static_cast<size_t>(config.index)], config.spec.strategy.data_path, job));
  if (listening) TRY(listening(doors));
  TRY(auto first, server::wait_for_first_hello(doors, job, config.workers.size(), make_plan, signals.get()));
  if (!first) return ok();
  TRY(const auto server, Server::open(config, std::move(first->plan), std::move(doors)));
  server->adopt(std::move(first->links));
  return server->run(signals.get());
}

}  // namespace dtrain::engine
