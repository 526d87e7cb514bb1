#include "runner/exec_session.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <utility>

#include "runner/exec_wire.h"
#include "schema/exec_limits.h"
#include "schema/launch_record.pb.h"

namespace dtrain::runner {
namespace {

namespace asio = boost::asio;
using ErrorCode = boost::system::error_code;

// What was written to a terminal reaches its other side a moment later.
constexpr auto kLastWords = std::chrono::seconds(1);
// Ctrl-D: it ends what is typed of a line, and where nothing is, the input.
constexpr char kEndOfInput = '\4';
constexpr uint32_t kTerminalMost = 10'000, kUsualRows = 24, kUsualColumns = 80;

const std::vector<std::string>& a_shell() {
  static const std::vector<std::string> argv = {"/bin/sh", "-c", "command -v bash >/dev/null 2>&1 && exec bash; exec sh"};
  return argv;
}

winsize size_of(const pb::TerminalSize& size) {
  winsize made{};
  made.ws_row = static_cast<unsigned short>(size.rows() == 0 ? kUsualRows : std::min(size.rows(), kTerminalMost));
  made.ws_col = static_cast<unsigned short>(size.columns() == 0 ? kUsualColumns : std::min(size.columns(), kTerminalMost));
  return made;
}

}  // namespace

ExecSession::ExecSession(asio::io_context& loop, std::shared_ptr<ExecPeer> peer, std::function<void()> over)
    : ReplicaSession(std::move(peer), std::move(over)), keeper_(loop), input_(loop), output_(loop), errors_(loop), last_words_(loop) {
  errors_.is_error = true;
}

void ExecSession::start(const LaunchRecord& launch, const std::string& replica, const pb::ExecStart& command) {
  hear_peer();
  if (const Status begun = begin(launch, replica, command); !begun.ok()) refuse(begun.error());
}

Status ExecSession::begin(const LaunchRecord& launch, const std::string& replica, const pb::ExecStart& command) {
  on_terminal_ = command.has_terminal();
  TRY(const std::vector<Fd> inner, on_terminal_ ? make_terminal(command) : make_pipes());
  TRY(Fd keeper, connect_exec(launch.ctl));
  pb::ExecFrame frame;
  frame.set_replica(replica);
  frame.set_key(launch.key);
  frame.set_on_terminal(on_terminal_);
  if (command.argv_size() == 0) {
    for (const std::string& word : a_shell()) frame.add_argv(word);
  } else {
    *frame.mutable_argv() = command.argv();
  }
  if (on_terminal_ && !command.terminal_kind().empty()) {
    auto& variable = *frame.add_variables();
    variable.set_name("TERM");
    variable.set_value(command.terminal_kind());
  }
  std::vector<int> descriptors;
  for (const Fd& fd : inner) descriptors.push_back(fd.get());
  TRY(send_packet(keeper.get(), frame.SerializeAsString(), descriptors));
  keeper_.assign(keeper.release());
  hear_keeper();
  return ok();
}

Result<std::vector<Fd>> ExecSession::make_terminal(const pb::ExecStart& command) {
  Fd outer(::posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC | O_NONBLOCK));
  std::array<char, 128> name{};
  if (!outer || ::grantpt(outer.get()) != 0 || ::unlockpt(outer.get()) != 0 ||
      ::ptsname_r(outer.get(), name.data(), name.size()) != 0) {
    return errno_error("a terminal on that host", errno);
  }
  std::vector<Fd> inner;
  inner.emplace_back(::open(name.data(), O_RDWR | O_NOCTTY | O_CLOEXEC));
  Fd input(::fcntl(outer.get(), F_DUPFD_CLOEXEC, 3));
  if (!inner.front() || !input) return errno_error("a terminal on that host", errno);
  const winsize size = size_of(command.terminal());
  ::ioctl(outer.get(), TIOCSWINSZ, &size);
  termios modes{};
  if (::tcgetattr(inner.front().get(), &modes) == 0) {
    modes.c_iflag |= IUTF8;   // whoever deletes a letter deletes all bytes of it
    ::tcsetattr(inner.front().get(), TCSANOW, &modes);
  }
  output_.fd.assign(outer.release());
  input_.assign(input.release());
  return inner;
}

