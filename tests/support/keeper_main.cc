// A keeper by itself, for tests that need no daemon: keeper_main <launch dir>. Descriptor 1 is the pipe
// on which it says that it is ready. To a limit of file sizes it is deaf: for tests that is a full disk.
#include <csignal>

#include "runner/keeper.h"

int main(int argc, char** argv) {
  std::signal(SIGXFSZ, SIG_IGN);
  return argc == 2 ? dtrain::runner::run_keeper(argv[1]) : 2;
}
