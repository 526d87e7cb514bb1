#include "cli/asking_less.h"

#include <doctest/doctest.h>

#include <algorithm>

namespace dtrain::cli {
namespace {

Error refused_for(const std::string& hint) { return {Code::InvalidArgument, "needs more than there is", hint}; }

// What a host without GPUs, with 8 GiB and 4 cpus, says of each replica.
Status small_host(const Spec& spec) {
  const auto any = [&](auto asks) { return std::any_of(spec.roles.begin(), spec.roles.end(), [&](const RoleSpec& role) { return asks(role.resources); }); };
  if (any([](const Resources& of) { return of.gpus > 0; })) return refused_for("ask for fewer `gpus`, or add a host");
  if (any([](const Resources& of) { return of.memory_bytes > uint64_t{8} << 30; })) return refused_for("lower `mem`, or add a host");
  if (any([](const Resources& of) { return of.cpus > 4; })) return refused_for("lower `cpus`, e.g. --set train.resources.cpus=1, or add a host");
  return ok();
}

std::string words_for(const std::string& yaml, const std::string& file = "dtrain.yml", Status (*refused)(const Spec&) = small_host) {
  ParseOptions parsing;
  parsing.file_name = file;
  const auto spec = parse_spec(yaml, parsing);
  REQUIRE_MESSAGE(spec.ok(), spec.error().message);
  const Status first = refused(*spec);
  REQUIRE(!first.ok());
  return hint_with_less(first.error(), yaml, parsing, *spec, refused);
}

TEST_CASE("the --set that does without GPUs is about who asks for them") {
  const std::string shared = "project: p\ntrain:\n  framework: tensorflow\n  run: x\n  resources: {gpus: 4}\n  tensorflow:\n    distributed:\n";
  CHECK(words_for(shared + "      worker: 3\n      ps: {count: 2, resources: {cpus: 2, gpus: 0}}\n", "riseml.yml") ==
        "ask for fewer `gpus`, e.g. --set train.resources.gpus=0, or add a host");
  CHECK(words_for(shared + "      worker: {count: 3, resources: {gpus: 2}}\n      master: {resources: {gpus: 1}}\n      ps: 1\n") ==
        "ask for fewer `gpus`, e.g. --set train.resources.gpus=0 --set train.tensorflow.distributed.master.resources.gpus=0 "
        "--set train.tensorflow.distributed.worker.resources.gpus=0, or add a host");
  CHECK(words_for("project: p\ntrain:\n  framework: pytorch\n  run: x\n  pytorch: {distributed: {worker: {count: 2, resources: {gpus: 1}}}}\n") ==
        "ask for fewer `gpus`, e.g. --set train.pytorch.distributed.worker.resources.gpus=0, or add a host");
}

TEST_CASE("one line has all that is short, whatever is said to be first") {
  CHECK(words_for("project: p\ntrain: {run: x, resources: {cpus: 32, mem: 64GiB, gpus: 2}}\n") ==
        "ask for fewer `gpus`, e.g. --set train.resources.gpus=0 --set train.resources.mem=1GiB --set train.resources.cpus=1, or add a host");
  CHECK(words_for("project: p\ntrain:\n  framework: tensorflow\n  run: x\n  resources: {mem: 2GiB}\n"
                  "  tensorflow: {distributed: {worker: 2, ps: {count: 1, resources: {mem: 64GiB, cpus: 8}}}}\n") ==
        "lower `mem`, e.g. --set train.resources.mem=1GiB --set train.tensorflow.distributed.ps.resources.mem=1GiB "
        "--set train.tensorflow.distributed.ps.resources.cpus=1, or add a host");
}

TEST_CASE("a hint that no --set makes true stays as it was") {
  const auto always = [](const Spec&) -> Status { return refused_for("lower `mem`, or add a host"); };
  CHECK(words_for("project: p\ntrain: {run: x, resources: {mem: 64GiB}}\n", "dtrain.yml", always) == "lower `mem`, or add a host");
  const auto of_hosts = [](const Spec&) -> Status { return refused_for("known hosts: n1"); };
  CHECK(words_for("project: p\ntrain: {run: x}\n", "dtrain.yml", of_hosts) == "known hosts: n1");
}

}  // namespace
}  // namespace dtrain::cli
