#include "schema/process_limits.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <string>
#include <vector>

#include "schema/fd.h"

namespace dtrain {
namespace {

struct Raised {
  int resource;
  const char* variable;
  rlim_t came_with = 0;  // 0: not raised
};

Raised raised[] = {{RLIMIT_NOFILE, "DTRAIN_NOFILE"}, {RLIMIT_FSIZE, "DTRAIN_RLIMIT_FSIZE"}, {RLIMIT_CPU, "DTRAIN_RLIMIT_CPU"}};

}  // namespace

void raise_own_limits() {
  for (Raised& each : raised) {
    rlimit limit{};
    if (getrlimit(each.resource, &limit) != 0) continue;
    const char* told = std::getenv(each.variable);
    const rlim_t before = told == nullptr ? 0 : std::strtoull(told, nullptr, 10);
    each.came_with = before == 0 ? limit.rlim_cur : std::min(before, limit.rlim_max);
    setenv(each.variable, std::to_string(each.came_with).c_str(), 1);
    limit.rlim_cur = limit.rlim_max;
    setrlimit(each.resource, &limit);
  }
  std::signal(SIGXFSZ, SIG_IGN);
}

void restore_limits() {
  for (const Raised& each : raised) {
    rlimit limit{};
    if (each.came_with == 0 || getrlimit(each.resource, &limit) != 0) continue;
    limit.rlim_cur = each.came_with;
    setrlimit(each.resource, &limit);
  }
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
