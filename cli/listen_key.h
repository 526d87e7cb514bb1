// `daemon start --listen`: the key of config.yml that lets other machines in.
#pragma once

#include <string>

#include "schema/home.h"
#include "schema/result.h"

namespace dtrain::cli {

// Writes it there, behind what there is; false: it was there already. FailedPrecondition: another address is.
Result<bool> add_listen_key(const Home& home, const std::string& endpoint);

}  // namespace dtrain::cli
