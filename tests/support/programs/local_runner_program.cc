// A daemon's LocalRunner, in a process of its own:
//   local_runner_program <home>            at a moment when no descriptor is free
//   local_runner_program <home> adopt      beside a runner of an earlier daemon that hangs
//   local_runner_program <home> hang       and the runner that it starts hangs
//   local_runner_program <home> leave      and it hangs once its stream has come and gone
// prints when it has seen the runner that it started end. As that runner, which is this executable
// again, it ends at once, unless it is to hang.
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string_view>
#include <vector>

#include "daemon/local_runner.h"
#include "schema/lock_file.h"

namespace {

// Holds the lock of the runner's home and does nothing, until it is killed or its parent is gone.
bool start_hung_runner(const dtrain::Home& home) {
  int ready[2];
  int alive[2];
  if (pipe(ready) != 0 || pipe(alive) != 0) return false;
  if (fork() == 0) {
    close(alive[1]);
    const auto lock = dtrain::hold_lock(home.runner() / "lock");
    char byte = lock.ok() ? 'y' : 'n';
    if (write(ready[1], &byte, 1) != 1) _exit(1);
    while (read(alive[0], &byte, 1) > 0) {
    }
    _exit(0);
  }
  char byte = 'n';
  return read(ready[0], &byte, 1) == 1 && byte == 'y';
}

constexpr const char* kHangs = "LOCAL_RUNNER_HANGS";

int be_the_runner() {
  if (std::getenv(kHangs) == nullptr) return 7;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  pause();
  return 7;
}

void start_without_descriptors(dtrain::daemon::LocalRunner& runner) {
  const rlimit limit{64, 64};
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) _exit(3);
  std::vector<int> taken;
  for (int fd = dup(0); fd >= 0; fd = dup(0)) taken.push_back(fd);
  runner.start();
  for (const int fd : taken) close(fd);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "runner") return be_the_runner();
  if (argc < 2) return 2;
  const dtrain::Home home{argv[1], std::string(argv[1]) + "/socket"};
  const std::string_view how = argc > 2 ? argv[2] : "";
  const bool adopt = how == "adopt";
  const bool leave = how == "leave";
  if (how == "hang" || leave) setenv(kHangs, "1", 1);
  if (adopt && !start_hung_runner(home)) return 4;
  boost::asio::io_context loop;
  dtrain::Config config;
  config.runner_timeout_ms = 50;
  dtrain::daemon::LocalRunner runner(loop, home, config);
  bool ended = false;
  runner.on_ended = [&] {
    ended = true;
    loop.stop();
  };
  if (!how.empty()) {
    runner.start();
  } else {
    start_without_descriptors(runner);
  }
  if (leave) {
    const dtrain::HostId host{"h1"};
    std::ofstream(home.runner() / "host-id") << host.hex;
    runner.connected(host);
    runner.disconnected(host);
  }
  loop.run_for(std::chrono::seconds(30));
  std::puts(ended ? "ended" : "not ended");
  return 0;
}
