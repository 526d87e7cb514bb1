#include "tests/support/process.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace dtrain::tests {
namespace {

using Clock = std::chrono::steady_clock;

std::vector<std::string> environment_of(const Command& command) {
  std::map<std::string, std::string> env;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    std::string text = *entry;
    size_t equals = text.find('=');
    env[text.substr(0, equals)] = text.substr(equals + 1);
  }
  for (const auto& [name, value] : command.env) {
    if (value.empty()) {
      env.erase(name);
    } else {
      env[name] = value;
    }
  }
  std::vector<std::string> entries;
  for (const auto& [name, value] : env) entries.push_back(name + "=" + value);
  return entries;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (std::string& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

// In the child: only calls that are safe after a fork. Exit codes 124 and 127 are ours.
[[noreturn]] void become(const Command& command, char** argv, char** env, int out, int err) {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  int in = open("/dev/null", O_RDONLY);
  dup2(in, 0);
  dup2(out, 1);
  dup2(err, 2);
  close_range(3, ~0U, CLOSE_RANGE_CLOEXEC);
  if (!command.netns.empty()) {
    int netns = open(command.netns.c_str(), O_RDONLY | O_CLOEXEC);
    if (setns(netns, CLONE_NEWNET) != 0) _exit(124);
  }
  if (!command.directory.empty() && chdir(command.directory.c_str()) != 0) _exit(124);
  execvpe(argv[0], argv, env);
  _exit(127);
}

// false at the end of the stream.
bool drain(int fd, std::string& into) {
  char buffer[65536];
  ssize_t count = read(fd, buffer, sizeof buffer);
  if (count > 0) into.append(buffer, static_cast<size_t>(count));
  return count > 0 || (count < 0 && (errno == EAGAIN || errno == EINTR));
}

int left_ms(Clock::time_point deadline) {
  auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return left < 0 ? 0 : static_cast<int>(left);
}

}  // namespace

Process::Process(const Command& command) {
  for (const std::string& word : command.argv) shown_ += (shown_.empty() ? "" : " ") + word;
  int out[2];
  int err[2];
  REQUIRE(pipe2(out, O_CLOEXEC) == 0);
  REQUIRE(pipe2(err, O_CLOEXEC) == 0);
  std::vector<std::string> argv = command.argv;
  std::vector<std::string> env = environment_of(command);
  std::vector<char*> argv_pointers = pointers(argv);
  std::vector<char*> env_pointers = pointers(env);
  pid_ = fork();
  REQUIRE(pid_ >= 0);
  if (pid_ == 0) become(command, argv_pointers.data(), env_pointers.data(), out[1], err[1]);
  close(out[1]);
  close(err[1]);
  out_fd_ = out[0];
  err_fd_ = err[0];
  pidfd_ = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
  REQUIRE(pidfd_ >= 0);
}

Process::~Process() {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    reap();
  }
  for (int fd : {out_fd_, err_fd_, pidfd_}) {
    if (fd >= 0) close(fd);
  }
}

void Process::reap() {
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  pid_ = -1;
}

bool Process::is_running() {
  if (pid_ < 0) return false;
  pollfd ended{pidfd_, POLLIN, 0};
  return poll(&ended, 1, 0) == 0;
}

void Process::signal(int number) const {
  REQUIRE(pid_ > 0);
  ::kill(pid_, number);
}

// A daemon that the child started may hold the pipes for longer than the child lives, so the
// child's own end, not the end of the streams, is what counts.
bool Process::read_some(Clock::time_point deadline) {
  pollfd waits[3] = {{out_fd_, POLLIN, 0}, {err_fd_, POLLIN, 0}, {pidfd_, POLLIN, 0}};
  if (poll(waits, 3, left_ms(deadline)) < 0 && errno != EINTR) give_up("poll failed");
  bool more = false;
  int* fds[] = {&out_fd_, &err_fd_};
  std::string* texts[] = {&out_, &err_};
  for (int i = 0; i < 2; ++i) {
    if (waits[i].revents == 0 || *fds[i] < 0) continue;
    if (drain(*fds[i], *texts[i])) {
      more = true;
    } else {
      close(*fds[i]);
      *fds[i] = -1;
    }
  }
  return more || waits[2].revents == 0;
}

void Process::wait_for(const std::string& text, std::chrono::milliseconds patience) {
  wait_for(text, 0, 0, patience);
}

void Process::wait_for_next(const std::string& text, std::chrono::milliseconds patience) {
  wait_for(text, out_.size(), err_.size(), patience);
}

void Process::wait_for(const std::string& text, size_t out_from, size_t err_from,
                       std::chrono::milliseconds patience) {
  auto deadline = Clock::now() + patience;
  while (out_.find(text, out_from) == std::string::npos && err_.find(text, err_from) == std::string::npos) {
    if (Clock::now() >= deadline) give_up("did not print \"" + text + "\" in time");
    if (!read_some(deadline)) give_up("ended without printing \"" + text + "\"");
  }
}

Output Process::wait(std::chrono::milliseconds patience) {
  auto deadline = Clock::now() + patience;
  while (read_some(deadline)) {
    if (Clock::now() >= deadline) give_up("did not end in time");
  }
  reap();
  return {code_, out_, err_};
}

void Process::give_up(const std::string& why) {
  if (pid_ > 0) {
    ::kill(pid_, SIGKILL);
    reap();
  }
  FAIL(shown_ << ": " << why << "\n-- stdout\n" << out_ << "\n-- stderr\n" << err_);
  std::abort();  // FAIL throws
}

Output run(const Command& command, std::chrono::milliseconds patience) {
  return Process(command).wait(patience);
}

}  // namespace dtrain::tests