Result<std::vector<Fd>> ExecSession::make_pipes() {
  std::vector<Fd> inner;
  for (Descriptor* outer : {&input_, &output_.fd, &errors_.fd}) {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return errno_error("a pipe", errno);
    const bool is_input = outer == &input_;
    inner.emplace_back(ends[is_input ? 0 : 1]);
    outer->assign(ends[is_input ? 1 : 0]);
    outer->non_blocking(true);   // of our end alone: the command's is as every program expects it
  }
  return inner;
}

void ExecSession::hear_keeper() {
  keeper_.async_wait(Descriptor::wait_read, [self = shared()](const ErrorCode& error) {
    if (self->is_over() || !self->keeper_.is_open()) return;
    if (!error && self->take_news()) self->hear_keeper();
  });
}

// False: nothing more comes.
bool ExecSession::take_news() {
  const auto packet = receive_packet(keeper_.native_handle());
  if (packet.ok() && !*packet) return true;
  pb::ExecNewsFrame news;
  const bool gone = !packet.ok() || (*packet)->bytes.empty() || !news.ParseFromString((*packet)->bytes);
  if (gone && !started_) {
    refuse({Code::FailedPrecondition, "who keeps the replica has just ended", ""});
    return false;
  }
  pb::ExecEnded ended;
  if (gone) {
    ended.set_code(128 + SIGKILL);
    ended.set_with_replica(true);
  } else if (news.started()) {
    started_ = true;
    pb::ExecOutput message;
    message.mutable_started();
    send(std::move(message));
    read_output(output_);
    read_output(errors_);
    return true;
  } else if (news.has_refused()) {
    refuse(error_of(news.refused()));
    return false;
  } else {
    ended.set_code(news.ended().code());
    ended.set_cause(news.ended().cause());
    ended.set_with_replica(news.ended().with_replica());
  }
  on_command_ended(ended);
  return false;
}

// ---- its input

void ExecSession::on_input(const pb::ExecInput& message) {
  switch (message.what_case()) {
    case pb::ExecInput::kInput:
      return add_input(message.input()) ? write_input() : void();
    case pb::ExecInput::kInputEnds:
      // Nobody answers for these bytes; there is room for a window more than is counted.
      if (on_terminal_ && !input_ends_) waiting_.append(is_mid_line() ? 2 : 1, kEndOfInput);
      input_ends_ = true;
      return write_input();
    case pb::ExecInput::kTaken:
      output_taken(message.taken());
      if (ended_) return read_rest();
      read_output(output_);
      return read_output(errors_);
    case pb::ExecInput::kResized: {
      const winsize size = size_of(message.resized());
      if (on_terminal_ && input_.is_open()) ::ioctl(input_.native_handle(), TIOCSWINSZ, &size);
      return;
    }
    case pb::ExecInput::kSignal:
      if (started_ && keeper_.is_open()) {
        (void)send_packet(keeper_.native_handle(), fmt::format("signal {}", message.signal()));
      }
      return;
    case pb::ExecInput::kStart:
    case pb::ExecInput::kForward:
    case pb::ExecInput::kLeft:
    case pb::ExecInput::WHAT_NOT_SET:
      return;
  }
}

bool ExecSession::is_mid_line() const { return waiting_.empty() ? mid_line_ : waiting_.back() != '\n'; }

