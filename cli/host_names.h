// What people are shown a host as: its name, and where others have that name the beginning of its ID. Pure.
#pragma once

#include <map>
#include <set>
#include <string>

namespace dtrain::cli {

// So many digits of an ID are shown, and are enough to name a host.
inline constexpr size_t kHostIdDigits = 8;

class HostNames {
 public:
  void add(const std::string& name, const std::string& id);
  // "gpu-1", or "gpu-1 (3f2a9c01)".
  std::string shown(const std::string& name, const std::string& id) const;

 private:
  std::map<std::string, std::set<std::string>> ids_;   // by name
};

}  // namespace dtrain::cli
