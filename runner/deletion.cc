#include "runner/deletion.h"

#include <fmt/format.h>

#include <cstdio>
#include <system_error>

namespace dtrain::runner {
namespace fs = std::filesystem;

bool delete_deeply(const fs::path& path, const std::atomic<bool>& stop) {
  std::error_code error;
  if (fs::symlink_status(path, error).type() == fs::file_type::directory) {
    fs::permissions(path, fs::perms::owner_all, fs::perm_options::add, error);
    fs::directory_iterator at(path, error);
    for (; !error && at != fs::directory_iterator(); at.increment(error)) {
      if (stop || !delete_deeply(at->path(), stop)) return false;
    }
  }
  error.clear();
  if (!fs::remove(path, error) && error) fmt::print(stderr, "removing {}: {}\n", path.string(), error.message());
  return true;
}

}  // namespace dtrain::runner
