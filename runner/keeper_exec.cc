#include "runner/keeper_exec.h"

#include <sys/socket.h>
#include <sys/wait.h>

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
#include "schema/launch_record.pb.h"

namespace dtrain::runner {
namespace {

namespace asio = boost::asio;
using ErrorCode = boost::system::error_code;

constexpr auto kListenAgain = std::chrono::milliseconds(200);
// Whoever connects says what is to be run within that; what it begins with can be read within that.
constexpr auto kBeginPatience = std::chrono::seconds(10);
constexpr size_t kCommandsMost = 64;

std::optional<int> parse_signal(std::string_view text) {
  constexpr std::string_view kWord = "signal ";
  if (!text.starts_with(kWord)) return std::nullopt;
  text.remove_prefix(kWord.size());
  int number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size()) return std::nullopt;
  return number > 0 && number < NSIG ? std::optional(number) : std::nullopt;
}

}  // namespace

// One connection, and the process it is about.
class KeeperExec::Command : public std::enable_shared_from_this<Command> {
 public:
  explicit Command(KeeperExec& owner) : owner_(&owner), socket_(owner.loop_), word_(owner.loop_), timer_(owner.loop_) {}

  // False: it can't be watched.
  bool open(Fd socket) {
    ErrorCode error;
    socket_.assign(socket.get(), error);
    if (error) return false;
    (void)socket.release();
    listen();
    timer_.expires_after(kBeginPatience);
    timer_.async_wait([self = shared_from_this()](const ErrorCode& waited) {
      if (waited || self->owner_ == nullptr) return;
      if (self->stage_ == Stage::Connected) return self->over();
      if (self->stage_ != Stage::Beginning) return;
      ::kill(self->pid_, SIGKILL);
      self->tell(refusal({Code::DeadlineExceeded,
                          fmt::format("the command has not begun within {} s: a file system that it sees may hang", kBeginPatience.count()), ""}));
      self->over();
    });
    return true;
  }

  // No callback follows.
  void drop() {
    owner_ = nullptr;
    timer_.cancel();
    ErrorCode ignored;
    socket_.close(ignored);
    (void)word_.release();   // it is the spawning's
    word_.close(ignored);
  }

  bool is(pid_t pid) const { return pid_ == pid; }

