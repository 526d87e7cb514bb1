// The call of Exec: an ExecPeer at the daemon.
#pragma once

#include <boost/asio/io_context.hpp>

#include "runner/exec_peer.h"
#include "runner/link.h"

namespace dtrain::runner {

// `loop` and `link` must outlive what it makes.
DialExec dial_exec_over(boost::asio::io_context& loop, Link& link);

}  // namespace dtrain::runner
