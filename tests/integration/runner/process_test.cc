#include "runner/process.h"

#include <fcntl.h>
#include <sys/wait.h>

#include <fstream>

#include "runner/process_place.h"
#include "tests/integration/runner/kept_launch.h"
#include "tests/support/skipped.h"
#include "tests/support/tiny_image.h"

namespace dtrain::runner {
namespace {

const std::string kTrainer = std::string(BIN_DIR) + "/fake_trainer";

struct Ran {
  int status = 0;
  std::string output;
};

// Runs it to its end, with its output in a pipe.
Ran run(SpawnRequest request) {
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  const Fd read_end(ends[0]);
  Fd write_end(ends[1]);
  request.output_fd = write_end.get();
  Result<Child> child = spawn(request);
  REQUIRE_MESSAGE(child.ok(), (child.ok() ? "" : child.error().message));
  write_end.reset();
  Ran ran;
  char bytes[4096];
  for (ssize_t got; (got = ::read(read_end.get(), bytes, sizeof bytes)) > 0;) {
    ran.output.append(bytes, static_cast<size_t>(got));
  }
  REQUIRE(wait_readable(child->pidfd.get()));
  ran.status = try_reap(*child).value_or(-1);
  CHECK(child->pid == -1);
  return ran;
}

size_t zombies() {
  size_t count = 0;
  for (const auto& [pid, row] : ProcessTable::read().rows) {
    count += row.parent == ::getpid() && row.state == 'Z' ? 1 : 0;
  }
  return count;
}

Error spawn_error(const SpawnRequest& request) {
  const size_t before = zombies();
  Result<Child> child = spawn(request);
  REQUIRE(!child.ok());
  CHECK(zombies() == before);
  return child.error();
}

std::filesystem::path write_script(const std::filesystem::path& path, const std::string& text,
                                   std::filesystem::perms mode) {
  std::ofstream(path) << text;
  std::filesystem::permissions(path, mode);
  return path;
}

TEST_CASE("a program gets its arguments, environment and directory, and nothing else of ours") {
  const auto root = make_temporary_directory();
  const Fd secret(::open("/dev/null", O_RDONLY));  // without close-on-exec
  const std::string script =
      "echo \"$1|$A|$HOME\"; pwd; ls /proc/self/fd | tr '\\n' ' '; readlink /proc/self/fd/0; "
      "ps -o sid= -p $$ | tr -d ' '; echo $$";
  const Ran ran = run({.argv = {"sh", "-c", script, "sh", "two words"},
                       .cwd = root.string(),
                       .env = {{"A", "b=c"}, {"PATH", "/usr/bin:/bin"}}});
  CHECK(WEXITSTATUS(ran.status) == 0);
  std::istringstream lines(ran.output);
  std::string line;
  std::getline(lines, line);
  CHECK(line == "two words|b=c|");
  std::getline(lines, line);
  CHECK(line == root.string());
  std::getline(lines, line);
  CHECK(line == "0 1 2 3 /dev/null");  // 3 is the directory that ls reads
  std::string session;
  std::string pid;
  std::getline(lines, session);
  std::getline(lines, pid);
  CHECK((session == pid || session.empty()));  // empty: no ps here
  std::filesystem::remove_all(root);
}

TEST_CASE("a program runs on the processors it is told, if it may") {
  const auto allowed = [](std::vector<int> processors) {
    return run({.argv = {"/bin/sh", "-c", "grep Cpus_allowed_list /proc/self/status"}, .processors = std::move(processors)}).output;
  };
  const std::string any = allowed({});
  const int last = std::stoi(any.substr(any.find_last_of("\t-,") + 1));
  CHECK(allowed({last}) == fmt::format("Cpus_allowed_list:\t{}\n", last));
  CHECK(allowed({last, 1'000}) == fmt::format("Cpus_allowed_list:\t{}\n", last));
  CHECK(allowed({1'000}) == any);   // which is not here
}

TEST_CASE("signals are at their defaults and open") {
  std::signal(SIGTERM, SIG_IGN);
  sigset_t blocked;
  sigset_t before;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGINT);
  ::sigprocmask(SIG_BLOCK, &blocked, &before);
  const Ran terminated = run({.argv = {kTrainer, "--raise", "15", "--exit", "1"}});
  const Ran interrupted = run({.argv = {kTrainer, "--raise", "2", "--exit", "1"}});
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  std::signal(SIGTERM, SIG_DFL);
  CHECK(describe_wait_status(terminated.status) == "killed by SIGTERM (15)");
  CHECK(describe_wait_status(interrupted.status) == "killed by SIGINT (2)");
}

TEST_CASE("exit codes and signals have words") {
  CHECK(describe_wait_status(run({.argv = {kTrainer, "--exit", "3"}}).status) == "exit code 3");
  CHECK(signal_name(SIGSEGV) == "SIGSEGV");
  CHECK(signal_name(60) == "signal 60");
}

TEST_CASE("what can't be run says why, as a shell would number it") {
  const auto root = make_temporary_directory();
  using std::filesystem::perms;
  const auto plain = write_script(root / "plain", "echo hi\n", perms::owner_read);
  const auto orphaned = write_script(root / "orphaned", "#!/no/such/python\n", perms::owner_all);
  const std::map<std::string, std::string> env{{"PATH", "/nowhere:" + root.string()}};

  const Error missing = spawn_error({.argv = {"trainer.exe"}, .env = env});
  CHECK(missing.message == "trainer.exe: command not found");
  CHECK(missing.hint.find("/nowhere") != std::string::npos);
  CHECK(exec_failure_code(missing) == 127);

  const Error refused = spawn_error({.argv = {"plain"}, .env = env});
  CHECK(refused.message == plain.string() + " is not executable");
  CHECK(refused.hint == "chmod +x " + plain.string());
  CHECK(exec_failure_code(refused) == 126);

  const Error directory = spawn_error({.argv = {root.string()}});
  CHECK(exec_failure_code(directory) == 126);

  const Error interpreter = spawn_error({.argv = {orphaned.string()}});
  CHECK(interpreter.message.find("the interpreter its first line names") != std::string::npos);
  CHECK(exec_failure_code(interpreter) == 127);

  const Error nowhere = spawn_error({.argv = {"/bin/true"}, .cwd = (root / "gone").string()});
  CHECK(nowhere.message.find("cannot enter the working directory") == 0);
  CHECK(exec_failure_code(nowhere) == 126);

  CHECK(spawn_error({.argv = {}}).message == "the command is empty");
  CHECK(exec_failure_code(spawn_error({.argv = {"/bin/true", std::string(3 << 20, 'x')}})) == 126);
  std::filesystem::remove_all(root);
}

TEST_CASE("a script without a first line runs by the shell; ./ counts from the directory") {
  const auto root = make_temporary_directory();
  write_script(root / "run", "echo \"ran $1\"\n", std::filesystem::perms::owner_all);
  CHECK(run({.argv = {"./run", "here"}, .cwd = root.string()}).output == "ran here\n");
  std::filesystem::remove_all(root);
}

TEST_CASE("who is started beside a process sees the root that it has, and not that of its namespace") {
  if (::geteuid() != 0) return tests::say_skipped("only root may change its root");
  if (const std::string lacking = tests::tiny_image_unavailable(); !lacking.empty()) return tests::say_skipped(lacking);
  const auto root = make_temporary_directory();
  tests::make_tiny_image(root);
  std::ofstream(root / "etc/which") << "of the root\n";
  int ends[2];
  REQUIRE(::pipe2(ends, O_CLOEXEC) == 0);
  const Fd read_end(ends[0]);
  const Fd write_end(ends[1]);
  Result<Child> child = spawn({.argv = {"/usr/bin/unshare", "-m", "/usr/sbin/chroot", root.string(), "/bin/sh", "-c",
                                        "cd /etc; echo ready; exec sleep 1000"},
                               .output_fd = write_end.get()});
  REQUIRE(child.ok());
  char bytes[6];
  REQUIRE(wait_readable(read_end.get()));
  REQUIRE(::read(read_end.get(), bytes, sizeof bytes) == sizeof bytes);
  const auto place = ProcessPlace::of(identify(child->pid));
  REQUIRE(place.ok());
  CHECK(run({.argv = {"/bin/sh", "-c", "pwd; cat /etc/which"}, .beside = &place.value()}).output == "/etc\nof the root\n");
  ::kill(child->pid, SIGKILL);
  REQUIRE(wait_readable(child->pidfd.get()));
  CHECK(try_reap(*child));
  std::filesystem::remove_all(root);
}

}  // namespace
}  // namespace dtrain::runner
