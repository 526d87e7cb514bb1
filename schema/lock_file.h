// A file that one live process holds: two daemons or two runners never share a home. The kernel lets
// go of it when the holder dies, however it dies.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <optional>

#include "schema/fd.h"
#include "schema/result.h"

namespace dtrain {

// Held for as long as the descriptor lives. FailedPrecondition when somebody else holds it; the
// message names the pid it wrote. `mode` is that of a file that is not there yet: 0666 for a lock that
// all users of the machine share.
Result<Fd> hold_lock(const std::filesystem::path& path, mode_t mode = 0600);

// Whether somebody removed the file that is held: others may hold one of its name.
bool is_removed(const Fd& lock);

// Somebody holds it now.
bool is_held(const std::filesystem::path& path);

// Who: the pid that the holder wrote. Empty when nobody holds it.
std::optional<pid_t> lock_holder(const std::filesystem::path& path);

}  // namespace dtrain
