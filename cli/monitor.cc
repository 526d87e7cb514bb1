// dtrain monitor: what the replicas of an experiment use, once a second.
#include "cli/monitor.h"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>
#include <optional>
#include <vector>

#include "cli/commands.h"
#include "cli/connection.h"
#include "cli/looked_at.h"
#include "cli/raw_terminal.h"
#include "cli/redial.h"
#include "cli/remote.h"
#include "cli/scroll.h"
#include "cli/signals.h"
#include "cli/sink.h"
#include "schema/states.h"

namespace dtrain::cli {

namespace {

// The alternate screen: what was on the terminal before comes back when we leave.
constexpr std::string_view kEnterScreen = "\x1b[?1049h\x1b[?25l";
constexpr std::string_view kLeaveScreen = "\x1b[?25h\x1b[?1049l";
// The daemon's first sample may be from before the runners were asked to measure.
constexpr int kSamplesForOnce = 3;

struct MonitorOptions {
  std::string id;
  bool once = false;
  bool gpus = false;
};

bool has_figures(const pb::MonitorSample& sample) {
  bool any_runs = false;
  for (const pb::ReplicaUsage& replica : sample.replicas()) {
    if (replica.live()) return true;
    any_runs = any_runs || replica.state() == to_string(State::Running);
  }
  return !any_runs;
}

class Monitor {
 public:
  Monitor(Connection& connection, const CommandContext& context, const MonitorOptions& options,
          std::string id)
      : connection_(connection),
        context_(context),
        options_(options),
        id_(std::move(id)),
        screen_(screen_of(STDOUT_FILENO)),
        live_(screen_.is_terminal && !screen_.dumb && !options.once && !context.json),
        sink_(STDOUT_FILENO),
        signals_(live_ ? std::vector<int>{SIGINT, SIGTERM, SIGHUP, SIGWINCH, SIGQUIT, SIGTSTP}
                       : std::vector<int>{SIGINT, SIGTERM, SIGHUP, SIGWINCH}),
        redial_(connection, context, signals_) {}

  ~Monitor() {
    if (!entered_) return;
    leave_screen();
    if (last_) sink_.write(body(*last_));
  }

  Result<int> run() {
    while (!done_) {
      const Status status = read_stream();
      if (done_ || status.ok()) break;
      if (!Redial::may_resume(status.error().code)) return status.error();
      TRY(redial_.try_again(id_));
      handle_signals();
    }
    if (!live_ && last_ && !printed_) print(*last_);
    TRY(sink_.written());
    return 0;
  }

 private:
  Status read_stream() {
    pb::MonitorRequest request;
    request.set_id(id_);
    RpcCall call(connection_.channel(), kMonitorMethod);
    call.write(request);
    call.writes_done();
    while (!done_) {
      pb::MonitorSample sample;
      if (call.take(sample)) {
        redial_.reset();
        take(std::move(sample));
      } else if (auto status = call.ended()) {
        return *status;
      } else {
        std::array<pollfd, 3> waits = {{{call.fd(), POLLIN, 0}, {signals_.fd(), POLLIN, 0}, {keys_ ? STDIN_FILENO : -1, POLLIN, 0}}};
        ::poll(waits.data(), waits.size(), -1);   // a signal ends it early
        if (waits[2].revents != 0) read_keys();
      }
      handle_signals();
    }
    return ok();
  }

  void read_keys() {
    std::array<char, 64> keys;
    const ssize_t got = ::read(STDIN_FILENO, keys.data(), keys.size());
    if (got == 0 || (got < 0 && errno != EINTR)) keys_.reset();   // nobody types any more
    if (got <= 0) return;
    const bool moved = scroll_.type({keys.data(), static_cast<size_t>(got)});
    done_ = scroll_.is_left();
    if (moved && !done_) draw();
  }

  void take(pb::MonitorSample sample) {
    ++samples_;
    history_.add(sample);
    last_ = std::move(sample);
    if (live_) {
      draw();
    } else if (has_figures(*last_) || samples_ >= kSamplesForOnce) {
      print(*last_);
      done_ = true;
    }
  }

  void print(const pb::MonitorSample& sample) {
    printed_ = true;
    sink_.write(context_.json ? monitor_json(id_, sample) : body(sample));
  }

