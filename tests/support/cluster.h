// A whole dtrain of its own for one test: its DTRAIN_HOME, the daemon and runner that the first
// command starts, and everything they start.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/process.h"

namespace dtrain::tests {

namespace fs = std::filesystem;

// Owner: the test case. Promises: no other dtrain of the machine is touched; the destructor ends
// every process of this home, checks that `dtrain daemon stop --kill` alone left none, and removes
// the folder. Never sleeps: commands are waited for by their end or by what they print.
class Cluster {
 public:
  Cluster();
  // With `home` for DTRAIN_HOME instead of a folder of its own: a small or read-only file system.
  explicit Cluster(fs::path home);
  ~Cluster();
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  const fs::path& home() const { return home_; }
  const fs::path& folder() const { return folder_; }  // all of the test's files

  // A project directory with these files (name -> bytes).
  fs::path project(const std::string& name, const std::map<std::string, std::string>& files);
  // A project whose dtrain.yml is `yaml`.
  fs::path project(const std::string& yaml) { return project("project", {{"dtrain.yml", yaml}}); }

  // dtrain with these arguments, in `directory`, to its end.
  Output run(const std::vector<std::string>& arguments, const fs::path& directory = {},
             std::chrono::milliseconds patience = kPatience);
  // What a replica printed.
  std::string log_of(const std::string& id);
  // The same as run(), still running.
  std::unique_ptr<Process> start(const std::vector<std::string>& arguments,
                                 const fs::path& directory = {});
  // What start() and run() execute, to be changed before (a network namespace, a variable).
  Command command(const std::vector<std::string>& arguments, const fs::path& directory = {}) const;

  // Ends everything now instead of at the end of the scope.
  void stop();
  // Processes whose environment, directory or command line lies in this cluster's folder.
  std::vector<pid_t> processes() const;
  // Those of them whose command line holds `words`: "runner run", "keeper".
  std::vector<pid_t> processes(const std::string& words) const;
  // Until these have ended, whoever ends them. Fails the test at the deadline.
  static void wait_until_gone(const std::vector<pid_t>& pids);

  // Before the first command: its replicas listen in a range of ports that no other test's do. Beside each other
  // two dtrains may choose the same port before either listens there, and a replica of one is refused or, worse,
  // meets one of the other. Writes config.yml.
  // `more` is what else its host says of itself: "cpus: 3, mem: 4GiB".
  void own_ports(const std::string& more = "");

  // From now on every command is one of this executable.
  void use(const fs::path& program) { program_.back() = program.string(); }
  // From now on every command runs without root's rights. Root's alone; others are so anyway.
  void drop_root();

  std::map<std::string, std::string> env;  // for every command

 private:
  fs::path folder_;
  fs::path home_;
  std::vector<std::string> program_;  // what each command line begins with
  int ports_fd_ = -1;                 // whose name says that its ports are taken
  bool stopped_ = false;
};

// With -9; fails the test when there is none.
void kill_all(const std::vector<pid_t>& pids);

// Each of the words is there, behind the one before.
bool has_in_order(const std::string& text, const std::vector<std::string>& words);

void write_file(const fs::path& path, const std::string& bytes);
std::string read_file(const fs::path& path);  // fails the test when it can't be read

}  // namespace dtrain::tests
