// Whether a daemon listens, and starting one: detached, ready when it says so, its last words shown
// when it dies.
#pragma once

#include <sys/types.h>

#include <string>

#include "schema/fd.h"
#include "schema/home.h"
#include "schema/result.h"

namespace dtrain::cli {

// The process that accepts connections on the home's socket, and one of them.
struct Listener {
  pid_t pid = 0;
  Fd socket;
};

// Unavailable when nobody listens, and says so where a daemon runs all the same; PermissionDenied when it is another
// user's process. Sends nothing.
Result<Listener> find_listener(const Home& home);

// Of a file in the home that can't be written or removed: says where else a home may be. A full
// disk has a hint of its own.
Error home_error(const std::string& what, int errno_value);

// Automatic respects the marker that `daemon stop` leaves; ByHand removes it.
enum class StartAs { Automatic, ByHand };

// Starts `program daemon run` unless one listens already, and returns when it is ready. The child
// learns from DTRAIN_READY_FD which descriptor to write one byte to once it listens. Two that start
// at once both succeed: a file lock lets one of them start it and the other find it.
Status start_daemon(const Home& home, const std::string& program, StartAs as);

}  // namespace dtrain::cli
