// A daemon's LocalRunner at a moment when no descriptor is free, in a process of its own:
//   local_runner_program <home>
// prints when it has seen the runner end. As the runner, which is this executable again, it ends at once.
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <cstdio>
#include <string_view>
#include <vector>

#include "daemon/local_runner.h"

int main(int argc, char** argv) {
  if (argc != 2) return argc > 1 && std::string_view(argv[1]) == "runner" ? 7 : 2;
  const dtrain::Home home{argv[1], std::string(argv[1]) + "/socket"};
  boost::asio::io_context loop;
  dtrain::daemon::LocalRunner runner(loop, home, {});
  bool ended = false;
  runner.on_ended = [&] {
    ended = true;
    loop.stop();
  };
  const rlimit limit{64, 64};
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) return 3;
  std::vector<int> taken;
  for (int fd = dup(0); fd >= 0; fd = dup(0)) taken.push_back(fd);
  runner.start();
  for (const int fd : taken) close(fd);
  loop.run_for(std::chrono::seconds(30));
  std::puts(ended ? "ended" : "not ended");
  return 0;
}
