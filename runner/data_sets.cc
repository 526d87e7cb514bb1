#include "runner/data_sets.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <system_error>

#include "runner/file_server.h"
#include "schema/quote.h"

namespace dtrain::runner {
namespace fs = std::filesystem;
namespace {

// Empty: it is there and can be read.
std::string trouble_with(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) {
    if (errno != ENOENT && errno != ENOTDIR) {
      return fmt::format("can't be read: {}", std::strerror(errno));
    }
    return ::lstat(path.c_str(), &info) == 0 ? "is a link to nothing" : "is not there";
  }
  if (!S_ISDIR(info.st_mode) && !S_ISREG(info.st_mode)) return "is neither a directory nor a file";
  const int wanted = S_ISDIR(info.st_mode) ? R_OK | X_OK : R_OK;
  if (::faccessat(AT_FDCWD, path.c_str(), wanted, AT_EACCESS) == 0) return "";
  return fmt::format("can't be read: {}", std::strerror(errno));
}

bool is_empty_directory(const std::string& path) {
  std::error_code error;
  if (fs::symlink_status(path, error).type() != fs::file_type::directory || error) return false;
  return fs::directory_iterator(path, error) == fs::directory_iterator() && !error;
}

Status link_data(const Spec& spec, const fs::path& links) {
  std::error_code error;
  fs::create_directories(links, error);
  if (error) return errno_error("make " + links.string(), error.value());
  for (const auto& [name, path] : spec.data) {
    fs::create_symlink(path, links / name, error);
    if (error) return errno_error("link " + (links / name).string(), error.value());
  }
  return ok();
}

}  // namespace

std::string lacking_data(const Spec& spec, std::chrono::milliseconds patience) {
  std::string text;
  for (const auto& [name, path] : spec.data) {
    const std::string trouble = looked_at_within(patience, path, [path = path] { return trouble_with(path); });
    if (trouble.empty()) continue;
    text += fmt::format("{}data {}: {} {}", text.empty() ? "" : ", ", name, path, trouble);
  }
  return as_utf8(text);
}

Result<DataPlace> place_data(const Spec& spec, const std::string& mount_point,
                             const fs::path& links) {
  DataPlace place;
  if (spec.data.empty()) return place;
  if (is_empty_directory(mount_point)) {
    DataMount mount{mount_point, {}};
    for (const auto& [name, path] : spec.data) mount.sets.push_back({name, path});
    if (const Status tried = try_data_mount(mount); tried.ok()) {
      return DataPlace{mount_point, std::move(mount)};
    } else if (::geteuid() == 0) {
      fmt::print(stderr, "data sets are links, not mounts: {}\n", tried.error().message);
    }
  }
  TRY(link_data(spec, links));
  place.directory = links.string();
  return place;
}

}  // namespace dtrain::runner
