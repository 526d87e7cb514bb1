#pragma once

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <unistd.h>

#include "schema/fd.h"

namespace dtrain::test {

// This process can open `left` more while this lives; and where none is left, nor in place of one that it closes.
class FewDescriptors {
 public:
  explicit FewDescriptors(rlim_t left = 0) {
    REQUIRE(getrlimit(RLIMIT_NOFILE, &before_) == 0);
    const Fd next(::dup(0));
    REQUIRE(next);
    const rlim_t most = left == 0 ? STDERR_FILENO + 1 : static_cast<rlim_t>(next.get()) + left;
    const rlimit few{most, before_.rlim_max};
    REQUIRE(setrlimit(RLIMIT_NOFILE, &few) == 0);
  }
  ~FewDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }
  FewDescriptors(const FewDescriptors&) = delete;
  FewDescriptors& operator=(const FewDescriptors&) = delete;

 private:
  rlimit before_{};
};

}  // namespace dtrain::test
