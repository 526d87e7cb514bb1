// train --explain-sync: what of a project travels, and why.
#pragma once

#include <filesystem>
#include <string>

#include "schema/result.h"

namespace dtrain::cli {

// Prints a line for each path, or for `path` alone. Returns the exit code.
Result<int> explain_sync(const std::filesystem::path& root, const std::string& path);

}  // namespace dtrain::cli
