#include "cli/forwarded_ports.h"

#include <charconv>
#include <optional>
#include <set>

#include "schema/ids.h"
#include "schema/quote.h"

namespace dtrain::cli {

namespace {

std::optional<uint16_t> number_in(std::string_view text) {
  uint16_t number = 0;
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, number);
  if (read.ec != std::errc() || read.ptr != end) return std::nullopt;
  return number;
}

Result<ForwardedPort> forwarded_port(const std::string& word) {
  const size_t colon = word.find(':');
  const auto remote = number_in(std::string_view(word).substr(colon == word.npos ? 0 : colon + 1));
  const auto local = colon == word.npos ? remote : number_in(std::string_view(word).substr(0, colon));
  if (remote && *remote != 0 && local) return ForwardedPort{*local, *remote};
  return Error{Code::InvalidArgument, fmt::format("{} is no port", in_quotes(word)),
               "6006, or 8888:6006: a port of this machine and that of the replica's, each up to 65535; 0:6006 takes any that is free here"};
}

}  // namespace

Result<ForwardedPorts> forwarded_ports(const std::vector<std::string>& words) {
  ForwardedPorts all;
  size_t first = 0;
  if (words.size() > 1 && parse_id_pattern(words[0]).ok()) all.id = words[first++];
  std::set<uint16_t> here;
  for (size_t i = first; i < words.size(); ++i) {
    TRY(const ForwardedPort port, forwarded_port(words[i]));
    if (port.local != 0 && !here.insert(port.local).second) {
      return Error{Code::InvalidArgument, fmt::format("port {} of this machine would lead to two places", port.local),
                   fmt::format("0:{} takes any that is free here", port.remote)};
    }
    all.ports.push_back(port);
  }
  if (!all.ports.empty()) return all;
  return Error{Code::InvalidArgument, "which port?", "dtrain port-forward 4 6006"};
}

std::string forward_words(const std::string& replica, std::string_view url) {
  url = url.substr(0, url.find('/', url.find("//") + 2));
  const auto port = number_in(url.substr(url.rfind(':') + 1));
  return port ? fmt::format("port-forward {} {}", replica, *port) : "";
}

bool is_loopback_url(std::string_view url) {
  return url.starts_with("http://127.") || url.starts_with("http://localhost:") || url.starts_with("http://[::1]");
}

}  // namespace dtrain::cli
