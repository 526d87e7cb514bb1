#include "schema/mounts.h"

#include <fmt/format.h>

namespace dtrain {
namespace {

bool is_place(std::string_view path) {
  if (!path.starts_with('/') || path.size() > 4095 || path.find('\0') != std::string_view::npos) return false;
  for (const std::string_view part : {"/../", "/./", "//"}) {
    if ((std::string(path) + "/").find(part) != std::string::npos) return false;
  }
  return true;
}

bool hides_needed(std::string_view path) {
  for (const std::string_view needed : {"/proc", "/sys", "/dev", "/.dtrain"}) {
    if (path == needed || (needed != "/dev" && path.starts_with(std::string(needed) + "/"))) return true;
  }
  return path == "/";
}

}  // namespace

std::optional<HostMount> parse_mount(std::string_view text) {
  HostMount mount;
  for (const std::string_view ending : {":ro", ":rw"}) {
    if (!text.ends_with(ending)) continue;
    mount.read_only = ending == ":ro";
    text.remove_suffix(ending.size());
    break;
  }
  const size_t colon = text.find(':');
  mount.source = text.substr(0, colon);
  mount.path = colon == std::string_view::npos ? mount.source : std::string(text.substr(colon + 1));
  for (std::string* path : {&mount.source, &mount.path}) {
    if (path->size() > 1 && path->ends_with('/')) path->pop_back();
  }
  const bool is_fine = is_place(mount.source) && is_place(mount.path) && mount.path.find(':') == std::string::npos;
  return is_fine && !hides_needed(mount.path) ? std::optional(mount) : std::nullopt;
}

std::string to_string(const HostMount& mount) {
  return fmt::format("{}:{}{}", mount.source, mount.path, mount.read_only ? ":ro" : "");
}

}  // namespace dtrain
