// Files and folders of an OUTPUT_DIR of this host, copied elsewhere on it. A file has its name only once it is whole.
#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include "schema/result.h"

namespace dtrain::cli {

struct CopiedOutputs {
  size_t items = 0;
  std::vector<std::string> left_out;   // what is neither file, directory nor link, was written to meanwhile, or has a name of dtrain's own
};

// Each of `sources`, with all that is in it, into `target`, which is there; unless forced none of them, if one is there.
// A signal that ends this process does so when what was copied half is gone.
Result<CopiedOutputs> copy_outputs(const std::vector<std::filesystem::path>& sources, const std::filesystem::path& target, bool force);

// Says how far it came, and ends this process as the signal would have.
void end_copying(int signal, size_t files);

}  // namespace dtrain::cli
