#include "runner/mpi_agent.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <sstream>
#include <thread>

#include "runner/mpi_wire.h"
#include "schema/fd.h"
#include "schema/small_file.h"
#include "schema/write_all.h"

namespace dtrain::runner {
namespace {

// A gang's replicas start at about the same time.
constexpr std::chrono::seconds kPatience{60};
constexpr int kDialsAgainMs = 50;

struct Worker {
  std::string address, port;
};

Result<Worker> find_worker(const std::filesystem::path& file, const std::string& name) {
  TRY(const auto text, read_file(file));
  std::istringstream lines(text.value_or(""));
  for (std::string known, address, port; lines >> known >> address >> port;) {
    if (known == name) return Worker{address, port};
  }
  return Error{Code::NotFound, fmt::format("'{}' is no worker of this experiment", name),
               "mpirun finds its hosts in the hostfile that dtrain has made; leave out --host and --hostfile"};
}

Result<Fd> dial(const Worker& worker) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* first = nullptr;
  if (const int failed = getaddrinfo(worker.address.c_str(), worker.port.c_str(), &hints, &first); failed != 0) {
    return Error{Code::Unavailable, fmt::format("{}: {}", worker.address, gai_strerror(failed)), ""};
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owned(first, freeaddrinfo);
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (true) {
    Fd fd(::socket(first->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (fd && ::connect(fd.get(), first->ai_addr, first->ai_addrlen) == 0) {
      const int yes = 1;
      ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
      ::setsockopt(fd.get(), SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
      return fd;
    }
    const int error = errno;
    if (error != ECONNREFUSED || std::chrono::steady_clock::now() > deadline) {
      return errno_error(fmt::format("reach the worker at {}:{}", worker.address, worker.port), error);
    }
    ::poll(nullptr, 0, kDialsAgainMs);
  }
}

void pass_input(int worker) {
  while (true) {
    std::array<char, 64 << 10> piece;
    const ssize_t got = ::read(STDIN_FILENO, piece.data(), piece.size());
    if (got < 0 && errno == EINTR) continue;
    const std::string_view bytes(piece.data(), got > 0 ? static_cast<size_t>(got) : 0);
    if (!write_frame(worker, MpiFrame::Input, bytes).ok() || bytes.empty()) return;
  }
}

Result<int> relay(Fd connection) {
  const auto worker = std::make_shared<const Fd>(std::move(connection));
  // By itself: the worker may take no more input before its output is read. It ends with this process.
  std::thread([worker] { pass_input(worker->get()); }).detach();
  while (true) {
    TRY(const MpiMessage message, read_frame(worker->get()));
    // Where it fails, mpirun wants no more of it.
    if (message.kind == MpiFrame::Output) (void)!write_all(STDOUT_FILENO, message.bytes);
    if (message.kind == MpiFrame::Errors) (void)!write_all(STDERR_FILENO, message.bytes);
    if (message.kind == MpiFrame::Ended && !message.bytes.empty()) return static_cast<unsigned char>(message.bytes[0]);
  }
}

}  // namespace

Result<int> run_mpi_agent(const std::filesystem::path& workers, std::vector<std::string> words) {
  ::signal(SIGPIPE, SIG_IGN);
  while (!words.empty() && words.front().starts_with('-')) words.erase(words.begin());
  if (words.size() < 2) return Error{Code::InvalidArgument, "mpi-agent is what mpirun calls", ""};
  const std::string name = words.front();
  const char* secret = std::getenv("DTRAIN_SUBMISSION");
  TRY(const Worker worker, find_worker(workers, name));
  TRY(Fd fd, dial(worker));
  TRY(greet_worker(fd.get(), secret == nullptr ? "" : secret));
  // As ssh does: one text for the shell over there.
  std::string command;
  for (size_t i = 1; i < words.size(); ++i) command += (i == 1 ? "" : " ") + words[i];
  TRY(write_frame(fd.get(), MpiFrame::Command, command));
  auto code = relay(std::move(fd));
  if (!code.ok()) return Error{Code::Unavailable, fmt::format("{}: {}", name, code.error().message), ""};
  return code;
}

}  // namespace dtrain::runner
