#include "engine/strategies/assemble.h"

#include "engine/comm/hash.h"
#include "engine/comm/rendezvous.h"

namespace dtrain::engine {

namespace {

uint64_t layout_hash(const Layout& layout) {
  std::string text;
  for (const Parameter& parameter : layout.parameters()) {
    text += fmt::format("{}[{}] ", parameter.name, fmt::join(parameter.shape, ","));
  }
  return hash_of(text);
}

}  // namespace

Result<std::unique_ptr<Gang>> assemble(const RunPlan& plan) {
  const Attendance own{.place = plan.place,
                       .threads = plan.threads,
                       .layout_hash = layout_hash(plan.layout),
                       .spec_hash = hash_of(to_json(plan.spec))};
  return meet(own, Deadline::after(plan.spec.deadline_seconds));
}

}  // namespace dtrain::engine
