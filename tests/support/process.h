// Runs a program as a person would: arguments, a directory, an environment, and its two outputs.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace dtrain::tests {

inline constexpr std::chrono::seconds kPatience{60};

struct Command {
  std::vector<std::string> argv;
  std::filesystem::path directory;
  // Replaces variables of this process's environment; an empty value removes one.
  std::map<std::string, std::string> env;
  std::string netns;  // a network namespace's file; empty: ours
};

struct Output {
  int code = 0;  // 128+signal when a signal ended it
  std::string out;
  std::string err;
  std::string all() const { return out + err; }
};

inline bool says(const Output& output, const std::string& text) {
  return output.all().find(text) != std::string::npos;
}

// A child process with its outputs in pipes. Owner: the test, on its one thread.
// Promises: the destructor kills the child if it still runs and reaps it; nothing waits past its
// deadline: a child that takes longer is killed and the test fails with what it printed.
class Process {
 public:
  explicit Process(const Command& command);
  ~Process();
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  pid_t pid() const { return pid_; }
  // Reads both outputs until either holds `text`. Fails the test at the deadline or at the end.
  void wait_for(const std::string& text, std::chrono::milliseconds patience = kPatience);
  // The same of what comes from now on: what was read until now doesn't count.
  void wait_for_next(const std::string& text, std::chrono::milliseconds patience = kPatience);
  void signal(int number) const;
  Output wait(std::chrono::milliseconds patience = kPatience);
  bool is_running();
  const std::string& out() const { return out_; }
  const std::string& err() const { return err_; }

 private:
  bool read_some(std::chrono::steady_clock::time_point deadline);  // false: nothing more will come
  void reap();
  void wait_for(const std::string& text, size_t out_from, size_t err_from, std::chrono::milliseconds patience);
  [[noreturn]] void give_up(const std::string& why);

  std::string shown_;  // the command line, for messages
  pid_t pid_ = -1;
  int pidfd_ = -1;
  int out_fd_ = -1;
  int err_fd_ = -1;
  int code_ = 0;
  std::string out_;
  std::string err_;
};

Output run(const Command& command, std::chrono::milliseconds patience = kPatience);

}  // namespace dtrain::tests
