#include "cli/ask.h"

#include <unistd.h>

#include <cstdio>
#include <iostream>
#include <utility>

namespace dtrain::cli {

Result<bool> ask(const std::string& question, Error refusal) {
  if (isatty(STDIN_FILENO) != 1 || isatty(STDERR_FILENO) != 1) return refusal;
  std::fprintf(stderr, "%s [y/N] ", question.c_str());
  std::string answer;
  std::getline(std::cin, answer);
  return answer == "y" || answer == "Y" || answer == "yes";
}

}  // namespace dtrain::cli
