// What a case leaves out on this machine, said where tests/run.sh finds it. Nothing is skipped
// silently.
#pragma once

#include <doctest/doctest.h>

#include <cstdio>
#include <string>

namespace dtrain::tests {

// The whole case: say it first and return.
inline void say_skipped(const std::string& reason) {
  const char* name = doctest::getContextOptions()->currentTest->m_name;
  std::printf("skipped: %s: %s\n", name, reason.c_str());
  std::fflush(stdout);
}

// A part of it; the case goes on and counts by how it ends.
inline void say_left_out(const std::string& part) {
  const char* name = doctest::getContextOptions()->currentTest->m_name;
  std::printf("left out: %s: %s\n", name, part.c_str());
  std::fflush(stdout);
}

}  // namespace dtrain::tests
