// `dtrain dial`: the daemon of this machine on standard input and output, for a dtrain that came by SSH.
#pragma once

namespace dtrain::cli {

// Said first; what follows is the daemon's.
inline constexpr const char* kDialled = "dtrain: the daemon follows\n";

}  // namespace dtrain::cli
