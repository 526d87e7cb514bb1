#include "runner/own_address.h"

#include <netdb.h>
#include <sys/socket.h>

#include <array>
#include <memory>

#include "schema/config.h"
#include "schema/fd.h"

namespace dtrain::runner {

std::string own_address_towards(const Endpoint& there) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_DGRAM;
  addrinfo* first = nullptr;
  if (getaddrinfo(there.host.c_str(), std::to_string(there.port).c_str(), &hints, &first) != 0) return {};
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owned(first, freeaddrinfo);
  for (const addrinfo* each = first; each != nullptr; each = each->ai_next) {
    const Fd fd(::socket(each->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sockaddr_storage own{};
    socklen_t size = sizeof own;
    std::array<char, NI_MAXHOST> text{};
    if (fd && ::connect(fd.get(), each->ai_addr, each->ai_addrlen) == 0 &&
        ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&own), &size) == 0 &&
        getnameinfo(reinterpret_cast<sockaddr*>(&own), size, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST) == 0 &&
        is_host_address(text.data())) {
      return text.data();
    }
  }
  return {};
}

}  // namespace dtrain::runner
