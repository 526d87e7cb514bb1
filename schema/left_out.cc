#include "schema/left_out.h"

#include <fmt/format.h>

namespace dtrain {

std::string left_out_note(const Spec& spec) {
  if (spec.image.empty()) return "";
  return fmt::format("Note: no container is started from {}: the commands run on the hosts",
                     spec.image);
}

}  // namespace dtrain
