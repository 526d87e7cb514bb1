#include "cli/hosts_test.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>
#include <sys/random.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <thread>

#include "cli/connection.h"
#include "cli/host_names.h"
#include "cli/remote.h"
#include "cli/remote_outputs.h"
#include "cli/signals.h"
#include "cli/sink.h"
#include "cli/submit.h"
#include "cli/temporary_directory.h"
#include "cli/words.h"
#include "schema/clock.h"
#include "schema/random_id.h"
#include "schema/small_file.h"
#include "schema/snapshot.h"
#include "schema/states.h"

namespace dtrain::cli {

namespace fs = std::filesystem;

namespace {

// As little as a role may ask for; and a share of a busy host with which it is not only the wait for a processor that is
// measured.
constexpr Resources kNextToNothing{0.01, uint64_t{1} << 20, 0};
constexpr double kEnoughCpus = 0.25;
constexpr int64_t kMaxDurationMs = 180'000;   // should nobody be there to end it
constexpr int64_t kStopGraceMs = 2'000;
constexpr int64_t kJoinMs = 5'000;            // a daemon that was started has its first host soon
constexpr int64_t kStartMs = 60'000;
constexpr int64_t kMeasureMs = 45'000, kMeasureEachMs = 1'200, kMeasureMostMs = 110'000;
constexpr int64_t kStragglersMs = 20'000;     // since the first was done
constexpr uint64_t kHostSilentMs = 25'000;        // of a host, which says something more often
constexpr int64_t kEndMs = 15'000;            // since it was killed
constexpr size_t kSentBytes = 64 << 10;
constexpr int kInterruptedCode = 130;

bool is_meant(const pb::HostInfo& host, const std::string& text) {
  return host.name() == text || (text.size() >= kHostIdDigits && host.id().starts_with(text));
}

std::string named_hosts(const pb::HostsReply& known) {
  std::multiset<std::string> names;
  for (const auto& host : known.hosts()) names.insert(host.name());
  return fmt::format("{}", fmt::join(names, ", "));
}

// Why a host takes no part; nothing: it does.
std::optional<NotTested> why_not(const pb::HostInfo& host, bool is_asked_for) {
  if (!host.connected()) return NotTested{host.name(), "is away", "its runner has gone, or the network to it; start it again there", true};
  if (host.drained()) return NotTested{host.name(), "is drained", fmt::format("dtrain hosts undrain {} has it take replicas again", host.name()), is_asked_for};
  if (host.cpus_free() < kNextToNothing.cpus || host.memory_free_bytes() < kNextToNothing.memory_bytes) {
    return NotTested{host.name(), "is full", "what runs there has all of its cpus or memory", is_asked_for};
  }
  return std::nullopt;
}

// What the experiment is sent with: a file of bytes that nobody has yet.
Result<std::unique_ptr<TemporaryDirectory>> make_project(HostsTest& test) {
  TRY(auto directory, TemporaryDirectory::make("hosts-test"));
  std::string bytes(kSentBytes, '\0');
  for (size_t at = 0; at < bytes.size(); at += 256) {
    if (getrandom(bytes.data() + at, 256, 0) != 256) return errno_error("draw random bytes", errno);
  }
  TRY(write_file(directory->path() / kHostsTestSent, bytes));
  test.sent = to_hex(sha256(bytes));
  return directory;
}

Result<pb::Accepted> submit_test(Connection& connection, const CommandContext& context, HostsTest& test, Signals& signals) {
  TRY(const auto project, make_project(test));
  TRY(const Snapshot snapshot, take_snapshot(project->path(), {}));
  pb::SubmitHeader header;
  TRY(const std::string submission_id, random_id());
  header.set_submission_id(submission_id);
  header.set_spec_yaml(to_yaml(hosts_test_spec(test)));
  header.set_snapshot(to_bytes(snapshot.root));
  header.set_project_dir(connection.home().root.string());   // no project's newest
  add_user(header);
  header.clear_user_env();   // no python is asked for
  SnapshotBlobs blobs(project->path(), snapshot);
  return submit(connection, context, header, &blobs, {}, &signals);
}

// The one line of what goes on, on a terminal.
class ProgressLine {
 public:
  explicit ProgressLine(bool is_shown) : is_shown_(is_shown) {}
  ~ProgressLine() { show(""); }
  void show(const std::string& text) {
    if (!is_shown_ || text == shown_) return;
    const Screen screen = screen_of(STDERR_FILENO);
    const std::string cut = screen.width > 0 ? cut_to_width(text, screen.width - 1) : text;
    std::fprintf(stderr, "\r\x1b[K%s", cut.c_str());
    std::fflush(stderr);
    shown_ = text;
  }

