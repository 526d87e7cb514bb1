// The runner and its keeper without the rest of dtrain:
//   runner_program keeper <launch dir>
//   runner_program run <home> <daemon socket>
#include <string_view>

#include "runner/keeper.h"
#include "runner/runner_main.h"

int main(int argc, char** argv) {
  const std::string_view verb = argc > 1 ? argv[1] : "";
  if (verb == "keeper" && argc == 3) return dtrain::runner::run_keeper(argv[2]);
  if (verb == "run" && argc == 4) {
    dtrain::runner::RunnerOptions options;
    options.home = argv[2];
    options.daemon_socket = argv[3];
    return dtrain::runner::run_runner(options);
  }
  return 2;
}
