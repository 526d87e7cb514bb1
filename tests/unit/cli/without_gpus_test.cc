#include "cli/without_gpus.h"

#include <doctest/doctest.h>

namespace dtrain::cli {
namespace {

std::string words_for(const std::string& yaml, const std::string& file = "dtrain.yml") {
  ParseOptions parsing;
  parsing.file_name = file;
  const auto spec = parse_spec(yaml, parsing);
  REQUIRE_MESSAGE(spec.ok(), spec.error().message);
  return without_gpus(yaml, parsing, *spec);
}

TEST_CASE("the --set that does without GPUs is about who asks for them") {
  const std::string shared = "project: p\ntrain:\n  framework: tensorflow\n  run: x\n  resources: {gpus: 4}\n  tensorflow:\n    distributed:\n";
  CHECK(words_for(shared + "      worker: 3\n      ps: {count: 2, resources: {cpus: 2, gpus: 0}}\n", "riseml.yml") ==
        ", e.g. --set train.resources.gpus=0");
  CHECK(words_for(shared + "      worker: {count: 3, resources: {gpus: 2}}\n      master: {resources: {gpus: 1}}\n      ps: 1\n") ==
        ", e.g. --set train.resources.gpus=0 --set train.tensorflow.distributed.master.resources.gpus=0 "
        "--set train.tensorflow.distributed.worker.resources.gpus=0");
  CHECK(words_for("project: p\ntrain:\n  framework: pytorch\n  run: x\n  pytorch: {distributed: {worker: {count: 2, resources: {gpus: 1}}}}\n") ==
        ", e.g. --set train.pytorch.distributed.worker.resources.gpus=0");
}

}  // namespace
}  // namespace dtrain::cli
