#include "schema/version.h"

#include <fmt/format.h>

#include "cli/commands.h"

namespace dtrain::cli {

Run declare_version(Options& options, CommandContext& context) {
  options.json(context);
  return [&context]() -> Result<int> {
    if (context.json) {
      fmt::print("{{\"version\":\"{}\",\"protocol\":{}}}\n", kVersion, kProtocol);
    } else {
      fmt::print("dtrain {} (protocol {})\n", kVersion, kProtocol);
    }
    return 0;
  };
}

}  // namespace dtrain::cli
