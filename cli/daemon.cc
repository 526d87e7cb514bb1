// daemon start | stop | status. `daemon run`, the daemon itself, is added by main.cc.
#include "cli/daemon.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <set>

#include "cli/autostart.h"
#include "cli/commands.h"
#include "cli/connection.h"
#include "cli/errors.h"
#include "cli/fields.h"
#include "cli/json_output.h"
#include "cli/list_view.h"
#include "cli/listen_key.h"
#include "cli/remote.h"
#include "cli/why.h"
#include "cli/words.h"
#include "schema/fd.h"
#include "schema/lock_file.h"
#include "schema/states.h"
#include "schema/version.h"

namespace dtrain::cli {

namespace {

constexpr int kEndTimeoutMs = 30'000;

// Returns once the process is gone; its descriptor was opened while it surely was the daemon.
Status await_end(int pidfd, uint64_t pid) {
  pollfd event = {pidfd, POLLIN, 0};
  int happened = 0;
  do {
    happened = poll(&event, 1, kEndTimeoutMs);
  } while (happened < 0 && errno == EINTR);
  if (happened > 0) return ok();
  return Error{Code::DeadlineExceeded,
               fmt::format("the daemon (pid {}) was told to end and is still there after {} s", pid,
                           kEndTimeoutMs / 1000),
               fmt::format("kill -9 {} ends it; training goes on", pid)};
}

// For the next one to read the configuration anew; what runs goes on.
Status end_running(const Home& home) {
  auto connected = connect_any_version(home);
  if (!connected.ok()) return connected.error().code == Code::Unavailable ? ok() : Status(connected.error());
  const uint64_t pid = connected->daemon().pid();
  const Fd pidfd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  TRY(connected->shutdown(pb::ShutdownRequest(), {}));
  return pidfd ? await_end(pidfd.get(), pid) : ok();
}

Result<int> start(const CommandContext& context, const std::string& listen) {
  TRY(check_not_by_key("daemon start"));
  TRY(const Home home, home_from_environment());
  if (!listen.empty()) {
    TRY(const bool is_new, add_listen_key(home, listen));
    if (is_new) TRY(end_running(home));
  }
  const auto before = find_listener(home);
  TRY(start_daemon(home, context.program, StartAs::ByHand));
  // One that was dying is found, and does not answer.
  TRY(Connection connection, connect(home, Autostart::IfNeeded, context));
  const uint64_t pid = connection.daemon().pid();
  if (context.json) {
    fmt::print("{}", daemon_json(home, &connection.daemon(), false, nullptr));
  } else {
    const bool ran_before = before.ok() && static_cast<uint64_t>(before->pid) == pid;
    fmt::print("The daemon {} (pid {}, home {}).\n", ran_before ? "runs already" : "runs", pid, home.root.string());
    std::fflush(stdout);
    for (const std::string& trouble : {connection.daemon().listen_trouble(), connection.daemon().open_metrics_trouble()}) {
      if (!trouble.empty()) print_error({Code::Unavailable, trouble + "; it goes on trying", ""}, false);
    }
  }
  return 0;
}

// Nobody may start a daemon by himself from here on. True when that was not so before.
Result<bool> write_marker(const Home& home) {
  const std::string path = home.stopped_marker().string();
  const Fd marker(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!marker && errno == EEXIST) return false;
  if (!marker) return home_error("writing " + path, errno);
  return true;
}

// Why what is being ended has not ended yet, of each once.
void tell_what_ends(Connection& connection, std::set<std::string>& told) {
  constexpr size_t kAtOnce = 5;
  const auto live = connection.list(pb::ListRequest());
  if (!live.ok()) return;   // the call that waits says how it ends
  size_t asked = 0;
  for (const pb::ExperimentInfo& info : live->experiments()) {
    if (is_over(info.state()) || told.contains(info.id()) || asked++ >= kAtOnce) continue;
    pb::ShowRequest request;
    request.set_id(info.id());
    const auto shown = connection.show(request);
    if (!shown.ok()) continue;
    fmt::print(stderr, "{} has not ended yet: {}\n", info.id(), find_why(*shown).reason);
    told.insert(info.id());
  }
}

Result<int> stop(const CommandContext& context, bool kill) {
  TRY(check_not_by_key("daemon stop"));
  TRY(const Home home, home_from_environment());
  auto connected = connect_any_version(home);
  if (!connected.ok() && connected.error().code != Code::Unavailable) return connected.error();
  // What goes on without a daemon can only be ended by one. One that holds the home is about to listen, or never will.
  const bool needs_one = (kill && access(home.database().c_str(), F_OK) == 0) || is_held(home.lock());
  if (!connected.ok() && needs_one) {
    TRY(start_daemon(home, context.program, StartAs::ByHand));
    connected = connect_any_version(home);
    if (!connected.ok()) return std::move(connected).error();
  }
  // First, so that the runner doesn't bring the daemon back.
  TRY(const bool marked, write_marker(home));
  if (!connected.ok()) {
    if (context.json) {
      fmt::print("{}", shutdown_json({}, false));
    } else {
      fmt::print("No daemon runs for {}; none will start by itself now.\n", home.root.string());
    }
    return 0;
  }
  Connection& connection = connected.value();
  const uint64_t pid = connection.daemon().pid();
  const Fd pidfd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  pb::ShutdownRequest request;
  request.set_kill(kill);
  std::set<std::string> told;
  auto reply = connection.shutdown(request, kill ? [&] { tell_what_ends(connection, told); } : std::function<void()>());
  if (!reply.ok()) {
    // It goes on, so it is not stopped. But what another `daemon stop` ends stays marked: Aborted
    // is its request replacing ours, Unavailable the daemon's end.
    const Code code = reply.error().code;
    const bool goes_on = code != Code::Aborted && code != Code::Unavailable;
    if (marked && goes_on) unlink(home.stopped_marker().c_str());
    return std::move(reply).error();
  }
  if (pidfd) TRY(await_end(pidfd.get(), pid));
  fmt::print("{}", context.json ? shutdown_json(reply.value(), true)
                                : render_shutdown(reply.value(), pid));
  return 0;
}

Result<int> status(const CommandContext& context) {
  TRY(const Home home, home_from_environment());
  const bool stopped_by_hand = !is_by_key() && access(home.stopped_marker().c_str(), F_OK) == 0;
  auto connected = is_by_key() ? connect(home, Autostart::No, context) : connect_any_version(home);
  if (!connected.ok()) {
    if (is_by_key() || connected.error().code != Code::Unavailable || is_held(home.lock())) return connected.error();
    if (context.json) {
      fmt::print("{}", daemon_json(home, nullptr, stopped_by_hand, nullptr));
    } else {
      fmt::print("No daemon runs for {}.\n{}\n", home.root.string(),
                 as_called(stopped_by_hand ? "It was stopped by hand; start it again: dtrain daemon start"
                                           : "The next command that needs one starts it; or: dtrain daemon start"));
    }
    return 1;
  }
  Connection& connection = connected.value();
  auto live = connection.list(pb::ListRequest());
  if (!live.ok()) print_error(live.error(), false);   // the rest can be said all the same
  const pb::ListReply experiments = live.ok() ? live.value() : pb::ListReply();
  if (context.json) {
    fmt::print("{}", daemon_json(home, &connection.daemon(), stopped_by_hand, &experiments));
    return 0;
  }
  const View view = view_of_stdout();
  fmt::print("{}", render_daemon(connection.daemon(), home, experiments, view));
  return 0;
}

}  // namespace

std::string render_shutdown(const pb::ShutdownReply& reply, uint64_t pid) {
  std::string out = fmt::format("The daemon (pid {}) has ended.\n", pid);
  const int count = reply.left_running_size();
  if (count == 0) return out;
  out += fmt::format("{} on without it:\n",
                     count == 1 ? "1 replica goes" : fmt::format("{} replicas go", count));
  for (const std::string& id : reply.left_running()) out += fmt::format("  {}\n", id);
  out += as_called(
      "Until the next dtrain daemon start nothing is placed, and parameter servers do not end with "
      "their experiment.\n");
  return out;
}

// "anna has 3 of 4 GPUs, 12 of 32 cpus"
std::string quota_text(const pb::UserInfo& user) {
  std::string text;
  const auto add = [&](const std::string& used, const std::string& most, const char* unit) { text += fmt::format("{}{} of {}{}", text.empty() ? "" : ", ", used, most, unit); };
  if (user.has_gpus_quota()) add(fmt::format("{}", user.gpus()), fmt::format("{}", user.gpus_quota()), " GPUs");
  if (user.has_cpus_quota()) add(fmt::format("{:.5g}", user.cpus()), fmt::format("{:.5g}", user.cpus_quota()), " cpus");
  if (user.has_memory_quota()) add(human_memory(user.memory_bytes()), human_memory(user.memory_quota()), "");
  return fmt::format("{} has {}", user.user(), text.empty() ? "no limit" : text);
}

// "anna has 40 % of what there is, by a weight of 2"
std::string share_text(const pb::UserInfo& user) {
  const std::string weight = user.weight() == 1 ? "" : fmt::format(", by a weight of {:.5g}", user.weight());
  return fmt::format("{} has {:.0f} % of what there is{}", user.user(), 100 * user.share(), weight);
}

std::string render_daemon(const pb::InfoReply& info, const Home& home, const pb::ListReply& live,
                          const View& view) {
  Fields fields;
  fields.add("Daemon", fmt::format("running (pid {})", info.pid()));
  if (!info.trouble().empty()) fields.add("Trouble", info.trouble());
  fields.add("Version", fmt::format("{} (protocol {})", info.version(), info.protocol()));
  if (info.protocol() != kProtocol || info.version() != kVersion) {
    fields.add("This dtrain", fmt::format("{} (protocol {})", kVersion, kProtocol));
  }
  fields.add("Home", info.home().empty() ? home.root.string() : info.home());
  fields.add("Socket", info.socket().empty() ? home.socket().string() : info.socket());
  if (!info.listens().empty()) fields.add("Network", "who has a key comes in on " + info.listens());
  if (!info.listen_trouble().empty()) fields.add("Network", info.listen_trouble() + "; it goes on trying");
  if (!info.open_metrics().empty()) fields.add("Metrics", info.open_metrics());
  if (!info.open_metrics_trouble().empty()) fields.add("Metrics", info.open_metrics_trouble() + "; it goes on trying");
  const std::filesystem::path log = home.daemon_log();
  fields.add("Log", info.home().empty() ? log.string() : (std::filesystem::path(info.home()) / log.filename()).string());
  if (info.started_unix_ms() != 0) {
    const uint64_t now = std::max(view.now_unix_ms, info.started_unix_ms());
    fields.add("Uptime", human_duration(now - info.started_unix_ms()));
  }
  fields.add("Hosts", fmt::format("{} connected", info.hosts_connected()));
  const auto has_quota = [](const pb::UserInfo& user) { return user.has_gpus_quota() || user.has_cpus_quota() || user.has_memory_quota() || !user.has_share(); };
  for (const pb::UserInfo& user : info.users()) {
    if (has_quota(user)) fields.add("Quota", quota_text(user));
  }
  for (const pb::UserInfo& user : info.users()) {
    if (user.has_share()) fields.add("Share", share_text(user));
  }
  fields.add("Experiments", fmt::format("{} live, {} running", info.experiments_live(),
                                        human_count(info.replicas_running(), "replica")));
  std::string out = fields.text(view.screen);
  if (!live.experiments().empty()) out += "\n" + render_list(live, view);
  return out;
}

Run declare_daemon(Options& options, CommandContext& context) {
  options.subcommand("start", "start the daemon in the background",
                     [&context](Options& start_options) {
                       auto listen = std::make_shared<std::string>();
                       start_options.text("--listen", *listen, "let other machines in there, from now on: writes `listen` into config.yml", "ADDRESS:PORT");
                       start_options.json(context);
                       return [&context, listen] { return start(context, *listen); };
                     });
  options.subcommand("stop", "end the daemon; what runs goes on",
                     [&context](Options& stop_options) {
                       auto kill = std::make_shared<bool>(false);
                       stop_options.flag("--kill", *kill, "end every experiment first");
                       stop_options.json(context);
                       return [&context, kill] { return stop(context, *kill); };
                     });
  options.subcommand("status", "say whether the daemon runs, and where",
                     [&context](Options& status_options) {
                       status_options.json(context);
                       return [&context] { return status(context); };
                     });
  return nullptr;
}

}  // namespace dtrain::cli