 private:
  const bool is_shown_;
  std::string shown_;
};

// Follows the experiment until it is over, somebody leaves, or its time is up; then it is ended.
class Following {
 public:
  Following(Connection& connection, HostsTest& test, Signals& signals, ProgressLine& line, int64_t begin_ms)
      : connection_(connection), test_(test), signals_(signals), line_(line), begin_ms_(begin_ms), deadline_ms_(begin_ms + kStartMs) {}

  // True: somebody left.
  Result<bool> run() {
    RpcCall call(connection_.channel(), kWatchMethod);
    pb::WatchRequest request;
    request.set_id(test_.id);
    request.set_follow(true);
    call.write(request);
    call.writes_done();
    pb::WatchBatch batch;
    while (!over_) {
      if (call.take(batch)) {
        TRY(take(batch));
      } else if (const auto status = call.ended()) {
        if (!status->ok()) return lost(status->error());
        break;
      } else {
        show();
        wait_readable(call.fd(), signals_.fd(), std::max<int64_t>(deadline_ms_ - boottime_ms(), 0));
      }
      if (const int number = signals_.take(); number != 0 && number != SIGWINCH) interrupted_ = true;
      const bool is_late = boottime_ms() >= deadline_ms_;
      if (killed_ && is_late) break;
      if (!killed_ && !over_ && (is_late || interrupted_)) {
        if (!interrupted_) TRY(blame_late());
        TRY(kill());
      }
    }
    if (!interrupted_) TRY(look_back());
    return interrupted_;
  }

 private:
  Error lost(const Error& error) const {
    return {error.code, error.message, fmt::format("experiment {} is the test, and ends by itself; {} hosts test begins another", test_.id, called())};
  }

  Status take(const pb::WatchBatch& batch) {
    for (const pb::WatchItem& item : batch.items()) {
      if (item.has_log()) take_output(item.log());
      if (item.has_state()) take_state(item.state());
    }
    if (batch.end()) {
      over_ = true;
      outcome_ = batch.outcome();
    }
    if (!killed_ && !all_started_ && started_ == test_.hosts.size()) {
      all_started_ = true;
      const auto others = static_cast<int64_t>(test_.hosts.size()) - 1;
      deadline_ms_ = boottime_ms() + std::min(kMeasureMs + others * kMeasureEachMs, kMeasureMostMs);
    }
    return ok();
  }

  // By the place of its replica in TF_CONFIG. Null: it is none of a host.
  TestedHost* host_of(const std::string& replica) {
    const auto id = parse_replica_id(replica);
    if (!id.ok()) return nullptr;
    const size_t index = id->role == Role::Worker ? id->index : 0;
    return index < test_.hosts.size() ? &test_.hosts[index] : nullptr;
  }

  void take_state(const pb::StateEvent& event) {
    if (event.id() == test_.id) {
      reason_ = event.reason();
      return;
    }
    TestedHost* const host = host_of(event.id());
    if (host == nullptr || event.state() != to_string(State::Running) || host->started_after_ms) return;
    host->started_after_ms = static_cast<uint64_t>(boottime_ms() - begin_ms_);
    ++started_;
  }

