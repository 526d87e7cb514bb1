// A training program that does what it is told, step by step:
//
//   fake_trainer --print ready --ignore 15 --fork --setsid --hang --then --exit 3
//
//   --exit N              ends with that code (0 when the steps run out)
//   --raise N             ends itself by a signal
//   --hang                waits for signals for ever
//   --end-first-thread    another thread does the rest
//   --ignore N            ignores a signal
//   --exit-on N CODE      ends with CODE when the signal comes
//   --print TEXT          one line
//   --print-on N TEXT     one line when the signal comes, and goes on
//   --print-env NAME      its value, or "unset"
//   --print-cwd           where it runs
//   --lines N             N lines of 100 bytes, numbered, in large writes
//   --slow-lines N        the same, a write a line
//   --one-line N          one line of N bytes
//   --garbage N           N bytes of noise, every byte value, no structure
//   --close-output        closes 1 and 2
//   --fork STEPS --then   a child does STEPS, the parent goes on after --then
//   --orphan STEPS --then the same, but forked twice: nobody waits for the one that does STEPS
//   --setsid              a session of its own
//   --clear-env           runs itself anew with nothing in its environment
//   --eat N               touches N bytes of memory
//   --stop                stops itself, as by Ctrl-Z
//   --open-fifo PATH      waits until someone opens the other end for writing
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace {

using Steps = std::vector<std::string>;

int exit_code_on_signal = 0;
std::string printed_on_signal;
std::vector<std::string> eaten;

void write_all(const std::string& bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got = ::write(1, bytes.data() + done, bytes.size() - done);
    if (got < 0) ::_exit(98);
    done += static_cast<size_t>(got);
  }
}

std::string numbered_line(uint64_t number) {
  char text[128];
  std::snprintf(text, sizeof text, "line %010llu ", static_cast<unsigned long long>(number));
  std::string line = text;
  line.resize(99, 'x');
  return line + "\n";
}

void print_lines(uint64_t count, size_t lines_a_write) {
  std::string batch;
  for (uint64_t i = 0; i < count; ++i) {
    batch += numbered_line(i);
    if (batch.size() < lines_a_write * 100 && i + 1 < count) continue;
    write_all(batch);
    batch.clear();
  }
}

void print_garbage(uint64_t count) {
  std::string bytes(count, '\0');
  uint64_t state = 88172645463325252ULL;
  for (char& byte : bytes) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    byte = static_cast<char>(state);
  }
  write_all(bytes);
}

void run(const std::string& self, Steps steps);

// The steps up to the matching --then run in the child; the parent keeps what comes after.
void fork_steps(const std::string& self, Steps& steps, bool orphan) {
  int depth = 1;
  auto end = steps.begin();
  for (; end != steps.end(); ++end) {
    if (*end == "--fork" || *end == "--orphan") ++depth;
    if (*end == "--then" && --depth == 0) break;
  }
  const Steps inner(steps.begin(), end);
  steps.erase(steps.begin(), end == steps.end() ? end : end + 1);
  const pid_t pid = ::fork();
  if (pid != 0) {
    if (orphan) ::waitpid(pid, nullptr, 0);
    return;
  }
  // Who counts them when the first line comes is not to find the one in between.
  const pid_t between = ::getpid();
  const int gone = orphan ? static_cast<int>(::syscall(SYS_pidfd_open, between, 0)) : -1;
  if (orphan && ::fork() != 0) ::_exit(0);
  pollfd ended{gone, POLLIN, 0};
  if (gone >= 0) (void)::poll(&ended, 1, -1);
  if (gone >= 0) ::close(gone);
  run(self, inner);
  ::_exit(0);
}

void clear_environment(const std::string& self, const Steps& steps) {
  std::vector<char*> argv{const_cast<char*>(self.c_str())};
  for (const std::string& step : steps) argv.push_back(const_cast<char*>(step.c_str()));
  argv.push_back(nullptr);
  char* nothing[] = {nullptr};
  ::execve("/proc/self/exe", argv.data(), nothing);
  ::_exit(99);
}

bool first_thread_has_ended() {
  char text[512] = "";
  const int fd = ::open("/proc/self/stat", O_RDONLY);
  (void)!::read(fd, text, sizeof text - 1);
  ::close(fd);
  const char* const name_end = std::strrchr(text, ')');
  return name_end != nullptr && name_end[2] == 'Z';
}

void run(const std::string& self, Steps steps) {
  const auto word = [&] {
    if (steps.empty()) ::_exit(97);
    std::string first = steps.front();
    steps.erase(steps.begin());
    return first;
  };
  const auto number = [&] { return std::strtoull(word().c_str(), nullptr, 10); };
  const std::map<std::string, std::function<void()>> actions = {
      {"--exit", [&] { ::_exit(static_cast<int>(number())); }},
      {"--raise",
       [&] {
         const int signal = static_cast<int>(number());
         ::signal(signal, SIG_DFL);   // a sanitizer's own handler would turn it into an exit
         ::raise(signal);
       }},
      {"--hang",
       [] {
         for (;;) ::pause();
       }},
      {"--end-first-thread",
       [&] {
         std::thread([self, rest = std::exchange(steps, {})] {
           while (!first_thread_has_ended()) ::sched_yield();
           run(self, rest);
           ::_exit(0);
         }).detach();
         ::syscall(SYS_exit, 0);   // of this thread alone
       }},
      {"--ignore", [&] { std::signal(static_cast<int>(number()), SIG_IGN); }},
      {"--exit-on",
       [&] {
         const int signal = static_cast<int>(number());
         exit_code_on_signal = static_cast<int>(number());
         std::signal(signal, [](int) { ::_exit(exit_code_on_signal); });
       }},
      {"--print-on",
       [&] {
         const int signal = static_cast<int>(number());
         printed_on_signal = word() + "\n";
         std::signal(signal, [](int) { write_all(printed_on_signal); });
       }},
      {"--print", [&] { write_all(word() + "\n"); }},
      {"--print-env",
       [&] {
         const char* value = std::getenv(word().c_str());
         write_all(std::string(value != nullptr ? value : "unset") + "\n");
       }},
      {"--print-cwd",
       [] {
         char path[4096] = "";
         write_all(std::string(::getcwd(path, sizeof path)) + "\n");
       }},
      {"--lines", [&] { print_lines(number(), 1000); }},
      {"--slow-lines", [&] { print_lines(number(), 1); }},
      {"--one-line", [&] { write_all(std::string(number() - 1, 'y') + "\n"); }},
      {"--garbage", [&] { print_garbage(number()); }},
      {"--close-output",
       [] {
         ::close(1);
         ::close(2);
       }},
      {"--fork", [&] { fork_steps(self, steps, false); }},
      {"--orphan", [&] { fork_steps(self, steps, true); }},
      {"--setsid", [] { ::setsid(); }},
      {"--clear-env", [&] { clear_environment(self, steps); }},
      {"--eat", [&] { eaten.emplace_back(number(), 'z'); }},
      {"--stop", [] { ::raise(SIGSTOP); }},
      {"--open-fifo", [&] { ::close(::open(word().c_str(), O_RDONLY)); }},
  };
  while (!steps.empty()) {
    const auto action = actions.find(word());
    if (action == actions.end()) ::_exit(96);
    action->second();
  }
}

}  // namespace

int main(int argc, char** argv) {
  run(argv[0], Steps(argv + 1, argv + argc));
  return 0;
}
