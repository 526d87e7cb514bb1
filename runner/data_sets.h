// The data sets that an experiment names: whether they are here, and where its replicas find them.
// Blocking; runs on the file worker's thread.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>

#include "runner/data_mount.h"
#include "runner/file_server.h"
#include "schema/spec.h"

namespace dtrain::runner {

// Each that is not there, can't be read by this user, or whose file system does not answer in time:
// "data mnist: /mnt/sets/mnist is not there". Empty: all are.
std::string lacking_data(const Spec& spec, std::chrono::milliseconds patience = kServerPatience);

struct DataPlace {
  std::string directory;  // DATA_DIR; empty: there are no data sets
  DataMount mount;        // for each replica to enter; without one `directory` holds links
};

// Read-only below `mount_point`, when that is an empty directory and this process may mount there;
// else links in `links`, which is made. A directory that holds anything is left alone: mounting
// would hide it.
Result<DataPlace> place_data(const Spec& spec, const std::string& mount_point,
                             const std::filesystem::path& links);

}  // namespace dtrain::runner