  void take_output(const pb::LogChunk& chunk) {
    TestedHost* const host = host_of(chunk.replica());
    if (host == nullptr) return;
    std::string& rest = unfinished_[chunk.replica()];
    rest += chunk.data();
    for (size_t end; (end = rest.find('\n')) != std::string::npos; rest.erase(0, end + 1)) {
      if (const auto fact = parse_probe_line(std::string_view(rest).substr(0, end))) take_fact(*host, *fact);
    }
  }

  void take_fact(TestedHost& host, const ProbeFact& fact) {
    if (const auto* began = std::get_if<ProbeBegan>(&fact)) host.began = *began;
    if (const auto* disk = std::get_if<ProbeDisk>(&fact)) (disk->is_output ? host.output : host.work) = *disk;
    if (const auto* wrote = std::get_if<ProbeWrote>(&fact)) host.wrote = *wrote;
    if (const auto* reach = std::get_if<ProbeReach>(&fact)) host.reaches[reach->to] = *reach;
    if (const auto* link = std::get_if<ProbeLink>(&fact)) {
      host.links[link->to] = *link;
      ++measured_;
    }
    if (const auto* rounds = std::get_if<ProbeLeftOut>(&fact)) test_.left_out = *rounds;
    if (!std::holds_alternative<ProbeDone>(fact) || host.done) return;
    host.done = true;
    if (++done_ == 1) deadline_ms_ = std::min(deadline_ms_, boottime_ms() + kStragglersMs);
  }

  void show() {
    const std::string whose = fmt::format("Testing {} as experiment {}: ", human_count(test_.hosts.size(), "host"), test_.id);
    const size_t pairs = test_.hosts.size() * (test_.hosts.size() - 1) / 2;
    line_.show(whose + (killed_                ? "it is being ended"
                        : started_ == 0        ? (reason_.empty() ? "it is being started" : reason_)
                        : !all_started_        ? fmt::format("{} started", started_)
                        : done_ > 0            ? fmt::format("{} of {} done", done_, test_.hosts.size())
                        : measured_ == 0       ? "disks, and who reaches whom"
                                               : fmt::format("{} of {} measured", human_count(measured_, "link"), pairs)));
  }

  // Its time is up, and not all is done.
  Status blame_late() {
    if (all_started_) return ok();
    pb::ShowRequest request;
    request.set_id(test_.id);
    TRY(const pb::ShowReply shown, connection_.show(request));
    take_seats(shown);
    const std::string& reason = shown.experiment().reason().empty() ? reason_ : shown.experiment().reason();
    std::string missing;
    for (const TestedHost& host : test_.hosts) {
      if (!host.started_after_ms) missing += (missing.empty() ? "" : ", ") + host.info.name();
    }
    test_.not_started = fmt::format("nothing had started within {} s on {}{}{}", kStartMs / 1000, missing, reason.empty() ? "" : ": ", reason);
    TRY(const pb::HostsReply now, connection_.hosts());
    for (const auto& host : now.hosts()) {
      const bool is_of_it = std::ranges::any_of(test_.hosts, [&](const TestedHost& one) { return one.info.id() == host.id(); });
      if (!is_of_it || !host.connected() || host.last_contact_ms() < kHostSilentMs) continue;
      test_.not_started += fmt::format("; {} has not been heard of for {}", host.name(), human_duration(host.last_contact_ms()));
    }
    return ok();
  }

  Status kill() {
    pb::KillRequest request;
    request.add_ids(test_.id);
    TRY(connection_.kill(request));
    killed_ = true;
    deadline_ms_ = boottime_ms() + kEndMs;
    return ok();
  }

