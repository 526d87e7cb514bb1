// What `dtrain port-forward` was told to forward, and what to tell it. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "schema/result.h"

namespace dtrain::cli {

struct ForwardedPort {
  uint16_t local = 0;    // here; 0: any that is free
  uint16_t remote = 0;   // on the replica's host
  bool operator==(const ForwardedPort&) const = default;
};

struct ForwardedPorts {
  std::string id;   // as typed; empty: left out
  std::vector<ForwardedPort> ports;
};

// Of "4", "6006", "8888:80". A single word is a port, and a first of several that could be either is an ID.
Result<ForwardedPorts> forwarded_ports(const std::vector<std::string>& words);

// What forwards a replica's server, of the form http://HOST:PORT/; "" where the URL names no port.
std::string forward_words(const std::string& replica, std::string_view url);
// Whether the URL is of the machine where it is read, whichever that is.
bool is_loopback_url(std::string_view url);

}  // namespace dtrain::cli
