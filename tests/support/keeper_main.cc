// A keeper by itself, for tests that need no daemon: keeper_main keeper <launch dir>.
#include <cstring>

#include "runner/keeper.h"

int main(int argc, char** argv) {
  if (argc != 3 || std::strcmp(argv[1], "keeper") != 0) return 2;
  return dtrain::runner::run_keeper(argv[2]);
}
