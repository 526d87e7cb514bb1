#include "runner/output_names.h"

#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "schema/ignore_pattern.h"

namespace dtrain::runner {

namespace fs = std::filesystem;

namespace {

bool has_wildcards(const std::string& text) { return text.find_first_of("*?[") != std::string::npos; }

bool is_there(const fs::path& path) {
  struct stat st {};
  return ::lstat(path.c_str(), &st) == 0 || (errno != ENOENT && errno != ENOTDIR);
}

bool is_hidden(const std::string& name) { return name.starts_with('.'); }

// body(entry, name) of each in a directory; where there is none, of nothing.
template <typename Body>
Status for_each_in(const fs::path& directory, const Body& body) {
  std::error_code failed;
  fs::directory_iterator entries(directory, failed);
  for (; !failed && entries != fs::directory_iterator(); entries.increment(failed)) {
    TRY(body(*entries, entries->path().filename().string()));
  }
  const bool none = failed == std::errc::no_such_file_or_directory || failed == std::errc::not_a_directory;
  if (failed && !none) return errno_error("look into " + directory.native(), failed.value());
  return ok();
}

Status add_directories(const fs::path& directory, const fs::path& inner, std::vector<fs::path>& found) {
  found.push_back(inner);
  return for_each_in(directory / inner, [&](const fs::directory_entry& entry, const std::string& name) -> Status {
    std::error_code failed;
    if (is_hidden(name) || !fs::is_directory(entry.symlink_status(failed))) return ok();
    return add_directories(directory, inner / name, found);
  });
}

Status add_matching(const fs::path& directory, const fs::path& inner, const std::string& glob,
                    std::vector<fs::path>& found) {
  return for_each_in(directory / inner, [&](const fs::directory_entry&, const std::string& name) -> Status {
    if ((is_hidden(glob) || !is_hidden(name)) && glob_matches(glob, name)) found.push_back(inner / name);
    return ok();
  });
}

}  // namespace

Result<std::vector<std::string>> named_outputs(const fs::path& directory, const std::string& entry) {
  fs::path path = fs::path(entry).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();  // "ckpt/"
  std::vector<fs::path> found{{}};
  if (is_there(directory / path)) {
    found = {path};
  } else {
    for (const fs::path& part : path) {
      std::vector<fs::path> next;
      for (const fs::path& inner : found) {
        if (part == "**") {
          TRY(add_directories(directory, inner, next));
        } else if (has_wildcards(part)) {
          TRY(add_matching(directory, inner, part, next));
        } else if (is_there(directory / inner / part)) {
          next.push_back(inner / part);
        }
      }
      found = std::move(next);
    }
  }
  std::vector<std::string> names;
  for (const fs::path& each : found) {
    if (!each.empty()) names.push_back(each.string());
  }
  std::ranges::sort(names);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

}  // namespace dtrain::runner