  void on_exit(int status) {
    if (stage_ == Stage::Beginning && !look()) return;   // it is over
    KeptReplica* replica = owner_->find_(replica_);
    if (replica != nullptr && !hung_up_) replica->on_beside_exit(status);
    pid_ = -1;
    pb::ExecNewsFrame news;
    auto& ended = *news.mutable_ended();
    ended.set_code(WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
    if (WIFSIGNALED(status)) ended.set_cause(describe_wait_status(status));
    ended.set_with_replica(replica == nullptr || !replica->is_running());
    tell(news);
    over();
  }

  void hang_up_if_orphaned() {
    const KeptReplica* replica = pid_ > 0 && !hung_up_ ? owner_->find_(replica_) : nullptr;
    if (replica != nullptr && replica->main_pid() < 0) hang_up();
  }

 private:
  enum class Stage { Connected, Beginning, Running };

  void listen() {
    socket_.async_wait(asio::posix::stream_descriptor::wait_read, [self = shared_from_this()](const ErrorCode& error) {
      if (self->owner_ == nullptr || !self->socket_.is_open()) return;
      if (error || !self->take_packet()) return self->on_hung_up();
      if (self->owner_ != nullptr) self->listen();
    });
  }

  // False: nobody is at the other end any more.
  bool take_packet() {
    auto packet = receive_packet(socket_.native_handle());
    if (!packet.ok()) {
      tell(refusal(packet.error()));
      return false;
    }
    if (!*packet) return true;
    if ((*packet)->bytes.empty()) return false;
    if (stage_ == Stage::Connected) return begin(**packet);
    if (const auto number = parse_signal((*packet)->bytes); number && stage_ == Stage::Running) ::kill(-pid_, *number);
    return true;
  }

  bool begin(ExecPacket& packet) {
    pb::ExecFrame frame;
    const bool makes_sense = frame.ParseFromString(packet.bytes) && packet.descriptors.size() == (frame.on_terminal() ? 1U : 3U);
    const auto id = parse_replica_id(frame.replica());
    if (!makes_sense || !id.ok() || frame.key() != owner_->key_) {
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
    auto begun = replica->run_beside(command);
    if (!begun.ok()) {
      tell_not_begun(begun.error());
      return false;
    }
    spawning_ = std::move(*begun);
    pid_ = spawning_->pid();
    stage_ = Stage::Beginning;
    await_word();
    return true;
  }

  void await_word() {
    ErrorCode error;
    word_.assign(spawning_->fd(), error);
    if (error) return;   // then its end is heard of
    word_.async_wait(asio::posix::stream_descriptor::wait_read, [self = shared_from_this()](const ErrorCode& waited) {
      if (!waited && self->owner_ != nullptr && self->stage_ == Stage::Beginning) self->look();
    });
  }

  // What became of a command that was beginning. False: it could not, and is over.
  bool look() {
    const auto outcome = spawning_->outcome();
    if (outcome && !outcome->ok()) {
      tell_not_begun(outcome->error());
      over();
      return false;
    }
    stage_ = Stage::Running;
    timer_.cancel();
    pb::ExecNewsFrame news;
    news.set_started(true);
    tell(news);
    return true;
  }

  void tell_not_begun(const Error& why) {
    if (why.code != Code::NotFound && why.code != Code::PermissionDenied) return tell(refusal(why));
    pb::ExecNewsFrame news;
    news.mutable_ended()->set_code(exec_failure_code(why));
    news.mutable_ended()->set_cause(why.message);
    tell(news);
  }

  // A few packets at most are not taken yet, for which there is room.
  void tell(const pb::ExecNewsFrame& news) { (void)send_packet(socket_.native_handle(), news.SerializeAsString()); }

  void on_hung_up() {
    ErrorCode ignored;
    socket_.close(ignored);
    if (pid_ <= 0) return over();
    hang_up();
    timer_.expires_after(std::chrono::milliseconds(kLeftoverGraceMs));
    timer_.async_wait([self = shared_from_this()](const ErrorCode& error) {
      if (!error && self->owner_ != nullptr && self->pid_ > 0) ::kill(-self->pid_, SIGKILL);
    });
  }

  // Its number is its own until it is reaped. What has not begun may have no group yet, and nothing to save.
  void hang_up() {
    hung_up_ = true;
    if (stage_ == Stage::Beginning) {
      ::kill(pid_, SIGKILL);
    } else {
      ::kill(-pid_, SIGHUP);
      ::kill(-pid_, SIGCONT);
    }
  }

  void over() {
    const auto self = shared_from_this();
    KeeperExec& owner = *owner_;
    drop();
    owner.commands_.erase(self);
  }

  KeeperExec* owner_;  // null: over
  asio::posix::stream_descriptor socket_;
  asio::posix::stream_descriptor word_;   // of spawning_
  asio::steady_timer timer_;
  std::unique_ptr<Spawning> spawning_;
  Stage stage_ = Stage::Connected;
  ReplicaId replica_;
  bool hung_up_ = false;
  pid_t pid_ = -1;  // -1: not begun, or reaped
};

KeeperExec::KeeperExec(asio::io_context& loop, std::string key, std::function<KeptReplica*(const ReplicaId&)> find)
    : loop_(loop), key_(std::move(key)), find_(std::move(find)), listener_(loop), retry_(loop) {}

KeeperExec::~KeeperExec() {
  for (const auto& command : commands_) command->drop();
}

Status KeeperExec::listen(const std::string& ctl) {
  TRY(Fd socket, listen_exec(ctl));
  ErrorCode error;
  listener_.assign(socket.get(), error);
  if (error) return Error{Code::ResourceExhausted, "listen for commands: " + error.message(), ""};
  (void)socket.release();
  accept();
  return ok();
}

void KeeperExec::accept() {
  listener_.async_wait(asio::posix::stream_descriptor::wait_read, [this](const ErrorCode& error) {
    if (error) return;
    Fd socket(::accept4(listener_.native_handle(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!socket && errno != EAGAIN && errno != EINTR && errno != ECONNABORTED) return accept_later();
    if (socket && is_own_user(socket.get())) take(std::move(socket));
    accept();
  });
}

void KeeperExec::take(Fd socket) {
  if (commands_.size() >= kCommandsMost) {
    const Error why{Code::ResourceExhausted, fmt::format("{} commands run beside replicas of this launch there already", commands_.size()), ""};
    (void)send_packet(socket.get(), refusal(why).SerializeAsString());
    return;
  }
  const auto command = std::make_shared<Command>(*this);
  if (command->open(std::move(socket))) commands_.insert(command);
}

// Out of descriptors: who waits is still there, and would be found again at once.
void KeeperExec::accept_later() {
  retry_.expires_after(kListenAgain);
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
