#include "cli/watch_view.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <optional>

#include "cli/errors.h"
#include "cli/last_words.h"
#include "cli/lost_output.h"
#include "cli/redial.h"
#include "cli/remote.h"
#include "cli/signals.h"
#include "cli/sink.h"
#include "schema/clock.h"
#include "schema/states.h"

namespace dtrain::cli {

namespace {

// Written at the latest when this much has come together, so that a long backlog flows.
constexpr size_t kWriteBytes = 256u << 10;

class Session {
 public:
  Session(Connection& connection, const CommandContext& context, WatchOptions options)
      : connection_(connection),
        context_(context),
        options_(std::move(options)),
        own_signals_(options_.tied ? nullptr
                                   : std::make_unique<Signals>(std::vector<int>{SIGINT, SIGWINCH})),
        signals_(options_.tied ? *options_.tied : *own_signals_),
        told_trouble_(connection.daemon().trouble()),
        redial_(connection, context, signals_) {
    if (options_.printer) sink_.emplace(STDOUT_FILENO);
    if (options_.tied) signals_.take_all();  // until the experiment is killed
  }

  Result<WatchEnd> run() {
    while (!done_) {
      const Status status = follow_once();
      if (done_) break;
      if (status.ok()) {  // the daemon had nothing more to say
        finish(WatchHow::Over);
        break;
      }
      if (!Redial::may_resume(status.error().code)) {
        flush_unfinished();
        return status.error();
      }
      clear_live_rows();
      if (status.error().code == Code::ResourceExhausted) redial_.say(status.error());
      TRY(reconnect());
    }
    if (sink_) {
      Status written = sink_->written();
      if (!options_.tied) TRY(std::move(written));
      end_.written = std::move(written);
    }
    return std::move(end_);
  }

 private:
  // One stream from open to its end; an OK status without done_ means it just ended.
  Status follow_once() {
    RpcCall call(connection_.channel(), kWatchMethod);
    call.write(options_.request);
    call.writes_done();
    pb::WatchBatch batch;
    while (true) {
      if (call.take(batch)) {
        take(batch);
      } else if (auto status = call.ended()) {
        return *status;
      } else {
        settle();
        wait_readable(call.fd(), signals_.fd(), wait_ms(), output_to_watch());
      }
      handle_signals();
      look_at_clock();
      look_at_reader();
      if (done_) return ok();
    }
  }

  void take(const pb::WatchBatch& batch) {
    redial_.reset();
    if (options_.printer && batch.ids_size() > 0) {
      options_.printer->set_ids({batch.ids().begin(), batch.ids().end()});
    }
    if (batch.has_trouble()) say_trouble(batch.trouble());
    if (batch.has_cursor()) options_.request.set_cursor(batch.cursor());
    int64_t now_ms = boottime_ms();
    for (const pb::WatchItem& item : batch.items()) {
      if (item.has_log()) {
        end_.ending.add(item.log());
        if (options_.printer) {
          lost_.add(item.log(), [&](const pb::LogChunk& log) { options_.printer->add(log, now_ms); });
        }
      } else if (item.has_state()) {
        take_state(item.state());
      }
      options_.request.set_cursor(item.cursor());
      if (options_.printer && options_.printer->output().size() >= kWriteBytes) write_out();
    }
    if (batch.end()) {
      tell_lost();
      end_.outcome = batch.outcome();
      finish(killed_ ? WatchHow::Killed : WatchHow::Over);
    }
  }

  void say_trouble(const std::string& trouble) {
    if (trouble == told_trouble_) return;
    told_trouble_ = trouble;
    clear_live_rows();
    std::fprintf(stderr, "dtrain: %s\n",
                 trouble.empty() ? "the daemon can write again" : trouble.c_str());
  }

  void take_state(const pb::StateEvent& event) {
    bool follows = end_.ending.add(event);
    if (!options_.printer) return;
    tell_lost();
    if (options_.fold && follows) {
      ++folded_;
      return;
    }
    if (folded_ > 0) {
      options_.printer->note(event.id(), fmt::format("+{} ended because of it", folded_),
                             event.time_unix_ms());
      folded_ = 0;
    }
    options_.printer->add(event);
  }

  void tell_lost() {
    if (!options_.printer) return;
    lost_.flush([this](const pb::LogChunk& log) { options_.printer->add(log, boottime_ms()); });
  }

  // Draws what is due and writes; called when nothing more is here to be printed.
  void settle() {
    if (!options_.printer) return;
    tell_lost();
    options_.printer->settle(boottime_ms());
    write_out();
  }

  void write_out() {
    if (!options_.printer->output().empty() && !sink_->write(options_.printer->output())) {
      nobody_reads();
    }
    options_.printer->clear();
    remark();
  }

  void nobody_reads() {
    if (!options_.tied) {
      finish(WatchHow::NobodyReads);
    } else if (!killed_ && sink_->written().ok()) {
      kill_experiment();  // who left took it along; on a full disk nobody has left
    }
  }

