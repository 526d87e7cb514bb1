#include "schema/resume.h"

#include "schema/engine_read.h"

namespace dtrain {

std::string resumed_path(const Spec& member) {
  std::string path;
  if (member.framework == Framework::Engine) {
    if (const auto engine = engine_spec_of(member); engine.ok()) path = engine->checkpoint_from;
  } else if (const auto found = member.env.find(kResumeVariable); found != member.env.end()) {
    path = found->second;
  }
  return path.starts_with('/') ? path : std::string();
}

}  // namespace dtrain
