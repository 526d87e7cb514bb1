// What drawing depends on besides the facts, so that it is a pure function of both.
#pragma once

#include <cstdint>

#include "cli/terminal.h"

namespace dtrain::cli {

struct View {
  Screen screen;
  uint64_t now_unix_ms = 0;
  bool long_form = false;  // -l
  bool users = false;      // -u
};

// Standard output's screen, now.
View view_of_stdout(bool long_form = false);

}  // namespace dtrain::cli
