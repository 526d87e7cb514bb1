#include "cli/active_python.h"

namespace dtrain::cli {

std::string active_python(const Spec& spec, const UserEnv& variables) {
  if (spec.python != Spec{}.python || spec.framework == Framework::Engine || !spec.image.empty()) return "";
  for (const char* name : kPythonVariables) {
    if (const auto found = variables.find(name); found != variables.end()) return found->second;
  }
  return "";
}

}  // namespace dtrain::cli
