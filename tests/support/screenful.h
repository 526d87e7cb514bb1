// A program at the far end of a terminal of its own.
#pragma once

#include <doctest/doctest.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <vector>

#include "schema/fd.h"
#include "tests/support/process.h"

namespace dtrain::tests {

// Ended and reaped at scope exit.
class Screenful {
 public:
  explicit Screenful(const Command& command, const char* term = "xterm") {
    int terminal = -1;
    pid_ = forkpty(&terminal, nullptr, nullptr, nullptr);
    if (pid_ == 0) become(command, term);
    terminal_ = Fd(terminal);
  }
  ~Screenful() {
    if (pid_ > 0) kill(pid_, SIGKILL);
    if (pid_ > 0) waitpid(pid_, nullptr, 0);
  }
  Screenful(const Screenful&) = delete;
  Screenful& operator=(const Screenful&) = delete;

  void signal(int number) const { kill(pid_, number); }
  // As a person types it: "\x03" is Ctrl-C.
  void type(const std::string& keys) {
    CHECK(write(terminal_.get(), keys.data(), keys.size()) == static_cast<ssize_t>(keys.size()));
  }
  // What it writes from now on, up to `text`; all there is when it ends or takes too long.
  std::string read_until(const std::string& text) {
    constexpr int kPatienceMs = 60'000;
    std::string seen;
    pollfd wait{terminal_.get(), POLLIN, 0};
    while (seen.find(text) == std::string::npos && poll(&wait, 1, kPatienceMs) == 1) {
      char bytes[4096];
      const ssize_t count = read(terminal_.get(), bytes, sizeof bytes);
      if (count <= 0) break;
      seen.append(bytes, static_cast<size_t>(count));
    }
    return seen;
  }
  // Its next change: waitpid's status of a stop or an end.
  int changed() {
    int status = 0;
    waitpid(pid_, &status, WUNTRACED);
    if (!WIFSTOPPED(status)) pid_ = -1;
    return status;
  }

 private:
  [[noreturn]] static void become(const Command& command, const char* term) {
    for (const auto& [name, value] : command.env) setenv(name.c_str(), value.c_str(), 1);
    setenv("TERM", term, 1);
    const bool there = command.directory.empty() || chdir(command.directory.c_str()) == 0;
    std::vector<char*> argv;
    for (const std::string& word : command.argv) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    if (there) execv(argv[0], argv.data());
    _exit(127);
  }

  pid_t pid_ = -1;
  Fd terminal_;
};

}  // namespace dtrain::tests
