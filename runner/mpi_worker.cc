#include "runner/mpi_worker.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "runner/mpi_launch.h"
#include "runner/mpi_wire.h"
#include "schema/fd.h"

namespace dtrain::runner {
namespace {

constexpr size_t kPieceBytes = 64 << 10;
// Who connects says who he is at once.
constexpr timeval kGreetingTime{10, 0};

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

struct Pipe {
  Fd read, write;
};
Result<Pipe> make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return errno_error("make a pipe", errno);
  return Pipe{Fd(ends[0]), Fd(ends[1])};
}

struct Program {
  pid_t pid = -1;
  Fd process, input, output, errors;
  std::string untaken;   // of its input
};

Result<Program> start(const std::string& command) {
  TRY(Pipe input, make_pipe());
  TRY(Pipe output, make_pipe());
  TRY(Pipe errors, make_pipe());
  Program program;
  program.pid = ::fork();
  if (program.pid < 0) return errno_error("fork", errno);
  if (program.pid == 0) {
    ::setpgid(0, 0);
    if (command.find("btl_tcp_if_exclude") != std::string::npos) ::unsetenv(kMpiInterfaceVariable);   // told to mpirun
    ::dup2(input.read.get(), 0);
    ::dup2(output.write.get(), 1);
    ::dup2(errors.write.get(), 2);
    ::signal(SIGPIPE, SIG_DFL);
    ::execl("/bin/sh", "sh", "-c", command.c_str(), static_cast<char*>(nullptr));
    ::_exit(127);
  }
  ::setpgid(program.pid, program.pid);
  program.process = Fd(static_cast<int>(::syscall(SYS_pidfd_open, program.pid, 0)));
  ::fcntl(input.write.get(), F_SETFL, O_NONBLOCK);   // it may take none before its output is read
  program.input = std::move(input.write);
  program.output = std::move(output.read);
  program.errors = std::move(errors.read);
  return program;
}

// What is there of `from`, to the agent. False: there will be no more.
Result<bool> pass_on(Fd& from, MpiFrame kind, int agent) {
  std::array<char, kPieceBytes> piece;
  const ssize_t got = ::read(from.get(), piece.data(), piece.size());
  if (got < 0 && (errno == EINTR || errno == EAGAIN)) return true;
  if (got <= 0) return false;
  TRY(write_frame(agent, kind, {piece.data(), static_cast<size_t>(got)}));
  return true;
}

void give_input(Program& program) {
  const ssize_t written = ::write(program.input.get(), program.untaken.data(), program.untaken.size());
  if (written >= 0) program.untaken.erase(0, static_cast<size_t>(written));
  if (written >= 0 || errno == EINTR || errno == EAGAIN) return;
  program.input.reset();   // it wants no more
  program.untaken.clear();
}

void take_input(Program& program, MpiMessage message) {
  if (message.kind != MpiFrame::Input || !program.input) return;
  program.untaken = std::move(message.bytes);
  if (program.untaken.empty()) program.input.reset();
}

// Until it has ended. What it has left behind, in a session of its own, goes on: MPI's daemons are like that. Its output
// is waited for no longer than itself.
Status accompany(Program& program, int agent) {
  bool ended = false;
  while (true) {
    // No more input is taken than there is room for; that the agent has gone is heard all the same.
    const bool is_full = !program.untaken.empty();
    std::array<pollfd, 5> waits{{{agent, static_cast<short>(is_full ? POLLRDHUP : POLLIN), 0},
                                 {program.output ? program.output.get() : -1, POLLIN, 0},
                                 {program.errors ? program.errors.get() : -1, POLLIN, 0},
                                 {ended ? -1 : program.process.get(), POLLIN, 0},
                                 {is_full ? program.input.get() : -1, POLLOUT, 0}}};
    const int ready = ::poll(waits.data(), waits.size(), ended ? 0 : -1);
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) break;   // it has ended, and has said all
    if (waits[0].revents != 0) {
      if (is_full) return Error{Code::Unavailable, "the agent has gone", ""};
      TRY(MpiMessage message, read_frame(agent));
      take_input(program, std::move(message));
    }
    if (waits[4].revents != 0) give_input(program);
    if (waits[1].revents != 0) {
      TRY(const bool more, pass_on(program.output, MpiFrame::Output, agent));
      if (!more) program.output.reset();
    }
    if (waits[2].revents != 0) {
      TRY(const bool more, pass_on(program.errors, MpiFrame::Errors, agent));
      if (!more) program.errors.reset();
    }
    if (waits[3].revents != 0) ended = true;
  }
  return ok();
}

// mpirun hands on where its own files lie; those of a worker lie elsewhere.
std::string with_own_files(std::string command, const std::string& of_launcher, const std::string& own) {
  for (size_t at = command.find(of_launcher); at != command.npos; at = command.find(of_launcher, at + own.size())) {
    command.replace(at, of_launcher.size(), own);
  }
  return command;
}

