#include "schema/beneath.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>

#include "schema/quote.h"

namespace dtrain {
namespace {

template <class Enter>
Result<Fd> walk(int root, std::string_view path, const Enter& enter) {
  Fd current(::openat(root, ".", kOpenDirectory));   // with a place of its own where it is read
  for (size_t start = 0; current && !path.empty() && start <= path.size();) {
    const size_t end = std::min(path.find('/', start), path.size());
    current = Fd(enter(current.get(), std::string(path.substr(start, end - start))));
    start = end + 1;
  }
  if (current) return current;
  const int failed = errno;
  Error error = errno_error(fmt::format("open directory {}", in_quotes(path)), failed);
  if (failed == ENOTDIR || failed == ELOOP) error.code = Code::NotFound;
  return error;
}

int open_directory(int at, const std::string& name) { return ::openat(at, name.c_str(), kOpenDirectory); }

}  // namespace

std::string_view parent_path(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? std::string_view() : path.substr(0, slash);
}

const char* base_name(const std::string& path) {
  const size_t slash = path.rfind('/');
  return path.c_str() + (slash == std::string::npos ? 0 : slash + 1);
}

Result<Fd> open_below(int root, std::string_view path) { return walk(root, path, open_directory); }

Result<Fd> make_below(int root, std::string_view path) {
  return walk(root, path, [](int at, const std::string& name) {
    const int found = open_directory(at, name);
    if (found >= 0 || errno != ENOENT) return found;
    if (::mkdirat(at, name.c_str(), 0777) != 0 && errno != EEXIST) return -1;
    return open_directory(at, name);
  });
}

}  // namespace dtrain
