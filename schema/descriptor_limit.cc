#include "schema/descriptor_limit.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <string>
#include <vector>

#include "schema/fd.h"

namespace dtrain {
namespace {

constexpr const char* kVariable = "DTRAIN_NOFILE";

rlim_t came_with = 0;  // 0: not raised

}  // namespace

void raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const char* told = std::getenv(kVariable);
  const rlim_t before = told == nullptr ? 0 : std::strtoull(told, nullptr, 10);
  came_with = before == 0 ? limit.rlim_cur : std::min(before, limit.rlim_max);
  setenv(kVariable, std::to_string(came_with).c_str(), 1);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

void restore_descriptor_limit() {
  rlimit limit{};
  if (came_with == 0 || getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = came_with;
  setrlimit(RLIMIT_NOFILE, &limit);
}

size_t descriptor_limit() {
  rlimit limit{};
  return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : 1024;
}

Status check_descriptors_left(size_t count) {
  std::vector<Fd> opened;
  while (opened.size() < count) {
    opened.emplace_back(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    if (!opened.back()) return errno_error(fmt::format("open {} descriptors, to begin with", count), errno);
  }
  return ok();
}

}  // namespace dtrain
