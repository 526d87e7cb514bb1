// The network interface of this host that has an address.
#pragma once

#include <string>

namespace dtrain::runner {

// "eth0"; empty where none has it, and for the name of a host, which is not looked up.
std::string interface_of(const std::string& address);

}  // namespace dtrain::runner
