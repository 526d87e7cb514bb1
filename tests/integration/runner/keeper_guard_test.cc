#include "runner/keeper_guard.h"

#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <boost/asio/executor_work_guard.hpp>
#include <csignal>
#include <optional>

#include "runner/lost_keeper.h"
#include "tests/integration/runner/kept_launch.h"
#include "tests/support/few_descriptors.h"
#include "tests/support/skipped.h"

namespace dtrain::runner {
namespace {

namespace asio = boost::asio;

// A keeper that was killed, the process that lives on of its replica, and whoever is told.
struct DeadKeeper {
  DeadKeeper() {
    id = kept.add(1, {"--orphan", "--setsid", "--print", "ready", "--hang", "--then", "--hang"});
    kept.start();
    kept.wait_output(id, "ready");
    guard.emplace(loop, files, kept.directory(),
                  KeeperGuard::Callbacks{[this] { gone = true; }, [] { return false; },
                                         [this](const auto& all) { ends = all; }});
    REQUIRE(guard->watch(*kept.facts().keeper).ok());
    kept.kill_keeper();
    while (!gone) loop.run_one();
  }

  // What was given to the thread for files before this was done, and what followed it too.
  void wait_files() {
    bool done = false;
    files.run([] {}, [&] { done = true; });
    while (!done) loop.run_one();
  }

  KeptLaunch kept;
  ReplicaId id;
  asio::io_context loop{1};
  asio::executor_work_guard<asio::io_context::executor_type> work{loop.get_executor()};
  FileWorker files{loop};
  bool gone = false;
  std::optional<std::map<ReplicaId, ReplicaExit>> ends;
  std::optional<KeeperGuard> guard;
};

TEST_CASE("what a dead keeper left has not ended before it could be looked for") {
#ifdef __SANITIZE_ADDRESS__
  return tests::say_skipped("the sanitizer looks at memory through a pipe, and there is none");
#endif
  DeadKeeper dead;
  {
    const test::FewDescriptors none;
    const Status now = dead.guard->end_strays_now();
    REQUIRE(!now.ok());
    CHECK(now.error().code == Code::ResourceExhausted);
    dead.guard->end_strays();
    dead.wait_files();
  }
  CHECK(!dead.ends);
  CHECK(!dead.kept.survivors().empty());

  while (!dead.ends) dead.loop.run_one();
  CHECK(dead.ends->at(dead.id).cause == kKeeperDied);
  CHECK(dead.kept.survivors().empty());
}

// As a keeper does whose replica's program is on a server that is away.
pid_t fork_hanging() {
  const pid_t pid = ::fork();
  if (pid != 0) return pid;
  if (::vfork() == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    ::pause();
  }
  ::_exit(0);
}

TEST_CASE("a keeper that hangs when it is to end something is killed") {
  LaunchFolder folder;
  asio::io_context loop{1};
  FileWorker files(loop);
  bool gone = false;
  KeeperGuard guard(loop, files, folder.directory,
                    {[&] { gone = true; }, [] { return true; }, [](const auto&) {}}, std::chrono::milliseconds(1));
  Child keeper;
  keeper.pid = fork_hanging();
  REQUIRE(keeper.pid > 0);
  keeper.pidfd.reset(static_cast<int>(::syscall(SYS_pidfd_open, keeper.pid, 0)));
  const ProcessIdentity identity = identify(keeper.pid);
  guard.identify(identity);
  guard.watch(std::move(keeper));
  while (!is_in_kernel(identity)) ::sched_yield();
  guard.await_ends(0);
  while (!gone) REQUIRE(loop.run_one_for(std::chrono::milliseconds(kTestPatienceMs)) == 1);
}

TEST_CASE("a guard that is no more tells nobody, whatever it still had under way") {
  DeadKeeper dead;
  dead.guard->end_strays();
  dead.guard.reset();
  dead.wait_files();
  CHECK(!dead.ends);
}

}  // namespace
}  // namespace dtrain::runner
