#include "runner/probe_line.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <system_error>
#include <thread>
#include <vector>

namespace dtrain::runner {

namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr const char* kHello = "dtrain-probe";
constexpr const char* kYes = "yes";
constexpr size_t kLineMaxBytes = 512;
constexpr size_t kStreamPieceBytes = 256 << 10;
constexpr auto kSendTime = 300ms;
constexpr auto kReceiveTime = 1s;        // of a slow link less is measured than was sent
constexpr auto kDialsAgain = 50ms;
constexpr int kPings = 15, kFirstPings = 3;   // the first ones find the way there

int ms_until(ProbeTime deadline) {
  return static_cast<int>(std::clamp<int64_t>(std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count(), 0, 1 << 30));
}

// Whether the descriptor has become that by then.
bool wait_for(int fd, short events, ProbeTime deadline) {
  pollfd one{fd, events, 0};
  while (true) {
    const int ready = ::poll(&one, 1, ms_until(deadline));
    if (ready > 0) return true;
    if (ready == 0 || errno != EINTR) return false;
  }
}

// The descriptor does not block. -1: no more, or not by then.
ssize_t receive_some(int fd, char* to, size_t size, ProbeTime deadline) {
  while (true) {
    const ssize_t got = ::recv(fd, to, size, 0);
    if (got >= 0) return got;
    if (errno == EINTR) continue;
    if (errno != EAGAIN || !wait_for(fd, POLLIN, deadline)) return -1;
  }
}

ssize_t send_some(int fd, const char* from, size_t size, ProbeTime deadline) {
  while (true) {
    const ssize_t sent = ::send(fd, from, size, MSG_NOSIGNAL);
    if (sent >= 0) return sent;
    if (errno == EINTR) continue;
    if (errno != EAGAIN || !wait_for(fd, POLLOUT, deadline)) return -1;
  }
}

Reach reach_of(int number) {
  switch (number) {
    case ETIMEDOUT: return Reach::TimedOut;
    case ECONNREFUSED: return Reach::Refused;
    case EHOSTUNREACH:
    case ENETUNREACH:
    case EACCES:
    case EPERM:
    case EINVAL:   // of a route that is a black hole
    case ENETDOWN:
    case EHOSTDOWN: return Reach::NoWay;
    default: return Reach::Other;
  }
}

ProbeDialled not_dialled(int number) {
  const char* const black_hole = "a route of this host drops what goes there";
  return {Fd(), reach_of(number), number == EINVAL ? black_hole : std::system_category().message(number)};
}

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

// The errno of it, 0: connected.
int connect_by(int fd, const addrinfo& where, ProbeTime deadline) {
  if (::connect(fd, where.ai_addr, where.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  if (!wait_for(fd, POLLOUT, deadline)) return ETIMEDOUT;
  int number = 0;
  socklen_t size = sizeof number;
  ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &number, &size);
  return number;
}

double rate_of(uint64_t bytes, Clock::duration time) {
  return static_cast<double>(bytes) / std::max(std::chrono::duration<double>(time).count(), 1e-6);
}

// Whatever still comes: who closes before it was read takes away what the other end has not read yet.
void drain(int fd, ProbeTime deadline) {
  std::vector<char> piece(kStreamPieceBytes);
  while (receive_some(fd, piece.data(), piece.size(), deadline) > 0) {
  }
}

int64_t wall_clock_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

std::optional<std::string> read_probe_line(int fd, ProbeTime deadline) {
  std::string line;
  while (line.size() < kLineMaxBytes) {
    char byte = 0;
    if (receive_some(fd, &byte, 1, deadline) != 1) return std::nullopt;
    if (byte == '\n') return line;
    line += byte;
  }
  return std::nullopt;
}

bool write_probe_line(int fd, const std::string& line, ProbeTime deadline) {
  const std::string text = line + "\n";
  for (size_t sent = 0; sent < text.size();) {
    const ssize_t some = send_some(fd, text.data() + sent, text.size() - sent, deadline);
    if (some <= 0) return false;
    sent += static_cast<size_t>(some);
  }
  return true;
}

ProbeDialled dial_probe(const ProbePeer& peer, const ProbeGreeting& greeting, ProbeTime deadline, bool waits_for_it) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* first = nullptr;
  if (const int number = getaddrinfo(peer.address.c_str(), std::to_string(peer.port).c_str(), &hints, &first); number != 0) {
    return {Fd(), Reach::NoName, gai_strerror(number)};
  }
  const Addresses owned(first, freeaddrinfo);
  for (bool was_refused = false;; was_refused = true) {
    Fd fd(::socket(first->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int number = fd ? connect_by(fd.get(), *first, deadline) : errno;
    if (number == ECONNREFUSED && waits_for_it && Clock::now() + kDialsAgain < deadline) {
      std::this_thread::sleep_for(kDialsAgain);
      continue;
    }
    // A kernel says so now and then only, to one that asks again and again.
    if (number == ETIMEDOUT && was_refused) return not_dialled(ECONNREFUSED);
    if (number != 0) return not_dialled(number);
    const int yes = 1;
    ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    const std::string line = fmt::format("{} {} {} {} {}", kHello, greeting.experiment, greeting.from, greeting.to, static_cast<char>(greeting.purpose));
    if (!write_probe_line(fd.get(), line, deadline)) return not_dialled(ETIMEDOUT);
    const auto answer = read_probe_line(fd.get(), deadline);
    if (answer == kYes) return {std::move(fd), Reach::Reached, ""};
    if (!answer && Clock::now() >= deadline) return not_dialled(ETIMEDOUT);
    return {Fd(), Reach::Stranger, "somebody else answers there"};
  }
}

std::optional<ProbeGreeting> read_greeting(int fd, const std::string& experiment, int own, ProbeTime deadline) {
  const auto line = read_probe_line(fd, deadline);
  if (!line) return std::nullopt;
  ProbeGreeting greeting;
  const std::string begin = fmt::format("{} {} ", kHello, experiment);
  char purpose = 0;
  if (!line->starts_with(begin)) return std::nullopt;
  if (std::sscanf(line->c_str() + begin.size(), "%9d %9d %c", &greeting.from, &greeting.to, &purpose) != 3 || greeting.to != own) return std::nullopt;
  greeting.purpose = static_cast<ProbePurpose>(purpose);
  return greeting;
}

bool greet(int fd, ProbeTime deadline) { return write_probe_line(fd, kYes, deadline); }

double send_for_a_while(int fd, ProbeTime deadline) {
  std::vector<char> piece(kStreamPieceBytes, 'x');
  const auto end = std::min(Clock::now() + kSendTime, deadline);
  while (Clock::now() < end && send_some(fd, piece.data(), piece.size(), end) > 0) {
  }
  ::shutdown(fd, SHUT_WR);
  const auto told = read_probe_line(fd, deadline);
  return told ? std::atof(told->c_str()) : 0;
}

double receive_for_a_while(int fd, bool tells, ProbeTime deadline) {
  std::vector<char> piece(kStreamPieceBytes);
  if (receive_some(fd, piece.data(), 1, deadline) != 1) return 0;
  const auto begin = Clock::now();
  const auto end = std::min(begin + kReceiveTime, deadline);
  uint64_t bytes = 1;
  auto last = begin;
  for (ssize_t got = 1; got > 0 && last < end;) {
    got = receive_some(fd, piece.data(), piece.size(), end);
    last = Clock::now();
    if (got > 0) bytes += static_cast<uint64_t>(got);
  }
  const double rate = rate_of(bytes, last - begin);
  if (tells) {
    write_probe_line(fd, fmt::format("{:.0f}", rate), deadline);
    drain(fd, deadline);
  }
  return rate;
}

void answer_pings(int fd, ProbeTime deadline) {
  char byte = 0;
  while (receive_some(fd, &byte, 1, deadline) == 1) {
    if (!write_probe_line(fd, std::to_string(wall_clock_us()), deadline)) return;
  }
}

std::optional<ProbePings> ping(int fd, ProbeTime deadline) {
  std::vector<double> trips_ms;
  double shortest_ms = INFINITY, ahead_ms = 0;
  for (int i = 0; i < kPings; ++i) {
    const int64_t sent_us = wall_clock_us();
    const auto begin = Clock::now();
    if (send_some(fd, "?", 1, deadline) != 1) break;
    const auto told = read_probe_line(fd, deadline);
    if (!told) break;
    const double trip_ms = std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
    if (i >= kFirstPings) trips_ms.push_back(trip_ms);
    if (trip_ms >= shortest_ms) continue;
    shortest_ms = trip_ms;
    ahead_ms = static_cast<double>(std::atoll(told->c_str()) - sent_us) / 1000 - trip_ms / 2;
  }
  if (trips_ms.empty()) return std::nullopt;
  const auto middle = trips_ms.begin() + static_cast<long>(trips_ms.size() / 2);
  std::nth_element(trips_ms.begin(), middle, trips_ms.end());
  return ProbePings{*middle, ahead_ms};
}

}  // namespace dtrain::runner
