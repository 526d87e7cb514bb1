// A file that one live process holds: two daemons or two runners never share a home. The kernel lets
// go of it when the holder dies, however it dies.
#pragma once

#include <filesystem>

#include "schema/fd.h"
#include "schema/result.h"

namespace dtrain {

// Held for as long as the descriptor lives. FailedPrecondition when somebody else holds it; the
// message names the pid it wrote.
Result<Fd> hold_lock(const std::filesystem::path& path);

// Somebody holds it now.
bool is_held(const std::filesystem::path& path);

}  // namespace dtrain