  void remark() {
    const std::string remarks = options_.printer->take_remarks();
    std::fwrite(remarks.data(), 1, remarks.size(), stderr);
  }

  int64_t wait_ms() const {
    std::optional<int64_t> next_ms;
    if (options_.printer) next_ms = options_.printer->next_settle_ms();
    if (options_.until_ms > 0) next_ms = std::min(next_ms.value_or(options_.until_ms), options_.until_ms);
    return next_ms ? std::max<int64_t>(0, *next_ms - boottime_ms()) : -1;
  }

  void look_at_clock() {
    if (options_.until_ms > 0 && boottime_ms() >= options_.until_ms) finish(WatchHow::TimeOver);
  }

  // Who only waits needs no reader, and what is being killed is waited for without one.
  int output_to_watch() const { return options_.printer && !killed_ ? STDOUT_FILENO : -1; }

  // A program that prints nothing for long would else be followed as long for nobody.
  void look_at_reader() {
    if (!done_ && output_to_watch() >= 0 && sink_->reader_left()) nobody_reads();
  }

  void finish(WatchHow how) {
    if (done_) return;
    done_ = true;
    end_.how = how;
    if (how != WatchHow::NobodyReads) flush_unfinished();
  }

  void flush_unfinished() {
    if (!options_.printer) return;
    options_.printer->finish();
    sink_->write(options_.printer->output());
    options_.printer->clear();
    remark();
  }

  void handle_signals() {
    while (int signal = signals_.take()) {
      if (signal == SIGWINCH) {
        if (options_.printer) options_.printer->resize(screen_of(STDOUT_FILENO));
      } else if (options_.tied) {
        leave_echo(signal);
        if (!killed_) kill_experiment();
        if (signal == SIGHUP) finish(WatchHow::Killed);  // nobody is left to watch the rest
      } else {
        finish(WatchHow::Detached);
      }
    }
  }

  // The terminal has shown "^C" where the next line goes.
  void leave_echo(int signal) {
    if ((signal != SIGINT && signal != SIGQUIT) || isatty(STDERR_FILENO) != 1) return;
    clear_live_rows();
    std::fputc('\n', stderr);
  }

  void kill_experiment() {
    killed_ = true;
    pb::KillRequest request;
    request.add_ids(options_.request.id());
    auto reply = connection_.kill(request);
    signals_.end_at_next();
    goes_on_ = fmt::format("dtrain: {0} is still being killed; at once: {1} kill --force {0}\n", options_.request.id(), called());
    if (!context_.json) last_words_.emplace().become(goes_on_);
    if (!reply.ok()) {
      print_error(reply.error(), context_.json);
      finish(WatchHow::Detached);
    }
  }

  // Until a daemon answers again or a person leaves.
  Status reconnect() {
    clear_live_rows();
    while (!done_) {
      TRY(const bool connected, redial_.try_again(options_.request.id()));
      handle_signals();
      look_at_clock();
      if (!connected) continue;
      // What was there from the start is on the screen already.
      if (options_.request.cursor() > 0) options_.request.set_tail_lines(0);
      break;
    }
    return ok();
  }

  // So that a message on stderr does not end up in the middle of a progress bar.
  void clear_live_rows() {
    if (!options_.printer) return;
    options_.printer->resize(screen_of(STDOUT_FILENO));
    write_out();
  }

  Connection& connection_;
  const CommandContext& context_;
  WatchOptions options_;
  const std::unique_ptr<Signals> own_signals_;
  Signals& signals_;
  std::optional<Sink> sink_;   // of a printer
  WatchEnd end_;
  std::string told_trouble_;  // already on the screen
  LostOutput lost_;
  size_t folded_ = 0;
  bool done_ = false;
  bool killed_ = false;
  std::string goes_on_;                    // of what is left when a person leaves
  std::optional<LastWords> last_words_;    // once it is killed
  Redial redial_;
};

}  // namespace

Result<WatchEnd> watch(Connection& connection, const CommandContext& context,
                       WatchOptions options) {
  return Session(connection, context, std::move(options)).run();
}

int exit_code_of(const pb::ExperimentInfo& outcome) {
  if (!is_over(outcome.state())) return 0;
  if (outcome.state() == to_string(State::Finished)) {
    // A set counts as finished when any member is; its exit code is 0 only if all are.
    bool some_failed = outcome.members() > 0 && outcome.members_finished() < outcome.members();
    return some_failed ? std::max(1, outcome.exit_code()) : 0;
  }
  if (outcome.exit_code() != 0) return outcome.exit_code();
  return outcome.state() == to_string(State::Killed) ? 130 : 1;
}

void say_detached(const std::string& id, WatchHow how) {
  // On its own line, after the terminal's "^C".
  const bool is_typed = how == WatchHow::Detached && isatty(STDERR_FILENO) == 1;
  say(fmt::format("{0}Detached; {1} goes on. Come back: {2} logs -f {1}. End it: {2} kill {1}", is_typed ? "\n" : "", id, called()));
}

}  // namespace dtrain::cli
