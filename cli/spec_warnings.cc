#include "cli/spec_warnings.h"

#include "cli/idle_keys.h"
#include "cli/list_values.h"
#include "cli/same_members.h"
#include "cli/shell_values.h"

namespace dtrain::cli {

std::vector<std::string> spec_warnings(const Spec& spec) {
  std::vector<std::string> all{shell_value_warning(spec), list_value_warning(spec), same_members_warning(spec)};
  std::erase(all, "");
  const std::vector<std::string> idle = idle_keys_warnings(spec);
  all.insert(all.end(), idle.begin(), idle.end());
  return all;
}

}  // namespace dtrain::cli
