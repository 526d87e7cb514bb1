#include "runner/keeper_exec.h"

#include <sys/socket.h>
#include <sys/wait.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <optional>
#include <utility>
#include <vector>

#include "runner/exec_wire.h"
#include "runner/keeper.h"
#include "runner/keeper_ctl.h"
#include "schema/fd.h"
#include "schema/launch_record.pb.h"

namespace dtrain::runner {
namespace {

namespace asio = boost::asio;
using ErrorCode = boost::system::error_code;

constexpr auto kAcceptRetry = std::chrono::milliseconds(200);

std::optional<int> parse_signal(std::string_view text) {
  constexpr std::string_view kWord = "signal ";
  if (!text.starts_with(kWord)) return std::nullopt;
  text.remove_prefix(kWord.size());
  int number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size()) return std::nullopt;
  return number > 0 && number < NSIG ? std::optional(number) : std::nullopt;
}

pb::ExecNewsFrame refusal(const Error& why) {
  pb::ExecNewsFrame news;
  news.mutable_refused()->set_code(static_cast<uint32_t>(why.code));
  news.mutable_refused()->set_message(why.message);
  news.mutable_refused()->set_hint(why.hint);
  return news;
}

}  // namespace

// One connection, and the process it is about.
class KeeperExec::Command : public std::enable_shared_from_this<Command> {
 public:
  Command(KeeperExec& owner, Fd socket) : owner_(&owner), socket_(owner.loop_, socket.release()), kill_(owner.loop_) {}

  // No callback follows.
  void drop() {
    owner_ = nullptr;
    kill_.cancel();
    ErrorCode ignored;
    socket_.close(ignored);
  }

  void listen() {
    socket_.async_wait(asio::posix::stream_descriptor::wait_read, [self = shared_from_this()](const ErrorCode& error) {
      if (self->owner_ == nullptr || !self->socket_.is_open()) return;
      if (error || !self->take_packets()) return self->on_hung_up();
      self->listen();
    });
  }

  bool is(pid_t pid) const { return pid_ == pid; }

  void hang_up_if_orphaned() {
    const KeptReplica* replica = pid_ > 0 && !hung_up_ ? owner_->find_(replica_) : nullptr;
    if (replica != nullptr && replica->main_pid() < 0) hang_up();
  }

  void on_exit(int status) {
    pid_ = -1;
    pb::ExecNewsFrame news;
    auto& ended = *news.mutable_ended();
    ended.set_code(WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
    if (WIFSIGNALED(status)) ended.set_cause(describe_wait_status(status));
    const KeptReplica* replica = owner_->find_(replica_);
    ended.set_with_replica(replica == nullptr || !replica->is_running());
    tell(news);
    over();
  }

 private:
  // False: nobody is at the other end any more.
  bool take_packets() {
    for (;;) {
      auto packet = receive_packet(socket_.native_handle());
      if (!packet.ok()) {
        tell(refusal(packet.error()));
        return false;
      }
      if (!*packet) return true;
      if ((*packet)->bytes.empty()) return false;
      if (!begun_) {
        begun_ = true;
        if (!begin(**packet)) return false;
      } else if (const auto number = parse_signal((*packet)->bytes); number && pid_ > 0) {
        ::kill(-pid_, *number);
      }
    }
  }

  bool begin(ExecPacket& packet) {
    pb::ExecFrame frame;
    const bool makes_sense = frame.ParseFromString(packet.bytes) && packet.descriptors.size() == (frame.on_terminal() ? 1U : 3U);
    const auto id = parse_replica_id(frame.replica());
    if (!makes_sense || !id.ok()) {
      tell(refusal({Code::InvalidArgument, "a command that makes no sense to who keeps the replica", ""}));
      return false;
    }
    replica_ = *id;
    KeptReplica* replica = owner_->find_(replica_);
    if (replica == nullptr || !replica->is_running()) {
      tell(refusal({Code::FailedPrecondition, fmt::format("{} does not run", frame.replica()), ""}));
      return false;
    }
    BesideCommand command;
    command.argv.assign(frame.argv().begin(), frame.argv().end());
    for (const auto& variable : frame.variables()) command.variables[variable.name()] = variable.value();
    command.on_terminal = frame.on_terminal();
    const auto& fds = packet.descriptors;
    command.input_fd = fds.front().get();
    command.output_fd = fds[fds.size() > 1 ? 1 : 0].get();
    command.error_fd = fds.back().get();
    const auto pid = replica->run_beside(command);
    pb::ExecNewsFrame news;
    if (!pid.ok() && pid.error().code == Code::FailedPrecondition) {
      news = refusal(pid.error());
    } else if (!pid.ok()) {
      news.mutable_ended()->set_code(exec_failure_code(pid.error()));
      news.mutable_ended()->set_cause(pid.error().message);
    } else {
      pid_ = *pid;
      news.set_started(true);
    }
    tell(news);
    return pid.ok();
  }

  // A few packets at most are not taken yet, for which there is room.
  void tell(const pb::ExecNewsFrame& news) { (void)send_packet(socket_.native_handle(), news.SerializeAsString()); }

  void on_hung_up() {
    ErrorCode ignored;
    socket_.close(ignored);
    if (pid_ <= 0) return over();
    hang_up();
    kill_.expires_after(std::chrono::milliseconds(kLeftoverGraceMs));
    kill_.async_wait([self = shared_from_this()](const ErrorCode& error) {
      if (!error && self->owner_ != nullptr && self->pid_ > 0) ::kill(-self->pid_, SIGKILL);
    });
  }

  // Its number is its own until it is reaped.
  void hang_up() {
    hung_up_ = true;
    ::kill(-pid_, SIGHUP);
    ::kill(-pid_, SIGCONT);
  }

  void over() {
    const auto self = shared_from_this();
    KeeperExec& owner = *owner_;
    drop();
    owner.commands_.erase(self);
  }

  KeeperExec* owner_;  // null: over
  asio::posix::stream_descriptor socket_;
  asio::steady_timer kill_;
  ReplicaId replica_;
  bool begun_ = false;
  bool hung_up_ = false;
  pid_t pid_ = -1;  // -1: not started, or reaped
};

KeeperExec::KeeperExec(asio::io_context& loop, std::function<KeptReplica*(const ReplicaId&)> find)
    : loop_(loop), find_(std::move(find)), listener_(loop), retry_(loop) {}

KeeperExec::~KeeperExec() {
  for (const auto& command : commands_) command->drop();
}

Status KeeperExec::listen(const std::string& ctl) {
  TRY(Fd socket, listen_exec(ctl));
  listener_.assign(socket.release());
  accept();
  return ok();
}

void KeeperExec::accept() {
  listener_.async_wait(asio::posix::stream_descriptor::wait_read, [this](const ErrorCode& error) {
    if (error) return;
    Fd socket(::accept4(listener_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket && errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) return accept_later();
    if (socket && is_own_user(socket.get())) {
      const auto command = std::make_shared<Command>(*this, std::move(socket));
      commands_.insert(command);
      command->listen();
    }
    accept();
  });
}

// Out of descriptors: who waits is still there, and would be found again at once.
void KeeperExec::accept_later() {
  retry_.expires_after(kAcceptRetry);
  retry_.async_wait([this](const ErrorCode& error) {
    if (!error) accept();
  });
}

void KeeperExec::hang_up_orphaned() {
  for (const auto& command : commands_) command->hang_up_if_orphaned();
}

void KeeperExec::on_exit(pid_t pid, int wait_status) {
  for (const auto& command : commands_) {
    if (command->is(pid)) return command->on_exit(wait_status);
  }
}

}  // namespace dtrain::runner
