// The runner and its keeper without the rest of dtrain:
//   runner_program keeper
//   runner_program run <home> <daemon socket>
#include <cstdio>
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
    const dtrain::Status ended = dtrain::runner::run_runner(options);
    if (ended.ok()) return 0;
    std::fprintf(stderr, "dtrain runner: %s\n  hint: %s\n", ended.error().message.c_str(),
                 ended.error().hint.c_str());
    return 1;
  }
  return 2;
}
