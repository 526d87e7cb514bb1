// Which files and directories an entry of `outputs` names: itself, or what its wildcards find.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "schema/result.h"

namespace dtrain::runner {

// As a shell does: * ? and [a-z] stay within a part of the path and find no name with a dot in front unless
// they have one; ** as a whole part is any number of directories, but for links. What lies there by the very
// name of the entry is meant by it. In order; none: nothing is there. Paths are relative to `directory`.
// ResourceExhausted: no descriptors or memory to look with.
Result<std::vector<std::string>> named_outputs(const std::filesystem::path& directory, const std::string& entry);

}  // namespace dtrain::runner
