#include "runner/inventory.h"

#include <doctest/doctest.h>

namespace dtrain::runner {
namespace {

std::vector<GpuFacts> three() {
  return {{0, "A", "GPU-aaaa", "", 1}, {1, "B", "GPU-bbbb", "", 1}, {2, "C", "GPU-cccc", "", 1}};
}

std::vector<int> indices(const std::optional<std::string>& mask) {
  std::vector<int> out;
  for (const GpuFacts& gpu : visible_gpus(three(), mask)) out.push_back(gpu.index);
  return out;
}

TEST_CASE("the runner hands out only what its own mask leaves") {
  CHECK(indices(std::nullopt) == std::vector{0, 1, 2});
  CHECK(indices("2,0") == std::vector{0, 2});
  CHECK(indices("GPU-bb") == std::vector{1});
  CHECK(indices("1,-1,2") == std::vector{1});
  CHECK(indices("1,2,1,GPU-cccc") == std::vector{1, 2});
  CHECK(indices("").empty());
  CHECK(indices("NoDevFiles").empty());
}

TEST_CASE("foreign use names who, and how many more") {
  const auto nobody = [](int) { return false; };
  CHECK(foreign_use({}, nobody).empty());
  CHECK(foreign_use({{1, 0}}, [](int) { return true; }).empty());
  const std::string text = foreign_use({{1, uint64_t{31} << 30}, {2, 5}}, nobody);
  CHECK(text.find("pid 1, 31.0 GiB") != std::string::npos);
  CHECK(text.ends_with("and 1 more"));
}

TEST_CASE("this host has something to give") {
  CHECK(usable_cpus() > 0);
  CHECK(usable_memory_bytes() > 0);
  CHECK(!host_name().empty());
}

}  // namespace
}  // namespace dtrain::runner
