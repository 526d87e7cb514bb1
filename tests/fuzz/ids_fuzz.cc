// Any bytes as an ID: refused, or written back exactly as they were read.
#include <cstdint>
#include <string_view>

#include "schema/ids.h"
#include "schema/states.h"

using namespace dtrain;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto pattern = parse_id_pattern(text);
  const auto experiment = parse_experiment_id(text);
  const auto replica = parse_replica_id(text);
  INVARIANT(!pattern.ok() || to_string(*pattern) == text, "a pattern reads back");
  INVARIANT(!experiment.ok() || to_string(*experiment) == text, "an experiment reads back");
  INVARIANT(!replica.ok() || to_string(*replica) == text, "a replica reads back");
  INVARIANT(pattern.ok() || (!experiment.ok() && !replica.ok()), "every ID is a pattern");
  INVARIANT(!replica.ok() || pattern->matches(*replica), "a replica matches its own ID");
  INVARIANT(!(experiment.ok() && replica.ok()), "nothing is both");
  if (!pattern.ok()) INVARIANT(pattern.error().message.size() < 300, "the message is short");
  if (const auto state = parse_state(text))
    INVARIANT(to_string(*state) == text, "states read back");
  return 0;
}
