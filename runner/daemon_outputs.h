// Whether this host sees the directory that the daemon has outputs in, by the same path. Blocking; runs on the file
// worker's thread.
#pragma once

#include <chrono>
#include <string>

#include "runner/file_server.h"
#include "schema/dtrain.pb.h"

namespace dtrain::runner {

// "OUTPUT_DIR: the daemon's /shared/outputs is not there". Empty: it is, and may be written to.
std::string lacking_outputs(const pb::Launch& launch, std::chrono::milliseconds patience = kServerPatience);

}  // namespace dtrain::runner
