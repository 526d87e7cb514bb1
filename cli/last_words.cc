#include "cli/last_words.h"

#include <sys/uio.h>
#include <unistd.h>

#include <cstring>

namespace dtrain::cli {

namespace {

const char* volatile last_words = nullptr;
volatile bool is_in_a_line = false;   // of the terminal, behind its ^C

void say_and_end(int number) {
  const char* const words = last_words;
  const auto part = [](const char* text) { return iovec{const_cast<char*>(text), std::strlen(text)}; };
  const iovec parts[] = {part(is_in_a_line ? "\n" : ""), part("dtrain: "), part(words), part("\n")};
  [[maybe_unused]] const ssize_t written = ::writev(STDERR_FILENO, parts, 4);
  // The handler was for once: it ends as if there had been none.
  ::raise(number);
}

}  // namespace

LastWords::LastWords(const char* words) {
  last_words = words;
  is_in_a_line = ::isatty(STDERR_FILENO) == 1;
  struct sigaction action {};
  action.sa_handler = say_and_end;
  action.sa_flags = SA_RESTART | static_cast<int>(SA_RESETHAND);
  ::sigaction(SIGINT, &action, &before_);
  if (before_.sa_handler == SIG_IGN) ::sigaction(SIGINT, &before_, nullptr);
}

LastWords::~LastWords() { ::sigaction(SIGINT, &before_, nullptr); }

void LastWords::become(const char* words) { last_words = words; }

}  // namespace dtrain::cli