  std::string body(const pb::MonitorSample& sample) const {
    // A line that fills the last column would lose its end when the rest of the row is cleared.
    Screen screen = screen_;
    if (screen.width > 1) --screen.width;
    return render_reason(sample, screen) +
           (options_.gpus ? render_gpus(sample, screen)
                          : render_monitor(sample, live_ ? &history_ : nullptr, screen));
  }

  void draw() {
    if (!entered_) sink_.write(kEnterScreen);
    // In the background the terminal is somebody else's.
    if (!entered_ && ::tcgetpgrp(STDIN_FILENO) == ::getpgrp()) keys_.emplace(STDIN_FILENO, Keys::ButSignals);
    entered_ = true;
    std::string text = paint(
        cut_to_width(fmt::format("{} {}; {} leaves", id_, last_->state(), keys_ ? "q" : "Ctrl-C"), screen_.width - 1),
        Ink::Dim, screen_.colours);
    text += "\n" + body(*last_);
    const size_t rows = std::max<size_t>(2, screen_.height) - 1;  // the cursor takes one
    const size_t head = 1 + (render_reason(*last_, screen_).empty() ? 0 : 1) + (options_.gpus ? 0 : 1);
    text = scroll_.shown(text, head, rows, keys_ ? "arrows, PgUp, PgDn, Home, End" : how_to_see_last(), screen_);
    // Line by line over the old picture: clearing first would flicker.
    std::string frame = "\x1b[H";
    for (size_t at = 0; at < text.size();) {
      size_t end = text.find('\n', at);
      frame += text.substr(at, end - at) + "\x1b[K\r\n";
      at = end + 1;
    }
    frame += "\x1b[J";
    if (!sink_.write(frame)) done_ = true;
  }

  // Where no keys come.
  std::string how_to_see_last() const {
    const auto shown = shown_replicas(*last_);
    return shown.empty() ? "" : fmt::format("one replica alone: {} monitor {}", called(), shown.back()->replica());
  }

  void leave_screen() {
    keys_.reset();
    if (entered_) sink_.write(kLeaveScreen);
    entered_ = false;
  }

  void handle_signals() {
    while (int signal = signals_.take()) {
      if (signal == SIGTSTP) {
        // The shell gets its own screen back until somebody continues us.
        leave_screen();
        raise(SIGSTOP);
      } else if (signal != SIGWINCH) {
        done_ = true;
        continue;
      }
      screen_ = screen_of(STDOUT_FILENO);
      if (live_ && last_) draw();
    }
  }

  Connection& connection_;
  const CommandContext& context_;
  const MonitorOptions& options_;
  std::string id_;
  Screen screen_;
  bool live_;  // a screen that is redrawn; else one sample is printed
  Sink sink_;
  Signals signals_;
  Redial redial_;
  std::optional<RawTerminal> keys_;
  CpuHistory history_;
  Scroll scroll_;
  std::optional<pb::MonitorSample> last_;
  int samples_ = 0;
  bool entered_ = false;  // the alternate screen
  bool printed_ = false;
  bool done_ = false;
};

Result<int> monitor(const MonitorOptions& options, const CommandContext& context) {
  TRY(Connection connection, connect(Autostart::IfNeeded, context));
  TRY(const std::string id, looked_at(connection, options.id));
  return Monitor(connection, context, options, id).run();
}

}  // namespace

Run declare_monitor(Options& options, CommandContext& context) {
  auto typed = std::make_shared<MonitorOptions>();
  options.id(typed->id,
                     "experiment, member or replica; left out: the newest here that runs, else the newest");
  options.flag("--once", typed->once, "print one sample; in a pipe and as JSON always");
  options.flag("-g,--gpu", typed->gpus, "the GPUs of each replica");
  options.json(context);
  options.footer(
      "CPU % is of one CPU: 250 is two and a half. Memory is shown with its share of what\n"
      "the host has. A narrow terminal drops columns: where nobody has a GPU those of GPUs, then\n"
      "CPU HISTORY, then PROJECT and more. -g shows each GPU. Of what a terminal has no rows for, the\n"
      "arrows, PgUp, PgDn, Home and End (or j and k) show another part.");
  return [typed, &context] { return monitor(*typed, context); };
}

}  // namespace dtrain::cli
