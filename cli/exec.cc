// dtrain exec: a command, or a shell, beside a replica that runs.
#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/connection.h"
#include "cli/errors.h"
#include "cli/looked_at.h"
#include "cli/raw_terminal.h"
#include "cli/signals.h"
#include "cli/sink.h"
#include "cli/terminal.h"
#include "schema/exec_limits.h"
#include "schema/ids.h"

namespace dtrain::cli {

namespace {

struct ExecOptions {
  std::string id;
  std::vector<std::string> command;
  bool terminal = false;
  bool no_terminal = false;
  bool input = false;
};

// What a shell says of a command that a signal ended, and ssh where the far end is lost.
constexpr int kBySignal = 128, kLost = 255;

pb::TerminalSize size_of(const Screen& screen) {
  pb::TerminalSize size;
  size.set_rows(static_cast<uint32_t>(screen.height));
  size.set_columns(static_cast<uint32_t>(screen.width));
  return size;
}

// What the command wrote and is not shown yet. Whoever shows it may be slow, and is not waited for: signals are.
class Shown {
 public:
  explicit Shown(int fd) : fd_(fd), sink_(fd) {}

  void add(const std::string& bytes) { waiting_ += bytes; }
  int fd_to_write() const { return waiting_.empty() ? -1 : fd_; }
  bool is_empty() const { return waiting_.empty(); }
  // What went, or can't go any more.
  size_t write() {
    const size_t written = sink_.write_some(waiting_);
    const size_t gone = sink_.closed() ? waiting_.size() : written;
    waiting_.erase(0, gone);
    return gone;
  }
  bool closed() const { return sink_.closed(); }
  Status written() const { return sink_.written(); }

 private:
  const int fd_;
  Sink sink_;
  std::string waiting_;
};

class Exec {
 public:
  Exec(Connection& connection, bool on_terminal, bool reads)
      : on_terminal_(on_terminal),
        signals_(on_terminal ? std::vector<int>{SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGWINCH, SIGCONT}
                             : std::vector<int>{SIGINT, SIGQUIT, SIGTERM, SIGHUP},
                 true),
        call_(connection.channel(), kExecMethod),
        output_(STDOUT_FILENO),
        errors_(STDERR_FILENO),
        reads_(reads) {}

  Result<int> run(const std::string& id, const std::vector<std::string>& command) {
    pb::ExecInput first;
    pb::ExecStart& start = *first.mutable_start();
    start.set_id(id);
    for (const std::string& word : command) start.add_argv(word);
    if (on_terminal_) {
      *start.mutable_terminal() = size_of(screen_of(STDOUT_FILENO));
      const char* kind = std::getenv("TERM");
      start.set_terminal_kind(kind != nullptr ? kind : "");
    }
    call_.write(first);
    if (!reads_) end_input();
    while (!left_) {
      take_output();
      const bool all_shown = output_.is_empty() && errors_.is_empty();
      if (ended_ && all_shown) break;
      if (const auto status = ended_ ? std::nullopt : call_.ended(); status && all_shown) return broken_off(*status);
      wait();
    }
    keys_.reset();
    if (left_by_ != 0) end_by(left_by_);
    if (!left_) return tell_end();
    TRY(output_.written());
    return kBySignal + SIGPIPE;
  }

 private:
  // Refused, or, once it has begun, lost.
  Result<int> broken_off(const Status& status) {
    keys_.reset();
    const Error why = status.ok() ? Error{Code::Aborted, "the daemon broke off before the command had ended", ""} : status.error();
    if (!started_) return why;
    print_error(why, false);
    return kLost;
  }

  void take_output() {
    pb::ExecOutput message;
    while (!ended_ && call_.take(message)) {
      switch (message.what_case()) {
        case pb::ExecOutput::kStarted:
          on_started(message.started());
          break;
        case pb::ExecOutput::kOutput:
          output_.add(message.output());
          break;
        case pb::ExecOutput::kError:
          errors_.add(message.error());
          break;
        case pb::ExecOutput::kTaken:
          untaken_ -= std::min(untaken_, message.taken());
          break;
        case pb::ExecOutput::kEnded:
          ended_ = message.ended();
          break;
        case pb::ExecOutput::kClaim:
        case pb::ExecOutput::kRefused:
        case pb::ExecOutput::kOutputEnds:
        case pb::ExecOutput::WHAT_NOT_SET:
          break;   // not said to us
      }
    }
  }

  void on_started(const pb::ExecStarted& started) {
    started_ = true;
    replica_ = started.replica();
    if (started.others() > 0) {
      const std::string others = started.others() == 1 ? "another replica runs" : fmt::format("{} other replicas run", started.others());
      tell({fmt::format("in {} on {}; {}, too", started.replica(), started.host_name(), others)});
    }
    if (on_terminal_) keys_.emplace(STDIN_FILENO);
  }

