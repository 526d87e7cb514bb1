#include "schema/endpoint.h"

#include <fmt/format.h>

#include <charconv>

#include "schema/config.h"

namespace dtrain {

std::optional<Endpoint> parse_endpoint(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return std::nullopt;
  const std::string_view digits = text.substr(colon + 1);
  Endpoint endpoint;
  const auto [stop, error] = std::from_chars(digits.data(), digits.data() + digits.size(), endpoint.port);
  if (error != std::errc() || stop != digits.data() + digits.size()) return std::nullopt;
  if (endpoint.port < 0 || endpoint.port > 65'535) return std::nullopt;
  std::string_view host = text.substr(0, colon);
  const bool in_brackets = host.size() > 2 && host.front() == '[' && host.back() == ']';
  if (in_brackets) host = host.substr(1, host.size() - 2);
  endpoint.host = host;
  const bool is_ipv6 = host.find(':') != std::string_view::npos;
  if (is_ipv6 != in_brackets || !(is_ip_address(host) || is_host_name(host))) return std::nullopt;
  return endpoint;
}

std::string to_string(const Endpoint& endpoint) {
  const bool is_ipv6 = endpoint.host.find(':') != std::string::npos;
  return fmt::format(fmt::runtime(is_ipv6 ? "[{}]:{}" : "{}:{}"), endpoint.host, endpoint.port);
}

}  // namespace dtrain
