#include "schema/resume.h"

#include "schema/engine_read.h"

namespace dtrain {

const char* resume_variable(const Spec& member) {
  if (member.framework == Framework::Engine) return nullptr;
  for (const char* variable : {kResumeVariable, kAfterVariable}) {
    if (member.env.contains(variable)) return variable;
  }
  return nullptr;
}

std::string resumed_path(const Spec& member) {
  std::string path;
  if (member.framework == Framework::Engine) {
    if (const auto engine = engine_spec_of(member); engine.ok()) path = engine->checkpoint_from;
  } else if (const char* const variable = resume_variable(member)) {
    path = member.env.at(variable);
  }
  return path.starts_with('/') ? path : std::string();
}

}  // namespace dtrain
