#include "runner/engine_launch.h"

#include <doctest/doctest.h>
#include <sys/stat.h>

#include "schema/engine_spec.h"
#include "tests/support/project.h"

namespace dtrain::runner {
namespace {

Spec spec_of(const std::string& train, const std::string& test) {
  const auto spec = parse_spec(
      fmt::format(
          "{{project: p, train: {{framework: engine, data: {{mnist: /mnt/sets/mnist}}, engine: "
          "{{model: mlp, data: {{train: {}, test: {}}}}}}}}}",
          train, test),
      {});
  if (!spec.ok()) FAIL(spec.error().message);
  return *spec;
}

EngineSpec variable(const Spec& spec, const std::string& data_dir) {
  const auto text = engine_variable(spec, data_dir, "");
  REQUIRE(text.ok());
  const auto read = engine_spec_from_json(*text);
  REQUIRE(read.ok());
  return *read;
}

void make_program(const std::filesystem::path& path) {
  test::write_file(path, "#!/bin/sh\n");
  REQUIRE(chmod(path.c_str(), 0755) == 0);
}

TEST_CASE("the engine beside the runner's own executable comes before one in PATH") {
  const test::TemporaryFolder folder;
  const Environment inherited = {
      {"PATH", (folder / "empty").string() + ":" + (folder / "path").string()}};
  CHECK(find_engine(folder / "own", inherited).empty());
  CHECK(find_engine({}, {}).empty());
  CHECK(lacking_engine("/opt/bin") == "dtrain-engine is neither in /opt/bin nor in PATH");
  make_program(folder / "path/dtrain-engine");
  CHECK(find_engine(folder / "own", inherited) == folder / "path/dtrain-engine");
  test::write_file(folder / "own/dtrain-engine", "no program");
  CHECK(find_engine(folder / "own", inherited) == folder / "path/dtrain-engine");
  make_program(folder / "own/dtrain-engine");
  CHECK(find_engine(folder / "own", inherited) == folder / "own/dtrain-engine");
}

TEST_CASE("a data set is where it is on this host, other paths are as they were written") {
  const Spec spec = spec_of("/data/mnist/train", "data/mnist/test");
  CHECK(variable(spec, "/data").train_data == "/data/mnist/train");
  CHECK(variable(spec, "/home/x/launches/4@1/data").train_data ==
        "/home/x/launches/4@1/data/mnist/train");
  CHECK(variable(spec, "/links").test_data == "data/mnist/test");
  CHECK(variable(spec_of("/data/mnist", "/data/other/x"), "/links").train_data == "/links/mnist");
  CHECK(variable(spec_of("/data/mnist", "/data/other/x"), "/links").test_data == "/data/other/x");
}

}  // namespace
}  // namespace dtrain::runner
