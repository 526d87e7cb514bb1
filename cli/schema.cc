#include <fmt/format.h>

#include "cli/commands.h"
#include "schema/spec.h"

namespace dtrain::cli {

Run declare_schema(Options& options, CommandContext&) {
  options.footer(
      "dtrain schema > dtrain.schema.json makes the file that dtrain.yml's first line names.");
  return []() -> Result<int> {
    fmt::print("{}", json_schema());
    return 0;
  };
}

}  // namespace dtrain::cli
