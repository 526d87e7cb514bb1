// A launch in a temporary directory with a real keeper, for tests. Waits on the keeper's `changed`,
// never on time.
#pragma once

#include <dirent.h>
#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "runner/cgroup.h"
#include "runner/keeper.h"
#include "runner/launch_dir.h"
#include "runner/launch_facts.h"
#include "runner/process_tree.h"
#include "schema/small_file.h"
#include "runner/spool.h"
#include "schema/clock.h"

namespace dtrain::runner {

// Far more than anything here takes: a test that reaches it has failed.
inline constexpr int kTestPatienceMs = 60'000;

inline std::filesystem::path make_temporary_directory() {
  std::string pattern = std::filesystem::temp_directory_path() / "dtrain-test.XXXXXX";
  REQUIRE(::mkdtemp(pattern.data()) != nullptr);
  return pattern;
}

// A launch's directory for a case, gone with it.
struct LaunchFolder {
  std::filesystem::path path = make_temporary_directory();
  LaunchDir directory{path};
  LaunchFolder() = default;
  LaunchFolder(const LaunchFolder&) = delete;
  LaunchFolder& operator=(const LaunchFolder&) = delete;
  ~LaunchFolder() { std::filesystem::remove_all(path); }
};

inline const ReplicaId kReplica{{4, 2}, Role::Worker, 1};

// False when there is nothing to read in time.
inline bool wait_readable(int fd, int timeout_ms = kTestPatienceMs) {
  pollfd entry{fd, POLLIN, 0};
  return ::poll(&entry, 1, timeout_ms) == 1;
}

// Every live process whose command line names this directory, whatever became of its environment,
// session and parents: the fake trainer is started by a path in there.
inline std::vector<pid_t> processes_of(const std::filesystem::path& directory) {
  std::vector<pid_t> found;
  for (const auto& [pid, row] : ProcessTable::read().rows) {
    if (row.state == 'Z' || row.state == 'X') continue;
    const auto command = read_small_file(fmt::format("/proc/{}/cmdline", pid));
    if (command && command->starts_with(directory.string() + "/trainer")) found.push_back(pid);
  }
  return found;
}

// A keeper as a child of this process.
inline SpawnedKeeper spawn_keeper(const LaunchDir& launch, int error_fd = 2) {
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  SpawnedKeeper keeper;
  keeper.ready.reset(ends[0]);
  const Fd write_end(ends[1]);
  SpawnRequest request;
  request.argv = {std::string(BIN_DIR) + "/keeper_main", launch.path().string()};
  request.output_fd = write_end.get();
  request.error_fd = error_fd;
  auto child = spawn(request);
  REQUIRE_MESSAGE(child.ok(), (child.ok() ? "" : child.error().message));
  keeper.process = std::move(*child);
  return keeper;
}

class KeptLaunch {
 public:
  explicit KeptLaunch(CgroupChoice choice = CgroupChoice::Best)
      : root_(make_temporary_directory()),
        directory_(root_ / "4@1"),
        support_(claim_cgroups(choice)) {
    std::filesystem::create_directory(directory_.path());
    std::filesystem::create_symlink(std::filesystem::path(BIN_DIR) / "fake_trainer",
                                    root_ / "trainer");
    launch_.experiment = {4, 0};
    launch_.attempt = 1;
    launch_.key = fmt::format("{:016x}{:016x}", ::getpid(), boottime_ms() ^ (counter()++ << 48));
    launch_.ctl = launch_.key;
    launch_.grace_ms = 100;
  }
  KeptLaunch(const KeptLaunch&) = delete;
  KeptLaunch& operator=(const KeptLaunch&) = delete;
  ~KeptLaunch() {
    if (keeper_.process.pid > 0) ::kill(keeper_.process.pid, SIGKILL);
    wait_keeper();
    if (auto marks = marks_of_launch(directory_); marks.ok()) (void)kill_tree(*marks, 10'000);
    for (const pid_t pid : processes_of(root_)) ::kill(pid, SIGKILL);
    (void)remove_launch_cgroups(launch_);
    std::error_code error;
    std::filesystem::remove_all(root_, error);
  }

  // A replica worker.<index> that runs the fake trainer's steps.
  ReplicaId add(uint32_t index, const std::vector<std::string>& steps) {
    ReplicaLaunch replica;
    replica.id = {launch_.experiment, Role::Worker, index};
    replica.attempt = 1;
    replica.argv = {(root_ / "trainer").string()};
    replica.argv.insert(replica.argv.end(), steps.begin(), steps.end());
    replica.cwd = root_.string();
    replica.env = {{"PATH", "/usr/bin:/bin"}};
    launch_.replicas.push_back(replica);
    return replica.id;
  }

  // What the keeper says for people can be read from `said`, when asked for before keep().
  Fd said;
  void listen() {
    int ends[2];
    REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
    said.reset(ends[0]);
    says_.reset(ends[1]);
  }

  void wait_said(std::string_view what) {
    std::string all;
    while (all.find(what) == std::string::npos) {
      REQUIRE(wait_readable(said.get()));
      char bytes[1024];
      const ssize_t got = ::read(said.get(), bytes, sizeof bytes);
      REQUIRE(got > 0);
      all.append(bytes, static_cast<size_t>(got));
    }
  }

  void keep(const CgroupLimits& limits = {}) {
    if (support_.kind != "none") {
      std::map<ReplicaId, CgroupLimits> all;
      for (const ReplicaLaunch& replica : launch_.replicas) all[replica.id] = limits;
      const Status made = make_launch_cgroups(support_, all, launch_);
      REQUIRE_MESSAGE(made.ok(), (made.ok() ? "" : made.error().message));
    }
    REQUIRE(directory_.write_launch(launch_).ok());
    keeper_ = spawn_keeper(directory_, says_ ? says_.get() : 2);
    char word[1024];
    REQUIRE(wait_readable(keeper_.ready.get()));
    const ssize_t size = ::read(keeper_.ready.get(), word, sizeof word);
    REQUIRE(std::string(word, static_cast<size_t>(size)) == "ready\n");
    connect();
  }
  void connect() {
    auto connected = connect_keeper(launch_.ctl);
    REQUIRE_MESSAGE(connected.ok(), (connected.ok() ? "" : connected.error().message));
    ctl_ = std::move(*connected);
  }
  void disconnect() { ctl_.reset(); }
  void send(const std::string& line) {
    const std::string text = line + "\n";
    REQUIRE(::send(ctl_.get(), text.data(), text.size(), MSG_NOSIGNAL) ==
            static_cast<ssize_t>(text.size()));
  }
  void start() {
    keep();
    send_start();
  }
  void send_start() { send(fmt::format("start {}", boottime_ms())); }
  void stop(const ReplicaId& id, int grace_ms) {
    send(fmt::format("stop {} {}", to_string(id), grace_ms));
  }

  // Looks again whenever the keeper says `changed`, until `done()`.
  template <typename Done>
  void wait_until(Done done) {
    while (!done()) {
      REQUIRE(wait_readable(ctl_.get()));
      char bytes[256];
      const ssize_t got = ::recv(ctl_.get(), bytes, sizeof bytes, 0);
      REQUIRE(got > 0);
      send("seen");
    }
  }
  LaunchFacts facts() const {
    auto read = read_facts(directory_);
    REQUIRE(read.ok());
    return *read;
  }
  ReplicaExit wait_exit(const ReplicaId& id) {
    wait_until([&] { return facts().exits.contains(id); });
    return facts().exits.at(id);
  }
  void wait_output(const ReplicaId& id, const std::string& text) {
    wait_until([&] { return output(id).find(text) != std::string::npos; });
  }
  // What is in the spool by now; a hole as "<dropped N>".
  std::string output(const ReplicaId& id) const {
    SpoolReader reader(directory_, id, 0);
    std::string text;
    for (;;) {
      auto chunk = reader.next();
      REQUIRE(chunk.ok());
      if (!*chunk) return text;
      text += (*chunk)->bytes;
      if ((*chunk)->dropped_bytes > 0) text += fmt::format("<dropped {}>", (*chunk)->dropped_bytes);
    }
  }
  std::vector<pid_t> survivors() const { return processes_of(root_); }
  void kill_keeper() {
    ::kill(keeper_.process.pid, SIGKILL);
    wait_keeper();
  }
  // Its wait status; -1 when it was reaped before.
  int wait_keeper() {
    if (keeper_.process.pid <= 0) return -1;
    wait_readable(keeper_.process.pidfd.get());
    return try_reap(keeper_.process).value_or(-1);
  }

  const std::filesystem::path& root() const { return root_; }
  const LaunchDir& directory() const { return directory_; }
  LaunchRecord& launch() { return launch_; }
  const CgroupSupport& support() const { return support_; }
  pid_t keeper_pid() const { return keeper_.process.pid; }

 private:
  static int64_t& counter() {
    static int64_t count = 0;
    return count;
  }
  std::filesystem::path root_;
  LaunchDir directory_;
  CgroupSupport support_;
  LaunchRecord launch_;
  Fd says_;
  SpawnedKeeper keeper_;
  Fd ctl_;
};

}  // namespace dtrain::runner