  // What can be known only now: where they were, and who has gone meanwhile.
  Status look_back() {
    pb::ShowRequest request;
    request.set_id(test_.id);
    TRY(const pb::ShowReply shown, connection_.show(request));
    take_seats(shown);
    for (const pb::ReplicaInfo& replica : shown.replicas()) {
      TestedHost* const host = host_of(replica.id());
      if (host != nullptr && replica.state() == to_string(State::Failed)) host->end = replica.reason();
    }
    const bool is_failed = !killed_ && outcome_.state() == to_string(State::Failed);
    const bool is_said = std::ranges::any_of(test_.hosts, [](const TestedHost& host) { return !host.end.empty(); });
    if (is_failed && !is_said) test_.not_started = fmt::format("experiment {} failed: {}", test_.id, outcome_.reason());
    TRY(const pb::HostsReply now, connection_.hosts());
    for (TestedHost& host : test_.hosts) {
      const auto known = std::ranges::find_if(now.hosts(), [&](const pb::HostInfo& one) { return one.id() == host.info.id(); });
      host.is_away = !host.done && (known == now.hosts().end() || !known->connected());
      if (!host.wrote) continue;
      const auto index = static_cast<int>(&host - test_.hosts.data());
      const auto bytes = read_output(shown, hosts_test_output(index));
      host.arrived = bytes.ok() && *bytes && to_hex(sha256(**bytes)) == host.wrote->sha256;
    }
    return ok();
  }

  // None: it is not there.
  Result<std::optional<std::string>> read_output(const pb::ShowReply& shown, const std::string& name) {
    if (remote_machine().empty()) return read_file(fs::path(shown.output_dir()) / name);
    const FilePointer file = open_output(connection_.channel(), shown.experiment().id(), name);
    if (!file) return std::optional<std::string>();
    std::string text;
    std::array<char, 64 << 10> bytes;
    for (size_t got = 0; (got = std::fread(bytes.data(), 1, bytes.size(), file.get())) > 0;) text.append(bytes.data(), got);
    return std::optional(std::move(text));
  }

  // Which host has which replica was for the daemon to say.
  void take_seats(const pb::ShowReply& shown) {
    for (const pb::ReplicaInfo& replica : shown.replicas()) {
      TestedHost* const host = host_of(replica.id());
      if (host == nullptr) continue;
      host->address = replica.seat().address();
      host->port = replica.seat().port();
      const auto info = std::ranges::find_if(infos_, [&](const pb::HostInfo& one) { return one.id() == replica.seat().host_id(); });
      if (info != infos_.end()) host->info = *info;
    }
  }

  static std::vector<pb::HostInfo> infos_of(const HostsTest& test) {
    std::vector<pb::HostInfo> infos;
    for (const TestedHost& host : test.hosts) infos.push_back(host.info);
    return infos;
  }

