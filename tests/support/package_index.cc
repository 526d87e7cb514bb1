#include "tests/support/package_index.h"

namespace dtrain::tests {

bool index_answers(const Cluster& cluster) {
  // By a pip of its own, as an experiment's environment has one: the system's python may have none.
  const std::string venv = (cluster.folder() / "asks-index").string();
  Command command;
  command.argv = {"python3", "-m", "venv", venv};
  if (run(command).code != 0) return false;
  command.argv = {venv + "/bin/pip", "download", "--quiet", "--retries", "0", "--timeout", "10", "--no-deps", "--dest", venv, "six==1.16.0"};
  return run(command).code == 0;
}

}  // namespace dtrain::tests
