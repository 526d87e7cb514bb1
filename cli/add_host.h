// `dtrain hosts add user@host`: makes a machine that one reaches by SSH a host of this daemon.
#pragma once

#include "cli/command.h"

namespace dtrain::cli {

Run declare_add_host(Options& options, CommandContext& context);

}  // namespace dtrain::cli
