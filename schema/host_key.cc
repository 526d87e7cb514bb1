#include "schema/host_key.h"

#include <algorithm>
#include <charconv>

#include "schema/config.h"

namespace dtrain {

namespace {

constexpr std::string_view kFirstLine = "dtrain host key 1\n";
constexpr std::string_view kBegin = "-----BEGIN ", kEnd = "-----END ";

// The value of the line "word: value" that `text` begins with, which loses it; empty: it begins with another.
std::string take_line(std::string_view& text, std::string_view word) {
  const size_t end = text.find('\n');
  if (!text.starts_with(word) || !text.substr(word.size()).starts_with(": ") || end == std::string_view::npos) return {};
  std::string value(text.substr(0, end).substr(word.size() + 2));
  text.remove_prefix(end + 1);
  return value;
}

// The next PEM block of `text`, which loses it; empty: there is none.
std::string take_block(std::string_view& text) {
  const size_t begin = text.find(kBegin);
  const size_t last_line = begin == std::string_view::npos ? begin : text.find(kEnd, begin);
  if (last_line == std::string_view::npos) return {};
  const size_t end = std::min(text.find('\n', last_line), text.size() - 1) + 1;
  std::string block(text.substr(begin, end - begin));
  text.remove_prefix(end);
  return block;
}

}  // namespace

std::string to_text(const HostKey& key) {
  return fmt::format("{}host: {}\ndaemon: {}\n{}{}{}", kFirstLine, key.name, key.daemon, key.authority,
                     key.certificate, key.secret);
}

Result<HostKey> parse_host_key(std::string_view text, std::string_view source) {
  const Error broken{Code::InvalidArgument, fmt::format("{} is not a host's key", source),
                     "`dtrain hosts invite NAME`, where the daemon runs, writes one"};
  if (!text.starts_with(kFirstLine)) return broken;
  text.remove_prefix(kFirstLine.size());
  HostKey key;
  key.name = take_line(text, "host");
  key.daemon = take_line(text, "daemon");
  for (std::string* part : {&key.authority, &key.certificate, &key.secret}) {
    *part = take_block(text);
    if (part->empty()) return broken;
  }
  const auto daemon = parse_endpoint(key.daemon);
  if (!is_host_name(key.name) || !daemon || daemon->port == 0) return broken;
  return key;
}

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
