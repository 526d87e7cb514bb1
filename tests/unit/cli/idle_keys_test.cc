#include "cli/idle_keys.h"

#include <doctest/doctest.h>

namespace dtrain::cli {
namespace {

using Lines = std::vector<std::string>;

Lines warnings(const std::string& train, const std::string& file_name = "dtrain.yml") {
  ParseOptions options;
  options.file_name = file_name;
  const auto spec = parse_spec("project: p\ntrain: {run: echo, " + train + "}\n", options);
  if (!spec.ok()) FAIL(spec.error().message);
  return idle_keys_warnings(*spec);
}

TEST_CASE("what a set alone has is told where there is none") {
  CHECK(warnings("concurrency: 2") ==
        Lines{"concurrency 2 changes nothing: it is about members of a set, and this is one experiment"});
  CHECK(warnings("concurrency: 2, parameters: {rate: 1}").size() == 1);
  CHECK(warnings("concurrency: 2, parameters: {rate: [1, 2]}").empty());
  CHECK(warnings("concurrency: 1").empty());
  CHECK(warnings("resources: {cpus: 1}", "riseml.yml").empty());
}

TEST_CASE("all workers are asked for where none are beside who decides") {
  CHECK(warnings("completion: all-workers") ==
        Lines{"completion all-workers changes nothing: there are no other workers"});
  CHECK(warnings("framework: tensorflow, completion: all-workers, tensorflow: {distributed: {worker: {count: 2}}}").empty());
  CHECK(warnings("framework: jax, completion: all-workers, jax: {distributed: {worker: 1}}").empty());
  CHECK(warnings("framework: tensorflow, completion: decider, tensorflow: {distributed: {worker: {count: 2}}}").empty());
}

TEST_CASE("there is nothing to make anew without an environment of its own") {
  Spec spec;
  CHECK(idle_rebuild_warning(spec) ==
        "--rebuild changes nothing: no environment is made for it (`version`, `install`, `image`)");
  spec.install = {"pip install numpy"};
  CHECK(idle_rebuild_warning(spec) == "");
}

}  // namespace
}  // namespace dtrain::cli
