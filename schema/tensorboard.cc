#include "schema/tensorboard.h"

#include <algorithm>

namespace dtrain {

namespace {

// By the package's own interface for other programs: the line comes when the port is open, and says
// nothing of a Ctrl-C that would not reach it. Its loader in a second process is left out: it greets
// with advice that nobody here could follow.
constexpr const char* kServe = R"(python -c '
import os, sys, threading
try:
    from tensorboard import program
except ImportError as error:
    sys.exit(f"{sys.executable} has no TensorBoard ({error}); "
             "`pip install tensorboard` there, or `install: [pip install tensorboard]`")
board = program.TensorBoard()
board.configure(argv=[None, "--load_fast=false",
                      "--logdir", os.environ.get("TENSORBOARD_LOGDIR") or os.environ["OUTPUT_DIR"],
                      "--host", os.environ["DTRAIN_ADDRESS"], "--port", os.environ["DTRAIN_PORT"]])
print("TensorBoard:", board.launch(), flush=True)
threading.Event().wait()
')";

}  // namespace

RoleSpec tensorboard_role() {
  RoleSpec role;
  role.role = Role::Tensorboard;
  role.resources = {0.1, uint64_t{512} << 20, 0};
  role.run = {kServe};
  role.on_failure = OnFailure::Ignore;
  return role;
}

bool is_only_tensorboard(const Spec& spec) {
  if (spec.roles.size() != 1 || !spec.env.contains(kTensorboardLogdir)) return false;
  const RoleSpec usual = tensorboard_role();
  return spec.roles.front().resources == usual.resources && spec.roles.front().run == usual.run;
}

bool only_shows(const Spec& spec) {
  const bool is_shared = !spec.roles.empty() && std::all_of(spec.roles.begin(), spec.roles.end(), [](const RoleSpec& role) {
    return role.role == Role::Tensorboard;
  });
  return is_shared || is_only_tensorboard(spec);
}

}  // namespace dtrain
