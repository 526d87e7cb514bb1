// Our programs are one file each, to be copied to other hosts: what they need of a C library there.
#include <doctest/doctest.h>
#include <gnu/libc-version.h>

#include <algorithm>
#include <string>

#include "tests/support/project.h"
#include "tests/support/sanitized.h"
#include "tests/support/skipped.h"

namespace dtrain {
namespace {

// Of the versions that it names, as "GLIBC_2.34", the last: 34.
int newest_libc(const std::string& program) {
  const std::string name = "GLIBC_2.";
  int newest = 0;
  for (size_t at = program.find(name); at != std::string::npos; at = program.find(name, at + 1)) {
    newest = std::max(newest, std::atoi(program.c_str() + at + name.size()));
  }
  return newest;
}

TEST_CASE("dtrain and dtrain-engine run where the C library is of 2021") {
  const std::string here = ::gnu_get_libc_version();
  if (tests::kSanitized || here != "2.36") {
    tests::say_skipped(tests::kSanitized ? "sanitizers are not linked statically" : "it is about glibc 2.36, and this is " + here);
    return;
  }
  for (const char* program : {"dtrain", "dtrain-engine"}) {
    CAPTURE(std::string(program));
    const int newest = newest_libc(test::read_file(std::string(BIN_DIR "/") + program));
    CHECK(newest > 0);
    CHECK(newest <= 34);
  }
}

}  // namespace
}  // namespace dtrain
