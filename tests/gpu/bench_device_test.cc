// The bench of a device tells of everything that it measures, beside its ceilings.
#include <doctest/doctest.h>

#include <map>

#include "engine/cuda/bench_device.h"
#include "tests/gpu/device_array.h"

namespace dtrain::engine::cuda {
namespace {

TEST_CASE("a bench of a device has its ceilings first, and a share of them of everything") {
  if (!test_context()) return;
  const DeviceBench small{.samples = 1, .context = 6, .width = 16, .heads = 2, .vocabulary = 40, .parameters = 100,
                          .largest_product = 24, .copied_bytes = 4096, .rounds = 1};
  std::string device;
  std::vector<DeviceRate> rates;
  const Status status = bench_device(
      small, [&](const std::string& name) { device = name; }, [&](const DeviceRate& rate) { rates.push_back(rate); });
  if (!status.ok()) FAIL(status.error().message);
  CHECK(!device.empty());
  REQUIRE(rates.size() > 2);
  CHECK(rates[0].name == "product, square");
  CHECK(rates[1].name == "copy");
  CHECK(rates[0].share == doctest::Approx(1));
  CHECK(rates[1].share == doctest::Approx(1));
  std::map<std::string, double> operations;
  for (const DeviceRate& rate : rates) {
    CAPTURE(rate.name);
    CHECK(rate.seconds > 0);
    CHECK(rate.share > 0);
    CHECK((rate.operations > 0) != (rate.bytes > 0));
    CHECK(operations.emplace(rate.name, rate.operations).second);
  }
  CHECK(operations.at("product, square") == 2.0 * 24 * 24 * 24);
  CHECK(operations.at("mlp up") == 2.0 * 6 * 16 * 64);
  CHECK(operations.at("mlp up, weights' gradient") == operations.at("mlp up"));
  CHECK(operations.at("classifier") == 2.0 * 6 * 16 * 40);
  CHECK(operations.at("attention, own kernels") == 2.0 * 6 * 6 * 16);  // scores and values, half of each
}

}  // namespace
}  // namespace dtrain::engine::cuda
