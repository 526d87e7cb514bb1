#include "cli/ask.h"

#include <unistd.h>

#include <cctype>
#include <cstdio>
#include <iostream>

#include "cli/terminal.h"

namespace dtrain::cli {

Result<bool> ask(const std::string& question, Error refusal) {
  if (isatty(STDIN_FILENO) != 1 || isatty(STDERR_FILENO) != 1) return refusal;
  std::fprintf(stderr, "%s ", folded(question + " [y/N]", screen_of(STDERR_FILENO).width).c_str());
  std::string answer;
  std::getline(std::cin, answer);
  for (char& c : answer) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return answer == "y" || answer == "yes";
}

}  // namespace dtrain::cli
