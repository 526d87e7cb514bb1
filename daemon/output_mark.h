// A file beside the experiments' outputs by which a host sees that its directory of that path is the daemon's, and
// not one of its own.
#pragma once

#include <filesystem>
#include <string>

#include "schema/result.h"

namespace dtrain::daemon {

struct OutputMark {
  std::filesystem::path file;
  std::string text;  // empty: there is none, and nobody looks
};

// Made where there is none yet. `outputs` may be a link.
Result<OutputMark> mark_outputs(const std::filesystem::path& outputs);

}  // namespace dtrain::daemon
