#include "schema/variation.h"

#include <doctest/doctest.h>

#include "schema/expand.h"
#include "tests/unit/schema/specs.h"

using namespace dtrain;
using namespace dtrain::tests;

namespace {

void check_reads_back(const Spec& spec) {
  const std::string yaml = to_yaml(spec);
  CAPTURE(yaml);
  const Spec again = spec_of(yaml);
  CHECK(again == spec);
  CHECK(to_yaml(again) == yaml);
}

constexpr const char* kWorkers = R"(
project: p1
train:
  framework: tensorflow
  tensorflow:
    distributed: {worker: [1, 2, 4], ps: 1}
  parameters: {lr: [0.1, 0.2]}
  run: python train.py {{ lr }} --workers {{ worker }}
)";

}  // namespace

TEST_CASE("a list where one value belongs is a dimension of the set") {
  const Spec spec = spec_of(kWorkers);
  CHECK(spec.member_count() == 6);
  CHECK(member_parameters(spec, 1) == std::map<std::string, std::string>{{"lr", "0.1"}, {"worker", "1"}});
  CHECK(member_parameters(spec, 6) == std::map<std::string, std::string>{{"lr", "0.2"}, {"worker", "4"}});
  const Spec first = member_spec(spec, 1);
  CHECK(first.replica_count() == 2);   // master, ps
  CHECK(!first.is_set());
  CHECK(first.source.empty());
  CHECK(first.decider().run == std::vector<std::string>{"python train.py 0.1 --workers 1"});
  const Spec sixth = member_spec(spec, 6);
  CHECK(sixth.role(Role::Worker)->count == 3);
  CHECK(sixth.role(Role::Worker)->run == std::vector<std::string>{"python train.py 0.2 --workers 4"});
  CHECK(sixth.parameters == std::vector<Parameter>{{"lr", {"0.2"}}});
  check_reads_back(spec);
  check_reads_back(sixth);
}

TEST_CASE("what members are placed as is known for each combination") {
  const Spec spec = spec_of(kWorkers);
  const std::vector<Spec> shapes = shapes_of(spec);
  REQUIRE(shapes.size() == 4);
  CHECK(shapes[0].roles.empty());   // they share nothing
  for (uint32_t member = 1; member <= 6; ++member) {
    const Spec& shape = shapes[shape_of(spec, member)];
    CHECK(shape.replica_count() == member_spec(spec, member).replica_count());
    CHECK(shape.is_set());
  }
  const std::string board = std::string(kWorkers).replace(
      std::string(kWorkers).find("    distributed"), 0, "    tensorboard: true\n");
  const std::vector<Spec> with_board = shapes_of(spec_of(board));
  CHECK(with_board[0].replica_count() == 1);
  CHECK(with_board[1].role(Role::Tensorboard) == nullptr);
  CHECK(member_spec(spec_of(board), 0).decider().role == Role::Tensorboard);
}

TEST_CASE("two lists are told apart by what they belong to") {
  const Spec spec = spec_of(R"(
project: p1
train:
  framework: tensorflow
  resources: {cpus: [0.5, 1]}
  tensorflow:
    distributed:
      worker: {count: [2, 3], resources: {cpus: [1, 2]}}
      ps: 1
  run: x {{ worker }} {{ worker-cpus }} {{ train-cpus }}
)");
  CHECK(spec.member_count() == 8);
  const Spec last = member_spec(spec, 8);
  CHECK(last.role(Role::Worker)->count == 2);
  CHECK(last.role(Role::Worker)->resources.cpus == 2);
  CHECK(last.role(Role::Ps)->resources.cpus == 1);
  CHECK(last.decider().run == std::vector<std::string>{"x 3 2 1"});
  check_reads_back(spec);
}

TEST_CASE("what a command line changes later is written down, too") {
  Spec spec = spec_of(std::string("name: old\n") + (kWorkers + 1) + "  env: {A: '1'}\n  priority: 7\n");
  spec.name = "a: new";
  spec.note = "#1";
  spec.priority = 60;
  spec.env["B"] = "x\ny";
  spec.env_from_shell = {"TOKEN"};
  check_reads_back(spec);
  CHECK(member_spec(spec, 2).env.at("B") == "x\ny");
  CHECK(member_spec(spec, 2).name == "a: new");
}

TEST_CASE("texts of every kind come back from a varied file") {
  check_reads_back(spec_of(R"(
project: "7"
train:
  resources: {cpus: [1, 2], mem: "16GiB"}
  run:
    - >-
      python a.py
        --folded {{ cpus }}
    - |
      cat <<END
      two: lines
      END
    - 'quoted # and "more"'
  outputs: ["1.5", "true", a b]
  parameters: {x: ["1", '- y', true]}
  data: {set: /mnt/a}
)"));
}

TEST_CASE("a list may come from --set") {
  ParseOptions options;
  options.set = {{"train.resources.cpus", "[1, 2]"}};
  const Spec spec = spec_of("project: p1\ntrain: {run: x}\n", options);
  CHECK(spec.member_count() == 2);
  CHECK(member_spec(spec, 2).decider().resources.cpus == 2);
}

TEST_CASE("-p names a list as it names a parameter") {
  ParseOptions options;
  options.parameters = {{"worker", "2"}};
  const Spec two = spec_of(kWorkers, options);
  CHECK(two.member_count() == 2);
  CHECK(member_spec(two, 1).decider().run ==
        std::vector<std::string>{"python train.py 0.1 --workers 2"});
  check_reads_back(two);
  options.parameters = {{"worker", "[2, 3]"}, {"lr", "0.5"}};
  const Spec list = spec_of(kWorkers, options);
  CHECK(list.member_count() == 2);
  CHECK(member_spec(list, 2).replica_count() == 4);
  options.parameters = {{"worker", "2"}, {"lr", "0.5"}};
  const Spec one = spec_of(kWorkers, options);
  CHECK(!one.is_set());
  CHECK(member_spec(one, 0).replica_count() == 3);
  check_reads_back(one);
}

TEST_CASE("what is wrong with a list has its place") {
  CHECK(refusal("project: p1\ntrain:\n  resources: {cpus: [1, x]}\n  run: y\n") ==
        "dtrain.yml:3:25: train.resources.cpus: got 'x', expected a number from 0.01 to 4096");
  CHECK(refusal("project: p1\ntrain:\n  concurrency: [1, 2]\n  run: y\n").find("got a list") !=
        std::string::npos);
  CHECK(refusal("project: p1\ntrain:\n  parameters: {cpus: 1, train-cpus: 2}\n"
                "  resources: {cpus: [1, 2]}\n  run: y\n")
            .find("are both called 'train-cpus'") != std::string::npos);
  ParseOptions riseml;
  riseml.file_name = "riseml.yml";
  CHECK(refusal("project: p1\ntrain:\n  resources: {cpus: [1, 2]}\n  run: y\n", riseml)
            .find("got a list") != std::string::npos);
  std::string huge = "project: p1\ntrain:\n  resources: {cpus: [1, 2]}\n  run:\n    - &long '" +
                     std::string(90'000, 'x') + "'\n";
  for (int i = 0; i < 20; ++i) huge += "    - *long\n";
  CHECK(refusal(huge).find("spelt out this is more than 524288 bytes") != std::string::npos);
  std::string many = "[1";
  for (int i = 2; i <= 20; ++i) many += "," + std::to_string(i);
  many += "]";
  CHECK(refusal("project: p1\ntrain:\n  resources: {cpus: " + many + ", gpus: " + many +
                "}\n  run: y\n")
            .find("make 400 combinations, expected at most 256") != std::string::npos);
}
