// A keeper by itself, for tests that need no daemon: keeper_main <launch dir>. Descriptor 1 is the pipe
// on which it says that it is ready.
#include "runner/keeper.h"

int main(int argc, char** argv) { return argc == 2 ? dtrain::runner::run_keeper(argv[1]) : 2; }
