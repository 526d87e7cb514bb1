// Where a program lies that a command names: as PATH says, or by its own path.
#pragma once

#include <string>
#include <vector>

#include "schema/result.h"

namespace dtrain::runner {

// A file that may be run; what it is made of is seen then.
bool is_program(const std::string& path);

// Where a program of that name may be; one with a slash in it only there. `path` is what PATH says.
std::vector<std::string> program_places(const std::string& name, const std::string& path);

// The first of these that can be run; relative ones count from `cwd` (empty: the caller's). A name with a slash is not
// looked at. NotFound, or PermissionDenied where one is there that can't be run.
Result<std::string> find_program(const std::string& name, const std::string& path, const std::string& cwd);

// NotFound, as a shell says it.
Error command_not_found(const std::string& name, const std::string& path);

}  // namespace dtrain::runner
