// Whether this host sees the directory that the daemon has outputs in, by the same path. Blocking; runs on the file
// worker's thread.
#pragma once

#include <chrono>
#include <string>

#include "runner/file_server.h"
#include "schema/dtrain.pb.h"

namespace dtrain::runner {

struct DaemonOutputs {
  bool are_here = true;      // else there is nothing by that path, or another daemon's
  std::string trouble = {};  // they are, but can't be used: "OUTPUT_DIR: the daemon's /shared/outputs can't be written to: ..."
};
DaemonOutputs look_for_outputs(const pb::Launch& launch, std::chrono::milliseconds patience = kServerPatience);

}  // namespace dtrain::runner
