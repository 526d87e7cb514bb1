#include "engine/bench/bench_servers.h"

#include <doctest/doctest.h>

namespace dtrain::engine {
namespace {

// gRPC is measured in commands_test.cc, by a process that has not used it before it forks.
TEST_CASE("servers can be measured by each way to them, beside its ceilings") {
  const int64_t sizes[] = {4096, 100'000};
  const int counts[] = {1, 2};
  const auto rates = bench_servers(sizes, counts, {});
  if (!rates.ok()) FAIL(rates.error().message);
  REQUIRE(rates->size() == 8);
  for (const ServerRate& rate : *rates) {
    CHECK(rate.seconds > 0);
    CHECK(rate.memcpy_seconds > 0);
    CHECK(rate.socket_seconds > 0);
    CHECK(rate.way != ServerWay::Grpc);
  }
  CHECK(rates->front().bytes == 4096);
  CHECK(rates->front().servers == 1);
  CHECK(rates->back().servers == 2);
}

}  // namespace
}  // namespace dtrain::engine
