#include "schema/result.h"

#include <cerrno>
#include <cstdio>
#include <system_error>

namespace dtrain {

namespace {

Code code_of_errno(int errno_value) {
  switch (errno_value) {
    case ENOENT: return Code::NotFound;
    case EEXIST: return Code::AlreadyExists;
    case EACCES:
    case EPERM: return Code::PermissionDenied;
    case ENOSPC:
    case EDQUOT:
    case EMFILE:
    case ENFILE:
    case ENOMEM: return Code::ResourceExhausted;
    default: return Code::Internal;
  }
}

std::string hint_of_errno(int errno_value) {
  switch (errno_value) {
    case ENOSPC:
    case EDQUOT: return "free some disk space";
    case EFBIG: return "raise the limit of a file's size (ulimit -f)";
    case EMFILE:
    case ENFILE: return "raise the limit of open files (ulimit -n)";
    default: return "";
  }
}

}  // namespace

Error errno_error(std::string_view what, int errno_value) {
  return {code_of_errno(errno_value),
          fmt::format("{}: {}", what, std::generic_category().message(errno_value)),
          hint_of_errno(errno_value)};
}

void invariant_failed(const char* condition, const char* why, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: broken invariant: %s (%s)\n", file, line, why, condition);
  std::abort();
}

}  // namespace dtrain
