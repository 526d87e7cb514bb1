// Finds the python a launch asked for on this host, or says why it can't run here.
#pragma once

#include <filesystem>
#include <string>

#include "runner/environment.h"
#include "schema/result.h"

namespace dtrain::runner {

// `wanted` is the Spec's `python`: "auto" takes the environment that was active at submit
// (VIRTUAL_ENV or CONDA_PREFIX in `user_env`) by the same path on each host; else a path to an
// interpreter or an environment, or conda:NAME. Where only python3 exists, a directory below `home`
// with a link named python goes last in PATH.
// NotFound names the path that is not here.
Result<PythonChoice> choose_python(const std::string& wanted, const Environment& user_env,
                                   const Environment& inherited, const std::filesystem::path& home);

// The file a shell would run for `program`; empty when there is none.
std::string find_program(const std::string& search_path, const std::string& program);

}  // namespace dtrain::runner
