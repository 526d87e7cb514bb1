#include "runner/program_path.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

namespace dtrain::runner {

namespace {

bool exists(const std::string& path) {
  struct stat status = {};
  return ::stat(path.c_str(), &status) == 0;
}

std::string seen_from(const std::string& cwd, const std::string& path) {
  return cwd.empty() || path.starts_with('/') ? path : cwd + "/" + path;
}

}  // namespace

bool is_program(const std::string& path) {
  struct stat status = {};
  return ::stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) && ::access(path.c_str(), X_OK) == 0;
}

std::vector<std::string> program_places(const std::string& name, const std::string& path) {
  if (name.find('/') != std::string::npos) return {name};
  std::vector<std::string> places;
  for (size_t at = 0; at <= path.size();) {
    const size_t end = std::min(path.find(':', at), path.size());
    places.push_back((at == end ? "." : path.substr(at, end - at)) + "/" + name);
    at = end + 1;
  }
  return places;
}

Result<std::string> find_program(const std::string& name, const std::string& path, const std::string& cwd) {
  if (name.find('/') != std::string::npos) return seen_from(cwd, name);
  std::string refused;
  for (const std::string& place : program_places(name, path)) {
    const std::string candidate = seen_from(cwd, place);
    if (is_program(candidate)) return candidate;
    if (refused.empty() && exists(candidate)) refused = candidate;
  }
  if (refused.empty()) return command_not_found(name, path);
  return Error{Code::PermissionDenied, fmt::format("{} is not executable", refused), fmt::format("chmod +x {}", refused)};
}

Error command_not_found(const std::string& name, const std::string& path) {
  return {Code::NotFound, fmt::format("{}: command not found", name), fmt::format("PATH is {}", path)};
}

}  // namespace dtrain::runner