  // What is typed before there is a command stays where it was typed.
  void wait() {
    const bool may_read = reads_ && started_ && !ended_ && untaken_ < kExecWindowBytes;
    std::array<pollfd, 5> waits = {{{ended_ ? -1 : call_.fd(), call_.events(), 0},
                                    {signals_.fd(), POLLIN, 0},
                                    {may_read ? STDIN_FILENO : -1, POLLIN, 0},
                                    {output_.fd_to_write(), POLLOUT, 0},
                                    {errors_.fd_to_write(), POLLOUT, 0}}};
    if (::poll(waits.data(), waits.size(), -1) < 0) return;
    if (waits[1].revents != 0) return handle_signals();
    if (waits[2].revents != 0) read_input();
    if (waits[3].revents != 0) show(output_);
    if (waits[4].revents != 0) show(errors_);
  }

  // Without anybody who reads its output there is no use in it; errors it may tell to nobody.
  void show(Shown& shown) {
    const size_t gone = shown.write();
    if (output_.closed()) left_ = true;
    if (gone == 0) return;
    pb::ExecInput message;
    message.set_taken(gone);
    call_.write(message);
  }

  void read_input() {
    std::array<char, kExecPartBytes> bytes;
    const auto most = std::min<uint64_t>(bytes.size(), kExecWindowBytes - untaken_);
    const ssize_t got = ::read(STDIN_FILENO, bytes.data(), most);
    if (got < 0 && (errno == EINTR || errno == EAGAIN)) return;
    if (got <= 0) return end_input();
    pb::ExecInput message;
    message.set_input(bytes.data(), static_cast<size_t>(got));
    untaken_ += static_cast<uint64_t>(got);
    call_.write(message);
  }

  void end_input() {
    reads_ = false;
    pb::ExecInput message;
    message.set_input_ends(true);
    call_.write(message);
  }

  void handle_signals() {
    while (const int number = signals_.take()) {
      pb::ExecInput message;
      if (number == SIGCONT || number == SIGWINCH) {
        if (number == SIGCONT && keys_) keys_->again();
        *message.mutable_resized() = size_of(screen_of(STDOUT_FILENO));
      } else if (on_terminal_ || number == SIGHUP || !started_ || signalled_ != 0) {
        left_ = true;
        left_by_ = number;
        return;
      } else {
        message.set_signal(static_cast<uint32_t>(number));   // the command is asked; asked twice, this end goes
        signalled_ = number;
      }
      call_.write(message);
    }
  }

  int tell_end() {
    const std::string& cause = ended_->cause();
    if (ended_->with_replica()) {
      tell({fmt::format("{} has ended, and the command with it", replica_)});
    } else if (!cause.empty() && ended_->code() != kBySignal + signalled_) {
      print_error({Code::Aborted, started_ ? "the command was " + cause : cause, ""}, false);
    }
    return ended_->code();
  }

  const bool on_terminal_;
  Signals signals_;
  RpcCall call_;
  Shown output_, errors_;
  std::optional<RawTerminal> keys_;
  bool reads_;
  bool started_ = false;
  std::string replica_;
  uint64_t untaken_ = 0;   // of the input that was sent
  std::optional<pb::ExecEnded> ended_;
  bool left_ = false;      // this end goes first
  int left_by_ = 0;        // the signal
  int signalled_ = 0;
};

Result<int> exec(const ExecOptions& options, const CommandContext& context) {
  if (options.terminal && options.no_terminal) return Error{Code::InvalidArgument, "-t and -T say the opposite of each other", ""};
  if (auto pattern = parse_id_pattern(options.id); !options.id.empty() && !pattern.ok()) {
    Error error = std::move(pattern).error();
    if (options.command.empty()) error.hint = fmt::format("a command goes after --: dtrain exec -- {}", options.id);
    return error;
  }
  const bool typed = isatty(STDIN_FILENO), shown = isatty(STDOUT_FILENO);
  const bool on_terminal = ((typed && shown) || options.terminal) && !options.no_terminal;
  // Where the keys are a person's and the output goes elsewhere, whoever shows it may want them: `| less`.
  const bool reads = on_terminal || options.input || !typed || shown;
  if (options.command.empty() && !reads) {
    return Error{Code::InvalidArgument, "a shell whose output goes elsewhere would get no input", "-i sends it what you type; or give it a command after --"};
  }
  TRY(Connection connection, connect(Autostart::IfNeeded, context));
  TRY(const std::string id, looked_at(connection, options.id));
  return Exec(connection, on_terminal, reads).run(id, options.command);
}

}  // namespace

Run declare_exec(Options& options, CommandContext& context) {
  auto typed = std::make_shared<ExecOptions>();
  options.id(typed->id,
                     "replica (4.worker.1), or an experiment (4): beside its master; left out: the newest here that runs");
  options.flag("-t,--tty", typed->terminal, "on a terminal, also where this is none");
  options.flag("-T,--no-tty", typed->no_terminal, "on pipes: standard output and errors stay apart");
  options.flag("-i,--stdin", typed->input, "send standard input also where it is a terminal and the output is not");
  options.rest(typed->command, "COMMAND...", "what to run; left out: a shell");
  options.footer(
      "dtrain exec 4                                 a shell in 4.master\n"
      "dtrain exec 4.worker.1 -- nvidia-smi\n"
      "dtrain exec 4 -- tar -cz ckpt > ckpt.tar.gz\n"
      "It has the replica's environment, files, image and share of the host, and ends with it at\n"
      "the latest. The exit code is the command's.");
  return [typed, &context] { return exec(*typed, context); };
}

}  // namespace dtrain::cli
