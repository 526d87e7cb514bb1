#include "cli/turn_words.h"

#include <fmt/format.h>

namespace dtrain::cli {

void declare_turn(Options& options, TurnWords& words) {
  options.number("--priority", words.priority, "0 to 100, higher starts first (default 50)");
  options.flag("--preemptible", words.preemptible, "gives its place to what waits and has a higher priority, and goes on later");
  options.flag("--suspended", words.suspended, "let it wait until dtrain resume");
}

Status put_turn(const TurnWords& words, Spec& spec) {
  constexpr uint64_t kPriorityMax = 100;
  if (words.priority != TurnWords::kUnset) {
    if (words.priority > kPriorityMax) {
      return Error{Code::InvalidArgument, fmt::format("priority {} is out of range", words.priority),
                   "0 to 100, higher starts first; 50 when left out"};
    }
    spec.priority = static_cast<int>(words.priority);
  }
  if (words.preemptible) spec.preemptible = true;
  if (words.suspended) spec.suspend = true;
  return ok();
}

}  // namespace dtrain::cli
