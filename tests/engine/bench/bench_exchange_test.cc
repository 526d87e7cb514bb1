#include "engine/bench/bench_exchange.h"

#include <doctest/doctest.h>

namespace dtrain::engine {
namespace {

TEST_CASE("the exchange can be measured on shared memory and over TCP") {
  const int64_t sizes[] = {4096, 100'000};
  for (const bool tcp : {false, true}) {
    const auto rates = bench_exchange(2, tcp, sizes);
    if (!rates.ok()) FAIL(rates.error().message);
    REQUIRE(rates->size() == 2);
    for (const ExchangeRate& rate : *rates) {
      CHECK(rate.exchange_bytes_per_second() > 0);
      CHECK(rate.memcpy_bytes_per_second() > 0);
    }
    CHECK((*rates)[0].bytes == 4096);
  }
}

}  // namespace
}  // namespace dtrain::engine