  Connection& connection_;
  HostsTest& test_;
  Signals& signals_;
  ProgressLine& line_;
  const std::vector<pb::HostInfo> infos_ = infos_of(test_);
  const int64_t begin_ms_;
  int64_t deadline_ms_;
  std::string reason_;          // why the experiment waits
  std::map<std::string, std::string> unfinished_;   // lines, by replica
  size_t started_ = 0, done_ = 0;
  uint64_t measured_ = 0;
  bool all_started_ = false;
  bool killed_ = false, interrupted_ = false, over_ = false;
  pb::ExperimentInfo outcome_;
};

// A daemon that was just started has no host yet.
Result<pb::HostsReply> hosts_that_joined(Connection& connection) {
  constexpr std::chrono::milliseconds kAgain{50};
  const int64_t end_ms = boottime_ms() + kJoinMs;
  while (true) {
    TRY(pb::HostsReply reply, connection.hosts());
    if (!reply.hosts().empty() || boottime_ms() >= end_ms) return reply;
    std::this_thread::sleep_for(kAgain);
  }
}

Result<int> test_hosts(const std::vector<std::string>& names, const CommandContext& context) {
  TRY(Connection connection, connect(Autostart::IfNeeded, context));
  TRY(const pb::HostsReply known, hosts_that_joined(connection));
  TRY(HostsTest test, hosts_to_test(known, names));
  if (!test.hosts.empty()) {
    const auto signals = tied_signals();
    ProgressLine line(!context.json && screen_of(STDERR_FILENO).is_terminal);
    const int64_t begin_ms = boottime_ms();
    TRY(const pb::Accepted accepted, submit_test(connection, context, test, *signals));
    test.id = fmt::format("{}", accepted.number());
    signals->take_all();   // until it is ended
    TRY(const bool left, Following(connection, test, *signals, line, begin_ms).run());
    if (left) {
      line.show("");
      std::fprintf(stderr, "Experiment %s, which was the test, is ended\n", test.id.c_str());
      return kInterruptedCode;
    }
  }
  Sink sink(STDOUT_FILENO);
  sink.write(context.json ? to_json(test) : render_hosts_test(test, view_of_stdout()));
  TRY(sink.written());
  return troubles_of(test).empty() ? 0 : 1;
}

}  // namespace

Result<HostsTest> hosts_to_test(const pb::HostsReply& known, const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (std::ranges::any_of(known.hosts(), [&](const auto& host) { return is_meant(host, name); })) continue;
    return Error{Code::NotFound, fmt::format("no host is named '{}'", name), "known hosts: " + named_hosts(known)};
  }
  HostsTest test;
  for (const auto& host : known.hosts()) {
    const bool is_asked_for = std::ranges::any_of(names, [&](const std::string& name) { return is_meant(host, name); });
    if (!names.empty() && !is_asked_for) continue;
    if (auto why = why_not(host, is_asked_for)) {
      test.others.push_back(std::move(*why));
    } else {
      test.hosts.emplace_back().info = host;
    }
  }
  // Who has no address shares no gang.
  if (test.hosts.size() > 1) {
    std::erase_if(test.hosts, [&](const TestedHost& host) {
      if (!host.info.address().empty()) return false;
      test.others.push_back({host.info.name(), "has no address that other hosts reach, so that no gang is spread over it and others",
                             "set `address` below `host:` in its config.yml, or join it with --address", true});
      return true;
    });
  }
  const bool is_any_trouble = std::ranges::any_of(test.others, &NotTested::is_trouble);
  if (!test.hosts.empty() || is_any_trouble) return test;
  if (test.others.empty()) return Error{Code::FailedPrecondition, "no host has joined yet", "the daemon starts a runner on this machine; runner.log in DTRAIN_HOME says if it could not"};
  return Error{Code::FailedPrecondition, fmt::format("there is no host to test: {} {}", test.others.front().host, test.others.front().why), test.others.front().hint};
}

Spec hosts_test_spec(const HostsTest& test) {
  Spec spec;
  spec.project = kHostsTestProject;
  spec.framework = Framework::Tensorflow;   // each is told where all are
  RoleSpec role;
  role.resources = kNextToNothing;
  role.resources.cpus = kEnoughCpus;
  for (const TestedHost& host : test.hosts) role.resources.cpus = std::min(role.resources.cpus, std::floor(host.info.cpus_free() * 100) / 100);
  role.run = {kHostsProbeCommand};
  role.per_host = 1;
  role.role = test.hosts.size() == 1 ? Role::Train : Role::Master;
  if (test.hosts.size() == 1) role.per_host = 0;
  spec.roles.push_back(role);
  if (test.hosts.size() > 1) {
    role.role = Role::Worker;
    role.count = static_cast<int>(test.hosts.size()) - 1;
    spec.roles.push_back(role);
  }
  spec.completion = Completion::AllWorkers;
  spec.priority = 0;   // nobody gives way to it
  spec.max_duration_ms = kMaxDurationMs;
  spec.stop_grace_ms = kStopGraceMs;
  for (const TestedHost& host : test.hosts) spec.hosts.push_back(host.info.id());
  return spec;
}

Run declare_hosts_test(Options& options, CommandContext& context) {
  auto names = std::make_shared<std::vector<std::string>>();
  options.positionals("HOST", *names, "only these, by name or ID; left out: all that are here and not drained");
  options.json(context);
  options.footer("dtrain hosts test gpu1 gpu2");
  return [names, &context] { return test_hosts(*names, context); };
}

}  // namespace dtrain::cli
