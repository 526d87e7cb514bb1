#include "cli/autostart.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "cli/command.h"
#include "cli/connection.h"
#include "fake_daemon.h"
#include "schema/fd.h"
#include "schema/lock_file.h"

namespace dtrain::cli {
namespace {

namespace fs = std::filesystem;

std::string script(const Home& home, const std::string& body) {
  const fs::path path = home.root / "program";
  std::ofstream(path) << "#!/bin/sh\n" << body << "\n";
  fs::permissions(path, fs::perms::owner_all);
  return path.string();
}

Fd holder_of(const fs::path& lock) {
  const auto pid = lock_holder(lock);
  REQUIRE(pid);
  Fd pidfd(static_cast<int>(syscall(SYS_pidfd_open, *pid, 0)));
  REQUIRE(pidfd);
  return pidfd;
}

void await_end(const Fd& pidfd) {
  pollfd ended{pidfd.get(), POLLIN, 0};
  CHECK(poll(&ended, 1, 30'000) == 1);
}

TEST_CASE("a daemon that dies at its start is told with its last words") {
  const ScratchHome scratch;
  std::ofstream(scratch.home().daemon_log()) << "from an earlier life\n";
  const std::string program = script(scratch.home(), "echo the port is taken >&2; exit 3");
  const Status started = start_daemon(scratch.home(), program, StartAs::Automatic);
  REQUIRE(!started.ok());
  CHECK(started.error().message ==
        "the daemon did not start: it ended with code 3\n  | the port is taken");
  CHECK(started.error().hint.find(scratch.home().daemon_log().string()) != std::string::npos);
}

TEST_CASE("a home that can't be written to says where else one may be") {
  const ScratchHome scratch;
  const fs::path lock = scratch.home().root / "start.lock";
  fs::create_directory(lock);  // in the way even of root
  const Status started = start_daemon(scratch.home(), "/bin/true", StartAs::Automatic);
  REQUIRE(!started.ok());
  CHECK(started.error().message == "opening " + lock.string() + ": Is a directory");
  CHECK(started.error().hint == "set DTRAIN_HOME to a directory that you can write to");
}

TEST_CASE("a program that is not there") {
  const ScratchHome scratch;
  const Status started = start_daemon(scratch.home(), "/nonexistent/dtrain", StartAs::Automatic);
  REQUIRE(!started.ok());
  CHECK(started.error().message == "the daemon did not start: it ended with code 127");
}

TEST_CASE("the child gets its home, a descriptor to report on, no terminal and nothing else") {
  const ScratchHome scratch;
  const Fd null(open("/dev/null", O_RDONLY | O_CLOEXEC));
  const Fd extra(fcntl(null.get(), F_DUPFD, 77));  // inheritable, and must not reach the daemon
  const std::string program =
      script(scratch.home(),
             fmt::format("[ -e /proc/$$/fd/{} ] && echo leaked || echo clean\n", extra.get()) +
                 "echo $DTRAIN_HOME; readlink /proc/$$/fd/0; pwd\n"
                 "cut -d' ' -f6 /proc/$$/stat; echo $$; eval \"printf x >&$DTRAIN_READY_FD\"");
  REQUIRE(start_daemon(scratch.home(), program, StartAs::Automatic).ok());
  std::ifstream log(scratch.home().daemon_log());
  std::string descriptors, home, input, directory, session, pid;
  log >> descriptors >> home >> input >> directory >> session >> pid;
  CHECK(descriptors == "clean");
  CHECK(home == scratch.home().root.string());
  CHECK(input == "/dev/null");
  CHECK(directory == "/");
  CHECK(session == pid);  // a session of its own: Ctrl-C here does not reach it
}

TEST_CASE("stopped by hand means nobody starts it by himself") {
  const ScratchHome scratch;
  std::ofstream(scratch.home().stopped_marker()) << "";
  const std::string program = script(scratch.home(), "eval \"printf x >&$DTRAIN_READY_FD\"");
  const Status refused = start_daemon(scratch.home(), program, StartAs::Automatic);
  REQUIRE(!refused.ok());
  CHECK(refused.error().message == "the daemon was stopped by hand");
  CHECK(refused.error().hint.starts_with("start it again: dtrain daemon start; "));
  CHECK(start_daemon(scratch.home(), program, StartAs::ByHand).ok());
  CHECK(!fs::exists(scratch.home().stopped_marker()));
}

TEST_CASE("several that need a daemon at once get the same one") {
  const ScratchHome scratch;
  CommandContext context;
  context.program = std::string(BIN_DIR) + "/dtrain";
  REQUIRE(fs::exists(context.program));
  constexpr int kClients = 4;
  uint64_t pids[kClients] = {};
  std::vector<std::thread> clients;
  for (int i = 0; i < kClients; ++i) {
    clients.emplace_back([&, i] {
      auto connection = connect(scratch.home(), Autostart::IfNeeded, context);
      if (connection.ok()) pids[i] = connection.value().daemon().pid();
    });
  }
  for (std::thread& client : clients) client.join();
  for (const uint64_t pid : pids) {
    CHECK(pid != 0);
    CHECK(pid == pids[0]);
  }
  std::ofstream(scratch.home().stopped_marker()) << "";
  const Fd daemon = holder_of(scratch.home().lock());
  const Fd runner = holder_of(scratch.home().runner() / "lock");
  auto connection = connect(scratch.home(), Autostart::No, context);
  REQUIRE(connection.ok());
  CHECK(connection.value().shutdown(pb::ShutdownRequest()).ok());
  // They write to the home until their end.
  await_end(daemon);
  await_end(runner);
}

}  // namespace
}  // namespace dtrain::cli
