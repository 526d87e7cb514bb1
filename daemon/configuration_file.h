// What we write to each OUTPUT_DIR ourselves: what ran there.
#pragma once

namespace dtrain::daemon {

inline constexpr const char* kConfigurationFile = "dtrain-configuration.yml";

}  // namespace dtrain::daemon
