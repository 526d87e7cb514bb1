#pragma once

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <unistd.h>

#include "schema/fd.h"

namespace dtrain::test {

// This process can open nothing more while this lives.
class NoDescriptors {
 public:
  NoDescriptors() {
    REQUIRE(getrlimit(RLIMIT_NOFILE, &before_) == 0);
    const Fd next(::dup(0));
    REQUIRE(next);
    const rlimit none{static_cast<rlim_t>(next.get()), before_.rlim_max};
    REQUIRE(setrlimit(RLIMIT_NOFILE, &none) == 0);
  }
  ~NoDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }
  NoDescriptors(const NoDescriptors&) = delete;
  NoDescriptors& operator=(const NoDescriptors&) = delete;

 private:
  rlimit before_{};
};

}  // namespace dtrain::test
