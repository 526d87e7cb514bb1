#include "runner/keeper_nursery.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <optional>

#include "runner/process_title.h"
#include "schema/own_log.h"

namespace dtrain::runner {
namespace {

constexpr size_t kPathMaxBytes = 4096;
// A fork takes less than a millisecond; a nursery that takes this long is replaced.
constexpr timeval kAnswerPatience{3, 0};

// A message of bytes and one descriptor, the way descriptors travel (unix(7)).
struct Parcel {
  std::string bytes;
  Fd descriptor;
};

bool send_parcel(int socket, const std::string& bytes, int descriptor) {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  iovec part{const_cast<char*>(bytes.data()), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (descriptor >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof descriptor);
  }
  return ::sendmsg(socket, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
}

// Nothing: the other end is gone, or silent for too long.
std::optional<Parcel> receive_parcel(int socket) {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  char bytes[kPathMaxBytes];
  iovec part{bytes, sizeof bytes};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t got;
  do {
    got = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  if (got <= 0) return std::nullopt;
  Parcel parcel{std::string(bytes, static_cast<size_t>(got)), Fd()};
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header != nullptr && header->cmsg_type == SCM_RIGHTS) {
    int descriptor = -1;
    std::memcpy(&descriptor, CMSG_DATA(header), sizeof descriptor);
    parcel.descriptor.reset(descriptor);
  }
  return parcel;
}

// ---- the nursery

// In the child: what the nursery had is let go, then it is a keeper like one that was exec'ed.
[[noreturn]] void become_keeper(const Parcel& order, int children) {
  ::close(children);
  ::dup2(order.descriptor.get(), 1);  // the runner's socket was there
  ::close(order.descriptor.get());
  ::setsid();
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  set_process_title({"dtrain", "keeper", order.bytes});
  set_process_name("dtrain-keeper");
  ::_exit(run_keeper(order.bytes));
}

// The answer is the order's path and a pidfd, or why there is none.
bool fork_keeper(const Parcel& order, int children) {
  const pid_t pid = ::fork();
  if (pid == 0) become_keeper(order, children);
  if (pid < 0) return send_parcel(1, std::strerror(errno), -1);
  // It is not reaped before this function returns, so the number is its.
  const Fd pidfd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (pidfd) return send_parcel(1, order.bytes, pidfd.get());
  const std::string why = std::strerror(errno);
  ::kill(pid, SIGKILL);
  return send_parcel(1, why, -1);
}

}  // namespace

int run_keeper_nursery() {
  // Whatever file the runner opened for it; keepers inherit this.
  std::error_code unknown;
  bound_own_log(std::filesystem::read_symlink("/proc/self/fd/2", unknown));
  sigset_t ended;
  sigemptyset(&ended);
  sigaddset(&ended, SIGCHLD);
  ::sigprocmask(SIG_BLOCK, &ended, nullptr);
  const Fd children(::signalfd(-1, &ended, SFD_NONBLOCK | SFD_CLOEXEC));
  pollfd events[] = {{1, POLLIN, 0}, {children.get(), POLLIN, 0}};
  for (;;) {
    if (::poll(events, 2, -1) < 0) {
      if (errno == EINTR) continue;
      return 1;
    }
    if (events[1].revents != 0) {
      signalfd_siginfo info;
      while (::read(children.get(), &info, sizeof info) > 0) {
      }
      while (::waitpid(-1, nullptr, WNOHANG) > 0) {
      }
    }
    if (events[0].revents == 0) continue;
    const auto order = receive_parcel(1);
    if (!order || !order->descriptor) return 0;  // the runner is gone
    if (!fork_keeper(*order, children.get())) return 0;
  }
}

// ---- the runner's side

KeeperNursery::~KeeperNursery() { close(); }

void KeeperNursery::close() {
  socket_.reset();
  if (process_.pid <= 0) return;
  // It ends once the socket is closed; if it hangs, it has nothing to lose. Not reaped: the number is its.
  ::kill(process_.pid, SIGKILL);
  while (::waitpid(process_.pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  process_ = {};
}

Status KeeperNursery::open() {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return errno_error("socketpair", errno);
  }
  Fd ours(ends[0]);
  const Fd theirs(ends[1]);
  ::setsockopt(ours.get(), SOL_SOCKET, SO_RCVTIMEO, &kAnswerPatience, sizeof kAnswerPatience);
  const Fd log(::open(log_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!log) return errno_error("open " + log_.string(), errno);
  // The blanks are where a keeper writes its launch directory, for `ps`.
  const SpawnRequest request{
      .argv = {executable_.string(), "keeper", std::string(160, ' ')},
      .cwd = "/",
      .output_fd = theirs.get(),
      .error_fd = log.get(),
  };
  TRY(process_, spawn(request));
  socket_ = std::move(ours);
  return ok();
}

Result<SpawnedKeeper> KeeperNursery::ask(const LaunchDir& launch) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return errno_error("pipe", errno);
  SpawnedKeeper keeper;
  keeper.ready.reset(ends[0]);
  const Fd write_end(ends[1]);
  const Error silent{Code::Unavailable, "", ""};
  if (!send_parcel(socket_.get(), launch.path().string(), write_end.get())) return silent;
  auto answer = receive_parcel(socket_.get());
  if (!answer) return silent;
  const bool forked = answer->bytes == launch.path().string();
  if (!answer->descriptor && !forked) {
    return Error{Code::ResourceExhausted, fmt::format("cannot fork a keeper: {}", answer->bytes), ""};
  }
  // Of another order, or its descriptor did not fit in here: such a keeper finds nobody at its pipe.
  if (!answer->descriptor || !forked) return silent;
  keeper.process.pidfd = std::move(answer->descriptor);
  return keeper;
}

Result<SpawnedKeeper> KeeperNursery::start(const LaunchDir& launch) {
  const Error silent{Code::Unavailable, "the nursery of keepers does not answer", ""};
  for (int tries = 0; tries < 2; ++tries) {
    if (!socket_) TRY(open());
    auto keeper = ask(launch);
    if (keeper.ok() || keeper.error().code != Code::Unavailable) return keeper;
    close();  // what it may still answer must not be taken for the answer to the next order
  }
  return silent;
}

}  // namespace dtrain::runner
