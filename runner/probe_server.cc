#include "runner/probe_server.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

namespace dtrain::runner {

namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr auto kProbeGreetingTime = 5s;
constexpr auto kServeTime = 5s;

// IPv6 takes both kinds; where there is none, IPv4 alone.
Result<Fd> listen_at_port(int port) {
  Fd fd(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int yes = 1, no = 0;
  int bound = -1;
  if (fd) {
    ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
    sockaddr_in6 any{};
    any.sin6_family = AF_INET6;
    any.sin6_port = htons(static_cast<uint16_t>(port));
    bound = ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&any), sizeof any);
  }
  if (!fd || (bound != 0 && errno == EADDRNOTAVAIL)) {
    fd = Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!fd) return errno_error("make a socket", errno);
    ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    sockaddr_in any{};
    any.sin_family = AF_INET;
    any.sin_port = htons(static_cast<uint16_t>(port));
    bound = ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&any), sizeof any);
  }
  if (bound != 0 || ::listen(fd.get(), SOMAXCONN) != 0) return errno_error(fmt::format("listen at port {}", port), errno);
  return fd;
}

}  // namespace

ProbeServer::ProbeServer(std::string experiment, int own, std::function<void(int)> follows_orders)
    : experiment_(std::move(experiment)), own_(own), follows_orders_(std::move(follows_orders)) {}

ProbeServer::~ProbeServer() {
  std::unique_lock lock(mutex_);
  stopping_ = true;
  if (listener_) ::shutdown(listener_.get(), SHUT_RDWR);
  for (Visit& visit : visits_) {
    if (visit.fd) ::shutdown(visit.fd.get(), SHUT_RDWR);
  }
  lock.unlock();
  if (acceptor_.joinable()) acceptor_.join();
  for (Visit& visit : visits_) visit.thread.join();
}

Result<int> ProbeServer::listen(int port) {
  TRY(listener_, listen_at_port(port));
  sockaddr_in6 own{};   // where the port stands in an IPv4 address, too
  socklen_t size = sizeof own;
  if (::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&own), &size) != 0) return errno_error("look at a socket", errno);
  acceptor_ = std::thread([this] { accept_all(); });
  return static_cast<int>(ntohs(own.sin6_port));
}

void ProbeServer::accept_all() {
  while (true) {
    Fd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    const std::lock_guard lock(mutex_);
    if (stopping_) return;
    if (!fd && errno != EINTR && errno != ECONNABORTED) return;
    if (!fd) continue;
    sweep();
    const int yes = 1;
    ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    Visit& visit = visits_.emplace_back();
    visit.fd = std::move(fd);
    visit.thread = std::thread([this, &visit] {
      serve(visit.fd);
      const std::lock_guard done(mutex_);
      visit.fd.reset();
      visit.over = true;
    });
  }
}

// With the mutex.
void ProbeServer::sweep() {
  for (auto it = visits_.begin(); it != visits_.end();) {
    if (!it->over) {
      ++it;
      continue;
    }
    it->thread.join();   // which does nothing any more that takes the mutex
    it = visits_.erase(it);
  }
}

void ProbeServer::serve(Fd& fd) {
  const auto greeted_by = Clock::now() + kProbeGreetingTime;
  const auto greeting = read_greeting(fd.get(), experiment_, own_, greeted_by);
  if (!greeting) return;
  {
    const std::lock_guard lock(mutex_);
    reached_ = true;   // before who dialled knows it
  }
  if (!greet(fd.get(), greeted_by)) return;
  const auto deadline = Clock::now() + kServeTime;
  switch (greeting->purpose) {
    case ProbePurpose::Hello: return;
    case ProbePurpose::Ping: return answer_pings(fd.get(), deadline);
    case ProbePurpose::Upload: (void)receive_for_a_while(fd.get(), true, deadline); return;
    case ProbePurpose::Download: (void)send_for_a_while(fd.get(), deadline); return;
    case ProbePurpose::Orders: return follows_orders_(fd.get());
    case ProbePurpose::Finish: return finish();
    case ProbePurpose::Work: {
      const std::lock_guard lock(mutex_);
      workers_[greeting->from] = std::move(fd);
      changed_.notify_all();
      return;
    }
  }
}

Fd ProbeServer::take_worker(int index, ProbeTime deadline) {
  std::unique_lock lock(mutex_);
  if (!changed_.wait_until(lock, deadline, [&] { return workers_.contains(index); })) return Fd();
  return std::move(workers_.extract(index).mapped());
}

bool ProbeServer::wait_for_finish(ProbeTime deadline) {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, deadline, [&] { return finished_; });
}

void ProbeServer::finish() {
  const std::lock_guard lock(mutex_);
  finished_ = true;
  changed_.notify_all();
}

bool ProbeServer::was_reached() {
  const std::lock_guard lock(mutex_);
  return reached_;
}

}  // namespace dtrain::runner
