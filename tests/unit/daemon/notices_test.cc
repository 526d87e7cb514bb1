#include "daemon/notices.h"

#include <doctest/doctest.h>

namespace dtrain::daemon {
namespace {

Spec spec_of(const std::string& yaml) {
  auto spec = parse_spec(yaml, {});
  REQUIRE(spec.ok());
  return std::move(spec).value();
}

TEST_CASE("that a TensorBoard runs beside it is said") {
  const Model model{};
  CHECK(notices_of(spec_of("{project: p1, train: {run: x}}"), model).empty());
  const auto lines = notices_of(
      spec_of("{project: p1, train: {run: x, framework: tensorflow, install: [pip install numpy], "
              "tensorflow: {version: 2.15.0, tensorboard: true}}}"),
      model);
  REQUIRE(lines.size() == 1);
  CHECK(lines[0].find("TensorBoard") != std::string::npos);
}

TEST_CASE("free GPUs that nobody asked for are mentioned") {
  Model model;
  Host host;
  host.id = {"aa"};
  host.connected = true;
  host.gpus = {{0, "H200", ""}, {1, "H200", "user, pid 4242, 31 GB"}};
  model.hosts.emplace(host.id, host);
  const auto lines = notices_of(spec_of("{project: p1, train: {run: x}}"), model);
  REQUIRE(lines.size() == 1);
  CHECK(lines[0] == "1 GPU is free and hidden from it; ask with `resources: {gpus: 1}`");
  CHECK(notices_of(spec_of("{project: p1, train: {run: x, resources: {gpus: 1}}}"), model).empty());
  model.hosts.begin()->second.connected = false;
  CHECK(notices_of(spec_of("{project: p1, train: {run: x}}"), model).empty());
}

}  // namespace
}  // namespace dtrain::daemon
