#include "engine/bench/ceilings.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>

#include "engine/buffer.h"
#include "engine/cpus.h"
#include "engine/kernels/kernels.h"

namespace dtrain::engine {

void fill_unevenly(Buffer<float>& values) {
  for (int64_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i));
}

namespace {

constexpr int kCeilingRounds = 21;

using Clock = std::chrono::steady_clock;

double median_rate(int64_t m, int64_t n, int64_t k, int64_t times) {
  Buffer<float> a(m * k), b(k * n), c(m * n);
  fill_unevenly(a);
  fill_unevenly(b);
  const Kernels<float>& kernel = kernels<float>(m);
  std::vector<double> seconds;
  for (int round = 0; round < kCeilingRounds; ++round) {
    const auto begin = Clock::now();
    for (int64_t i = 0; i < times; ++i) {
      kernel.gemm(m, n, k, {a.data(), k, 1}, {b.data(), n, 1}, c.data(), n, false, nullptr);
    }
    seconds.push_back(seconds_since(begin));
  }
  return 2.0 * static_cast<double>(m * n * k * times) / median(std::move(seconds));
}

// What the units do when little keeps them waiting: a product that lies in the first-level cache, or one that
// lies in the second and has so many sums that to pack it is nothing, whichever is faster.
double peak_of_this_thread() { return std::max(median_rate(14, 32, 128, 200), median_rate(256, 256, 512, 1)); }

struct CpuTimes {
  double idle = 0, all = 0;
};

CpuTimes cpu_times() {
  std::ifstream file("/proc/stat");
  std::string name;
  CpuTimes times;
  file >> name;
  double value = 0;
  // user nice system idle iowait irq softirq steal
  for (int i = 0; i < 8 && file >> value; ++i) {
    times.all += value;
    if (i == 3 || i == 4) times.idle += value;
  }
  return times;
}

// The kernel's own loops, as little as can be done: nothing is polled for.
bool send_all(int fd, const char* data, size_t size) {
  while (size > 0) {
    const ssize_t sent = ::send(fd, data, size, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    data += sent;
    size -= static_cast<size_t>(sent);
  }
  return true;
}

bool receive_all(int fd, char* data, size_t size) {
  while (size > 0) {
    const ssize_t got = ::recv(fd, data, size, MSG_WAITALL);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    data += got;
    size -= static_cast<size_t>(got);
  }
  return true;
}

void make_blocking(const Socket& socket) {
  ::fcntl(socket.fd(), F_SETFL, ::fcntl(socket.fd(), F_GETFL) & ~O_NONBLOCK);
}

void serve_echoes(const Socket& socket) {
  std::vector<char> bytes;
  size_t size = 0;
  while (receive_all(socket.fd(), reinterpret_cast<char*>(&size), sizeof size)) {
    bytes.resize(size);
    if (!receive_all(socket.fd(), bytes.data(), size)) return;
    if (!send_all(socket.fd(), bytes.data(), size)) return;
  }
}

}  // namespace

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*std::max_element(values.begin(), middle) + *middle) / 2;
}

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

double idle_cpus(double seconds) {
  const CpuTimes before = cpu_times();
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  const CpuTimes after = cpu_times();
  const double all = after.all - before.all;
  const double machine = static_cast<double>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)));
  return all <= 0
             ? 0
             : std::min(static_cast<double>(cpus()), (after.idle - before.idle) / all * machine);
}

double peak_operations(int threads) {
  std::vector<double> rates(static_cast<size_t>(threads));
  std::vector<std::thread> others;
  for (size_t i = 1; i < rates.size(); ++i) {
    others.emplace_back([&rates, i] { rates[i] = peak_of_this_thread(); });
  }
  rates[0] = peak_of_this_thread();
  for (std::thread& each : others) each.join();
  double sum = 0;
  for (const double rate : rates) sum += rate;
  return sum;
}

double memcpy_seconds(int64_t bytes) {
  static std::vector<char> from, to;  // kept: pages that are new would be measured, too
  if (static_cast<int64_t>(from.size()) < bytes) {
    from.assign(static_cast<size_t>(bytes), 1);
    to.assign(from.size(), 0);
  }
  const auto begin = Clock::now();
  std::memcpy(to.data(), from.data(), static_cast<size_t>(bytes));
  asm volatile("" : : "r"(to.data()) : "memory");  // or it need not happen
  return seconds_since(begin);
}

Result<std::unique_ptr<Echo>> Echo::open(Way way) {
  const std::string name = fmt::format("unix:@dtrain-bench-{}", ::getpid());
  TRY(Listener listener,
      way == Way::Tcp ? Listener::open("127.0.0.1", 0) : Listener::open_unix(name));
  const pid_t parent = ::getpid();
  const pid_t other = ::fork();
  if (other < 0) return errno_error("start a process", errno);
  const Deadline deadline = Deadline::after(kBenchPatience_seconds);
  if (other == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    auto socket = listener.accept(deadline);
    if (socket.ok()) {
      make_blocking(*socket);
      serve_echoes(*socket);
    }
    ::_exit(0);
  }
  auto socket = Socket::connect(
      way == Way::Tcp ? fmt::format("127.0.0.1:{}", listener.port()) : name, deadline);
  if (!socket.ok()) {
    ::kill(other, SIGKILL);
    ::waitpid(other, nullptr, 0);
    return std::move(socket.error());
  }
  make_blocking(*socket);
  return std::unique_ptr<Echo>(new Echo(std::move(socket).value(), other));
}

Echo::~Echo() {
  ::kill(other_, SIGKILL);
  ::waitpid(other_, nullptr, 0);
}

Result<double> Echo::seconds(int64_t bytes) {
  if (static_cast<int64_t>(bytes_.size()) < bytes) bytes_.assign(static_cast<size_t>(bytes), 1);
  const auto size = static_cast<size_t>(bytes);
  const auto begin = Clock::now();
  if (!send_all(socket_.fd(), reinterpret_cast<const char*>(&size), sizeof size) ||
      !send_all(socket_.fd(), bytes_.data(), size) ||
      !receive_all(socket_.fd(), bytes_.data(), size)) {
    return errno_error("exchange bytes with another process of this bench", errno);
  }
  return seconds_since(begin);
}

}  // namespace dtrain::engine
