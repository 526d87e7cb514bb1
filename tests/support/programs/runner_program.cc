// The runner and its keeper without the rest of dtrain:
//   runner_program keeper
//   runner_program run <home> <daemon socket>
#include <string_view>

#include "runner/keeper_nursery.h"
#include "runner/runner_main.h"

int main(int argc, char** argv) {
  const std::string_view verb = argc > 1 ? argv[1] : "";
  if (verb == "keeper") return dtrain::runner::run_keeper_nursery();
  if (verb == "run" && argc == 4) {
    dtrain::runner::RunnerOptions options;
    options.home = argv[2];
    options.daemon_socket = argv[3];
    return dtrain::runner::run_runner(options);
  }
  return 2;
}