void ExecSession::write_input() {
  if (writes_) return;
  size_t taken = 0;
  bool refused = !input_.is_open();
  while (!refused && taken < waiting_.size()) {
    const ssize_t wrote = ::write(input_.native_handle(), waiting_.data() + taken, waiting_.size() - taken);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0 && errno == EAGAIN) break;
    refused = wrote < 0;   // it reads no more
    if (!refused) taken += static_cast<size_t>(wrote);
  }
  if (refused) taken = waiting_.size();   // nobody is to wait for that
  if (taken > 0) mid_line_ = waiting_[taken - 1] != '\n';
  input_gone(taken);
  if (waiting_.empty()) return end_input();
  writes_ = true;
  input_.async_wait(Descriptor::wait_write, [self = shared()](const ErrorCode& error) {
    self->writes_ = false;
    if (!error && !self->is_over()) self->write_input();
  });
}

void ExecSession::end_input() {
  if (!input_ends_ || on_terminal_ || !input_.is_open()) return;
  ErrorCode ignored;
  input_.close(ignored);
}

// ---- its output

void ExecSession::read_output(Source& source) {
  if (!started_ || !source.fd.is_open() || source.waits || !may_send_output()) return;
  source.waits = true;
  source.fd.async_wait(Descriptor::wait_read, [self = shared(), &source](const ErrorCode& error) {
    source.waits = false;
    if (error || self->is_over()) return;
    if (self->ended_) return self->read_rest();
    self->read_once(source);
    self->read_output(source);
  });
}

// One part. False: there is none now, or there never will be.
bool ExecSession::read_once(Source& source) {
  std::array<char, kExecPartBytes> bytes;
  ssize_t got;
  do {
    got = ::read(source.fd.native_handle(), bytes.data(), bytes.size());
  } while (got < 0 && errno == EINTR);
  if (got < 0 && errno == EAGAIN) return false;
  if (got <= 0) {   // of a terminal that nobody has any more it is an error
    close_source(source);
    return false;
  }
  const auto size = static_cast<size_t>(got);
  pb::ExecOutput message;
  (source.is_error ? *message.mutable_error() : *message.mutable_output()).assign(bytes.data(), size);
  output_sent(size);
  source.left_bytes -= std::min(source.left_bytes, size);
  send(std::move(message));
  return true;
}

void ExecSession::close_source(Source& source) {
  ErrorCode ignored;
  source.fd.close(ignored);
}

// ---- the end

// What it left running may hold its pipes for as long as it likes; all that the command itself wrote is in there.
void ExecSession::on_command_ended(const pb::ExecEnded& ended) {
  ended_ = ended;
  for (Source* source : {&output_, &errors_}) {
    int there = 0;
    if (source->fd.is_open() && ::ioctl(source->fd.native_handle(), FIONREAD, &there) == 0) source->left_bytes = static_cast<size_t>(there);
  }
  if (!started_) {   // it has written nothing
    close_source(output_);
    close_source(errors_);
  } else if (on_terminal_) {
    await_last_words();
  }
  read_rest();
}

// Counted while there is room to read them.
void ExecSession::await_last_words() {
  last_words_.expires_after(kLastWords);
  last_words_.async_wait([self = std::weak_ptr(shared())](const ErrorCode& error) {
    const auto live = self.lock();
    if (error || !live || live->is_over() || !live->output_.fd.is_open()) return;
    if (!live->may_send_output()) return live->await_last_words();
    live->close_source(live->output_);
    live->read_rest();
  });
}

void ExecSession::read_rest() {
  for (Source* source : {&output_, &errors_}) {
    while (source->fd.is_open() && may_send_output() && (on_terminal_ || source->left_bytes > 0)) {
      if (!read_once(*source)) break;
    }
    if (!source->fd.is_open()) continue;
    if (!may_send_output()) return;   // goes on once more is taken
    if (!on_terminal_) close_source(*source);
  }
  if (output_.fd.is_open()) return read_output(output_);   // a terminal
  pb::ExecOutput message;
  *message.mutable_ended() = *ended_;
  end_with(std::move(message));
}

void ExecSession::close() {
  last_words_.cancel();
  ErrorCode ignored;
  for (Descriptor* fd : {&keeper_, &input_, &output_.fd, &errors_.fd}) fd->close(ignored);
}

}  // namespace dtrain::runner
