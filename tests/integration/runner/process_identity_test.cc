#include "runner/process_identity.h"

#include <sys/wait.h>

#include <csignal>

#include "runner/process.h"
#include "tests/integration/runner/kept_launch.h"

namespace dtrain::runner {
namespace {

TEST_CASE("a process is told from others by its start; a dead one is not alive") {
  CHECK(is_alive(identify(::getpid())));
  ProcessIdentity other = identify(::getpid());
  other.start_ticks += 1;
  CHECK(!is_alive(other));
  ProcessIdentity rebooted = identify(::getpid());
  rebooted.boot_id = "another boot";
  CHECK(!is_alive(rebooted));

  Result<Child> child = spawn({.argv = {std::string(BIN_DIR) + "/fake_trainer", "--hang"}});
  REQUIRE(child.ok());
  const ProcessIdentity identity = identify(child->pid);
  CHECK(is_alive(identity));
  CHECK(!is_stopped(identity));
  ::kill(child->pid, SIGSTOP);
  siginfo_t seen{};
  REQUIRE(::waitid(P_PID, static_cast<id_t>(child->pid), &seen, WSTOPPED) == 0);
  CHECK(is_stopped(identity));
  CHECK(is_alive(identity));
  ProcessIdentity earlier = identity;
  earlier.start_ticks -= 1;
  CHECK(!is_stopped(earlier));
  ::kill(child->pid, SIGKILL);
  REQUIRE(wait_readable(child->pidfd.get()));
  CHECK(!is_alive(identity));  // a zombie
  try_reap(*child);
  CHECK(!is_alive(identity));
  CHECK(!is_alive({}));
  CHECK(!is_stopped({}));
}

}  // namespace
}  // namespace dtrain::runner
