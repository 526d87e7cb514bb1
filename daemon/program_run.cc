#include "daemon/program_run.h"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <csignal>
#include <memory>
#include <string_view>
#include <utility>

#include "schema/fd.h"
#include "schema/quote.h"
#include "schema/write_all.h"

namespace dtrain::daemon {

namespace {

namespace asio = boost::asio;

constexpr size_t kOutputBytesMax = 64 << 20;

// Files in memory instead of pipes: nobody has to read while it runs.
struct Files {
  Fd input, output, errors;
};

struct Run {
  Run(asio::io_context& loop, std::string program, Files its_files, ProgramDone then)
      : name(std::move(program)), files(std::move(its_files)), done(std::move(then)), ended(loop), deadline(loop) {}

  std::string name;
  Files files;
  ProgramDone done;
  pid_t pid = -1;
  bool late = false;
  asio::posix::stream_descriptor ended;   // a pidfd
  asio::steady_timer deadline;
};

Result<Files> make_files(const std::string& input) {
  Files files{Fd(memfd_create("input", MFD_CLOEXEC)), Fd(memfd_create("output", MFD_CLOEXEC)),
              Fd(memfd_create("errors", MFD_CLOEXEC))};
  if (!files.input || !files.output || !files.errors) return errno_error("make a file in memory", errno);
  if (const int error = write_all(files.input.get(), input); error != 0) return errno_error("write a file in memory", error);
  ::lseek(files.input.get(), 0, SEEK_SET);
  return files;
}

std::string text_of(const Fd& file) {
  struct stat facts {};
  if (::fstat(file.get(), &facts) != 0) return "";
  std::string text(std::min(static_cast<size_t>(facts.st_size), kOutputBytesMax), '\0');
  const ssize_t got = ::pread(file.get(), text.data(), text.size(), 0);
  text.resize(static_cast<size_t>(std::max<ssize_t>(got, 0)));
  return text;
}

// In a session of its own: a Ctrl-C meant for the daemon does not reach it.
Result<pid_t> spawn(std::vector<std::string>& words, const Files& files) {
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&actions);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_adddup2(&actions, files.input.get(), 0);
  posix_spawn_file_actions_adddup2(&actions, files.output.get(), 1);
  posix_spawn_file_actions_adddup2(&actions, files.errors.get(), 2);
  posix_spawn_file_actions_addclosefrom_np(&actions, 3);
  sigset_t none, defaults;
  sigemptyset(&none);
  sigemptyset(&defaults);
  sigaddset(&defaults, SIGPIPE);
  posix_spawnattr_setsigmask(&attributes, &none);
  posix_spawnattr_setsigdefault(&attributes, &defaults);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  // What would have squeue leave something out.
  std::vector<char*> variables;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (!std::string_view(*variable).starts_with("SQUEUE_")) variables.push_back(*variable);
  }
  variables.push_back(nullptr);
  pid_t pid = -1;
  const int error = posix_spawnp(&pid, arguments.front(), &actions, &attributes, arguments.data(), variables.data());
  posix_spawn_file_actions_destroy(&actions);
  posix_spawnattr_destroy(&attributes);
  if (error == ENOENT) return Error{Code::NotFound, fmt::format("there is no {} in the daemon's PATH", words.front()), ""};
  if (error != 0) return errno_error(fmt::format("run {}", words.front()), error);
  return pid;
}

Result<std::string> outcome(const Run& run, int status) {
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
    std::string output = text_of(run.files.output);
    if (output.size() < kOutputBytesMax) return output;
    return Error{Code::ResourceExhausted, fmt::format("{} printed more than {} MiB", run.name, kOutputBytesMax >> 20), ""};
  }
  std::string said = text_of(run.files.errors);
  while (!said.empty() && (said.back() == '\n' || said.back() == ' ')) said.pop_back();
  said = said.substr(said.rfind('\n') + 1);
  if (run.late) said = "it did not end in time";
  if (said.empty()) said = WIFEXITED(status) ? fmt::format("exit code {}", WEXITSTATUS(status)) : "killed by a signal";
  if (!said.starts_with(run.name)) said = run.name + ": " + said;
  return Error{Code::Unavailable, as_utf8(said.substr(0, 500)), ""};
}

}  // namespace

void run_program(asio::io_context& loop, std::vector<std::string> words, const std::string& input,
                 std::chrono::milliseconds patience, ProgramDone done) {
  const auto fail = [&](const Error& why) {
    asio::post(loop, [done = std::move(done), why] { done(why); });
  };
  auto files = make_files(input);
  if (!files.ok()) return fail(files.error());
  const auto pid = spawn(words, *files);
  if (!pid.ok()) return fail(pid.error());
  const auto run = std::make_shared<Run>(loop, words.front(), std::move(*files), std::move(done));
  run->pid = *pid;
  const int fd = static_cast<int>(syscall(SYS_pidfd_open, run->pid, 0));
  if (fd < 0) {   // no descriptor is left to wait by
    const Error why = errno_error(fmt::format("wait for {}", run->name), errno);
    ::kill(run->pid, SIGKILL);
    ::waitpid(run->pid, nullptr, 0);
    asio::post(loop, [run, why] { run->done(why); });
    return;
  }
  run->ended.assign(fd);
  run->ended.async_wait(asio::posix::stream_descriptor::wait_read, [run](boost::system::error_code error) {
    if (error) return;
    run->deadline.cancel();
    int status = 0;
    ::waitpid(run->pid, &status, 0);
    run->pid = -1;
    run->done(outcome(*run, status));
  });
  run->deadline.expires_after(patience);
  run->deadline.async_wait([run](boost::system::error_code error) {
    if (error || run->pid < 0) return;
    run->late = true;
    ::kill(run->pid, SIGKILL);
  });
}

}  // namespace dtrain::daemon
