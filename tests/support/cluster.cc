#include "tests/support/cluster.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdio>

#include <fstream>
#include <iterator>
#include <system_error>

namespace dtrain::tests {
namespace {

std::string bytes_of(const fs::path& path) {
  // Not a stream: that throws when the process is gone between opening and reading.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  std::string bytes;
  char part[4096];
  for (ssize_t got; fd >= 0 && (got = ::read(fd, part, sizeof part)) > 0;) {
    bytes.append(part, static_cast<size_t>(got));
  }
  if (fd >= 0) ::close(fd);
  return bytes;
}

fs::path make_folder() {
  std::string pattern = (fs::temp_directory_path() / "dtrain-e2e-XXXXXX").string();
  REQUIRE(mkdtemp(pattern.data()) != nullptr);
  return pattern;
}

std::string command_line(pid_t pid) {
  std::string words = bytes_of("/proc/" + std::to_string(pid) + "/cmdline");
  for (char& byte : words) byte = byte == '\0' ? ' ' : byte;
  return words;
}

bool is_number(const std::string& text) {
  return !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
}

// By event, not by looking again and again.
bool is_gone(int pidfd) {
  pollfd ended{pidfd, POLLIN, 0};
  return poll(&ended, 1, 10'000) == 1;
}

}  // namespace

Cluster::Cluster() : Cluster(fs::path()) {}

Cluster::Cluster(fs::path home)
    : folder_(make_folder()), home_(std::move(home)), program_{std::string(BIN_DIR) + "/dtrain"} {
  if (home_.empty()) home_ = folder_ / "home";
}

Cluster::~Cluster() {
  stop();
  if (ports_fd_ >= 0) close(ports_fd_);
  std::error_code ignored;
  fs::remove_all(folder_, ignored);
}

fs::path Cluster::project(const std::string& name,
                          const std::map<std::string, std::string>& files) {
  fs::path directory = folder_ / name;
  for (const auto& [file, bytes] : files) {
    fs::create_directories((directory / file).parent_path());
    write_file(directory / file, bytes);
  }
  return directory;
}

Command Cluster::command(const std::vector<std::string>& arguments,
                         const fs::path& directory) const {
  Command command;
  command.argv = program_;
  command.argv.insert(command.argv.end(), arguments.begin(), arguments.end());
  command.directory = directory.empty() ? folder_ : directory;
  command.env = env;
  command.env["DTRAIN_HOME"] = home_.string();
  command.env["NO_COLOR"] = "";
  command.env["LC_ALL"] = "C.UTF-8";
  return command;
}

Output Cluster::run(const std::vector<std::string>& arguments, const fs::path& directory,
                    std::chrono::milliseconds patience) {
  return tests::run(command(arguments, directory), patience);
}

std::string Cluster::log_of(const std::string& id) {
  const Output log = run({"logs", "--raw", id});
  REQUIRE_MESSAGE(log.code == 0, log.all());
  return log.out;
}

std::unique_ptr<Process> Cluster::start(const std::vector<std::string>& arguments,
                                        const fs::path& directory) {
  return std::make_unique<Process>(command(arguments, directory));
}

std::vector<pid_t> Cluster::processes() const {
  std::vector<pid_t> found;
  std::error_code ignored;
  for (const auto& entry : fs::directory_iterator("/proc", ignored)) {
    std::string name = entry.path().filename().string();
    if (!is_number(name) || name == std::to_string(getpid())) continue;
    std::string traces = bytes_of(entry.path() / "environ") + bytes_of(entry.path() / "cmdline");
    std::error_code gone;
    traces += fs::read_symlink(entry.path() / "cwd", gone).string();
    bool ours = traces.find(folder_.string()) != std::string::npos ||
                traces.find(home_.string()) != std::string::npos;
    if (ours) found.push_back(static_cast<pid_t>(std::stol(name)));
  }
  return found;
}

std::vector<pid_t> Cluster::processes(const std::string& words) const {
  std::vector<pid_t> found;
  for (pid_t pid : processes()) {
    if (command_line(pid).find(words) != std::string::npos) found.push_back(pid);
  }
  return found;
}

void Cluster::wait_until_gone(const std::vector<pid_t>& pids) {
  for (const pid_t pid : pids) {
    const int pidfd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
    if (pidfd < 0) continue;
    CHECK_MESSAGE(is_gone(pidfd), command_line(pid));
    close(pidfd);
  }
}

// An abstract name is gone with its socket, and reaches as far as the network namespace: as ports do.
void Cluster::own_ports(const std::string& more) {
  ports_fd_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  REQUIRE(ports_fd_ >= 0);
  // From above: who asks for no ports of its own begins at 20000.
  for (int first = 29'900; first >= 20'000; first -= 100) {
    sockaddr_un name{.sun_family = AF_UNIX, .sun_path = {}};
    std::snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "dtrain-tests-ports-%d", first);
    if (::bind(ports_fd_, reinterpret_cast<const sockaddr*>(&name), sizeof name) != 0) continue;
    fs::create_directories(home_);
    const std::string range = std::to_string(first) + "-" + std::to_string(first + 99);
    return write_file(home_ / "config.yml", "host: {ports: " + range + (more.empty() ? "" : ", " + more) + "}\n");
  }
  FAIL("no range of ports is free");
}

void Cluster::drop_root() {
  if (geteuid() != 0) return;
  // The build may lie where nobody but root can reach it; the executable needs nothing beside it.
  fs::path copy = folder_ / "dtrain";
  fs::copy_file(program_[0], copy);
  Command chown{.argv = {"chown", "-R", "65534:65534", folder_.string()},
                .directory = {},
                .env = {},
                .netns = {}};
  REQUIRE(tests::run(chown).code == 0);
  program_ = {"setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "--", copy.string()};
}

void Cluster::stop() {
  if (stopped_) return;
  stopped_ = true;
  if (processes().empty()) return;
  // By hand instead of run(): a destructor must not throw what a failed expectation throws.
  Output output;
  try {
    output = run({"daemon", "stop", "--kill"});
  } catch (...) {
    output.err = "dtrain daemon stop --kill did not end";
  }
  for (pid_t pid : processes()) {
    int pidfd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
    if (pidfd < 0) continue;
    bool ended = is_gone(pidfd);
    if (!ended) {
      std::string words = command_line(pid);
      FAIL_CHECK("left after daemon stop --kill: " << pid << " " << words << "\n" << output.all());
      syscall(SYS_pidfd_send_signal, pidfd, SIGKILL, nullptr, 0);
      is_gone(pidfd);
    }
    close(pidfd);
  }
}

// Who waits for another of them may be gone before it is its turn.
void kill_all(const std::vector<pid_t>& pids) {
  REQUIRE(!pids.empty());
  for (const pid_t pid : pids) REQUIRE((::kill(pid, SIGKILL) == 0 || errno == ESRCH));
}

bool has_in_order(const std::string& text, const std::vector<std::string>& words) {
  size_t at = 0;
  for (const std::string& word : words) {
    at = text.find(word, at);
    if (at == std::string::npos) return false;
  }
  return true;
}

void write_file(const fs::path& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary);
  file << bytes;
  REQUIRE_MESSAGE(file.good(), "can't write " << path.string());
}

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  REQUIRE_MESSAGE(file.good(), "can't read " << path.string());
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

}  // namespace dtrain::tests
