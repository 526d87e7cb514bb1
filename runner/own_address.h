// By which of its addresses this host reaches another.
#pragma once

#include <string>

#include "schema/endpoint.h"

namespace dtrain::runner {

// Nothing is sent. Empty: there is no way there now, or it is this host itself by its loopback. A name is looked up,
// which may take its time.
std::string own_address_towards(const Endpoint& there);

}  // namespace dtrain::runner
