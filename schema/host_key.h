// The key by which a host joins a daemon over the network: a file that `dtrain hosts invite` writes and
// `dtrain runner run --join` reads. Whoever has it can be that host, so it is as secret as an SSH key.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "schema/result.h"

namespace dtrain {

// The name that a daemon's certificate is made out to, wherever it runs.
inline constexpr const char* kDaemonCertificateName = "dtrain-daemon";

struct HostKey {
  std::string name;         // of the host
  std::string daemon;       // ADDRESS:PORT, as the host dials it
  std::string authority;    // PEM: whose certificates this daemon shows and takes
  std::string certificate;  // PEM: the host's own
  std::string secret;       // PEM: its private key
  bool operator==(const HostKey&) const = default;
};

std::string to_text(const HostKey& key);
// InvalidArgument: no such text, or a part of it is missing; `source` is what the message calls it.
Result<HostKey> parse_host_key(std::string_view text, std::string_view source);

// "10.0.0.5:7077", "[fd00::5]:7077" or "trainer:7077". Nothing when it is no address with a port, which may be 0.
struct Endpoint {
  std::string host;  // without brackets
  int port = 0;
  bool operator==(const Endpoint&) const = default;
};
std::optional<Endpoint> parse_endpoint(std::string_view text);
std::string to_string(const Endpoint& endpoint);

}  // namespace dtrain
