// Where a program listens, or dials: an address and a port.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace dtrain {

// "10.0.0.5:7077", "[fd00::5]:7077" or "trainer:7077". Nothing when it is no address with a port, which may be 0.
struct Endpoint {
  std::string host;  // without brackets
  int port = 0;
  bool operator==(const Endpoint&) const = default;
};
std::optional<Endpoint> parse_endpoint(std::string_view text);
std::string to_string(const Endpoint& endpoint);

}  // namespace dtrain
