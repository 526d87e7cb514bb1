#include "tests/support/package_index.h"

namespace dtrain::tests {

bool index_answers(const Cluster& cluster) {
  Command command;
  command.argv = {"python3",    "-m",        "pip",    "download",
                  "--quiet",    "--no-deps", "--dest", (cluster.folder() / "six").string(),
                  "six==1.16.0"};
  return run(command).code == 0;
}

}  // namespace dtrain::tests
