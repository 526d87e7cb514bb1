#include "cli/host_names.h"

#include <fmt/format.h>

namespace dtrain::cli {

void HostNames::add(const std::string& name, const std::string& id) {
  if (!id.empty()) ids_[name].insert(id);
}

std::string HostNames::shown(const std::string& name, const std::string& id) const {
  const auto same = ids_.find(name);
  if (id.empty() || same == ids_.end() || same->second.size() < 2) return name;
  return fmt::format("{} ({})", name, id.substr(0, kHostIdDigits));
}

}  // namespace dtrain::cli