// In a process of its own. `directory`: mpi_directory().
int serve(int agent, const std::string& secret, const std::string& directory, const ReplicaId& self) {
  ::setsockopt(agent, SOL_SOCKET, SO_RCVTIMEO, &kGreetingTime, sizeof kGreetingTime);
  if (const Status admitted = admit_agent(agent, secret); !admitted.ok()) {
    if (admitted.error().code == Code::PermissionDenied) fmt::print(stderr, "a stranger was refused\n");
    return 1;
  }
  const auto command = read_frame(agent);
  if (!command.ok() || command->kind != MpiFrame::Command) return 1;
  constexpr timeval kForEver{0, 0};
  ::setsockopt(agent, SOL_SOCKET, SO_RCVTIMEO, &kForEver, sizeof kForEver);
  const int alive = 1;
  ::setsockopt(agent, SOL_SOCKET, SO_KEEPALIVE, &alive, sizeof alive);
  auto program = start(with_own_files(command->bytes, mpi_launcher_files(directory), mpi_worker_files(directory, self)));
  if (!program.ok()) {
    (void)write_frame(agent, MpiFrame::Errors, "dtrain: " + program.error().message + "\n").ok();
    (void)write_frame(agent, MpiFrame::Ended, std::string(1, char(126))).ok();
    return 1;
  }
  const Status accompanied = accompany(*program, agent);
  if (!accompanied.ok()) ::kill(-program->pid, SIGKILL);   // nobody is there for it any more
  int status = 0;
  while (::waitpid(program->pid, &status, 0) < 0 && errno == EINTR) {
  }
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  (void)write_frame(agent, MpiFrame::Ended, std::string(1, static_cast<char>(code))).ok();
  return 0;
}

// What Open MPI keeps in memory for this worker.
class OwnFiles {
 public:
  explicit OwnFiles(std::string path) : path_(std::move(path)) {}
  Status make() const {
    if (::mkdir(path_.c_str(), 0700) == 0) return ok();
    return errno_error("make " + path_, errno);
  }
  ~OwnFiles() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  OwnFiles(const OwnFiles&) = delete;
  OwnFiles& operator=(const OwnFiles&) = delete;

 private:
  const std::string path_;
};

Result<Fd> listen_at(int port) {
  // Also for IPv4, whichever of its addresses the others know.
  Fd fd(::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in6 any{};
  any.sin6_family = AF_INET6;
  any.sin6_port = htons(static_cast<uint16_t>(port));
  const int no = 0, yes = 1;
  if (fd) ::setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
  sockaddr_in any4{};
  any4.sin_family = AF_INET;
  any4.sin_port = any.sin6_port;
  const bool is_ipv6 = static_cast<bool>(fd);
  if (!is_ipv6) fd = Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  const auto* const place = is_ipv6 ? reinterpret_cast<const sockaddr*>(&any) : reinterpret_cast<const sockaddr*>(&any4);
  if (::bind(fd.get(), place, is_ipv6 ? sizeof any : sizeof any4) != 0 || ::listen(fd.get(), SOMAXCONN) != 0) {
    return errno_error(fmt::format("listen on port {}", port), errno);
  }
  return fd;
}

}  // namespace

Status run_mpi_worker() {
  const std::string secret = variable("DTRAIN_SUBMISSION");
  const int port = std::atoi(variable("DTRAIN_PORT").c_str());
  if (secret.empty() || port <= 0) {
    return Error{Code::FailedPrecondition, "mpi-worker is what dtrain starts for framework: mpi", ""};
  }
  const auto attempt = static_cast<uint32_t>(std::strtoul(variable("DTRAIN_ATTEMPT").c_str(), nullptr, 10));
  TRY(const ReplicaId self, parse_replica_id(variable("DTRAIN_REPLICA")));
  const std::string directory = mpi_directory(secret, self.experiment, attempt);
  const OwnFiles files(mpi_worker_files(directory, self));
  TRY(files.make());
  TRY(const Fd listener, listen_at(port));
  fmt::print("listening for mpirun, as {}\n", mpi_name(self));
  std::fflush(stdout);
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGCHLD, SIG_IGN);   // nobody waits for those who serve
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  ::sigprocmask(SIG_BLOCK, &ends, nullptr);
  const Fd ended(::signalfd(-1, &ends, SFD_CLOEXEC));
  while (true) {
    std::array<pollfd, 2> waits{{{listener.get(), POLLIN, 0}, {ended.get(), POLLIN, 0}}};
    if (::poll(waits.data(), waits.size(), -1) < 0) continue;
    if (waits[1].revents != 0) return ok();
    Fd agent(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!agent) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOMEM) ::poll(nullptr, 0, 100);
      continue;
    }
    const int yes = 1;
    ::setsockopt(agent.get(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    if (::fork() == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      ::signal(SIGCHLD, SIG_DFL);
      ::sigprocmask(SIG_UNBLOCK, &ends, nullptr);
      ::_exit(serve(agent.get(), secret, directory, self));
    }
  }
}

}  // namespace dtrain::runner
