#include "cli/last_words.h"

#include <unistd.h>

#include <atomic>

#include "schema/result.h"

namespace dtrain::cli {

namespace {

std::atomic<bool> is_one_there = false, is_in_a_line = false;   // of the terminal, behind its ^C
std::atomic<const std::string*> last_words = nullptr;

void write_to_stderr(const char* bytes, size_t size) { [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, bytes, size); }

// Ends as if there had been no handler; the first process of a container is not ended by a signal that it doesn't handle.
[[noreturn]] void say_and_end(int number) {
  if (is_in_a_line) write_to_stderr("\n", 1);
  if (const std::string* const words = last_words; words != nullptr) write_to_stderr(words->data(), words->size());
  ::signal(number, SIG_DFL);
  sigset_t only{};
  ::sigemptyset(&only);
  ::sigaddset(&only, number);
  ::sigprocmask(SIG_UNBLOCK, &only, nullptr);
  ::raise(number);
  ::_exit(128 + number);
}

}  // namespace

LastWords::LastWords() {
  INVARIANT(!is_one_there.exchange(true), "one LastWords at a time");
  is_in_a_line = ::isatty(STDERR_FILENO) == 1;
  struct sigaction action {};
  action.sa_handler = say_and_end;
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGINT, &action, &before_);
  if (before_.sa_handler == SIG_IGN) ::sigaction(SIGINT, &before_, nullptr);
}

LastWords::~LastWords() {
  ::sigaction(SIGINT, &before_, nullptr);
  last_words = nullptr;
  is_one_there = false;
}

void LastWords::become(const std::string& sentence) { last_words = &sentence; }

}  // namespace dtrain::cli
