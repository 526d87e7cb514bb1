#include "runner/network_interface.h"

#include <ifaddrs.h>
#include <netdb.h>
#include <sys/socket.h>

#include <array>
#include <memory>

namespace dtrain::runner {
namespace {

// An address in the one form that compares; empty for what is not of the Internet's.
std::string text_of(const sockaddr* address) {
  if (address == nullptr) return {};
  const socklen_t size = address->sa_family == AF_INET    ? sizeof(sockaddr_in)
                         : address->sa_family == AF_INET6 ? sizeof(sockaddr_in6)
                                                          : 0;
  std::array<char, NI_MAXHOST> text{};
  if (size == 0 ||
      getnameinfo(address, size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) != 0) {
    return {};
  }
  return text.data();
}

// "FD00:0::1" as it is written otherwise. Asks no name server.
std::string usual_form(const std::string& address) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST;
  addrinfo* found = nullptr;
  if (getaddrinfo(address.c_str(), nullptr, &hints, &found) != 0) return {};
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owned(found, freeaddrinfo);
  return text_of(found->ai_addr);
}

}  // namespace

std::string interface_of(const std::string& address) {
  const std::string wanted = usual_form(address);
  ifaddrs* first = nullptr;
  if (wanted.empty() || getifaddrs(&first) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owned(first, freeifaddrs);
  for (const ifaddrs* each = first; each != nullptr; each = each->ifa_next) {
    if (text_of(each->ifa_addr) == wanted) return each->ifa_name;
  }
  return {};
}

}  // namespace dtrain::runner
