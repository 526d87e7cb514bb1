#include "runner/network_interface.h"

#include <doctest/doctest.h>

namespace dtrain::runner {
namespace {

TEST_CASE("the interface of an address is found, however it is written") {
  CHECK(interface_of("127.0.0.1") == "lo");
  const std::string of_ipv6 = interface_of("::1");
  CHECK(interface_of("0:0:0:0:0:0:0:1") == of_ipv6);
  CHECK((of_ipv6 == "lo" || of_ipv6.empty()));  // there may be no IPv6
}

TEST_CASE("what no interface has, and a name, has none") {
  CHECK(interface_of("192.0.2.1").empty());
  CHECK(interface_of("localhost").empty());
  CHECK(interface_of("").empty());
}

}  // namespace
}  // namespace dtrain::runner
