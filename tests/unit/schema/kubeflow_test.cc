#include "schema/kubeflow.h"

#include <doctest/doctest.h>

#include "schema/kubeflow_keys.h"
#include "schema/spec.h"
#include "tests/support/golden.h"

using namespace dtrain;
using namespace dtrain::tests;

TEST_CASE("a manifest is the dtrain.yml that means the same, and says what it leaves out") {
  for (const auto& file : golden_files("kubeflow/good", ".yaml")) {
    CAPTURE(file.filename().string());
    std::vector<std::string> notes;
    ParseOptions options;
    options.file_name = file.filename();
    options.notes = &notes;
    const auto spec = parse_spec(text_of(file), options);
    if (!spec.ok()) FAIL(spec.error().message);
    std::string got;
    for (const std::string& note : notes) got += "# " + note + "\n";
    check_expected(file, got + to_yaml(*spec));
    const auto again = parse_spec(to_yaml(*spec), {});
    REQUIRE(again.ok());
    CHECK(*again == *spec);
  }
}

TEST_CASE("what is wrong with a manifest is said where it stands in it") {
  for (const auto& file : golden_files("kubeflow/bad", ".yaml")) {
    CAPTURE(file.filename().string());
    ParseOptions options;
    options.file_name = file.filename();
    const auto spec = parse_spec(text_of(file), options);
    REQUIRE(!spec.ok());
    check_expected(file, spec.error().message + "\n");
  }
}

TEST_CASE("the command line has the last word about a manifest, too") {
  const std::string text = text_of(TESTDATA "/kubeflow/good/tfjob.yaml");
  ParseOptions options;
  options.set = {{"train.tensorflow.distributed.worker.resources.gpus", "0"}, {"project", "other"}};
  const auto changed = parse_spec(text, options);
  REQUIRE(changed.ok());
  CHECK(changed->project == "other");
  CHECK(changed->role(Role::Worker)->resources.gpus == 0);

  const std::string images_command =
      "{apiVersion: kubeflow.org/v1, kind: TFJob, metadata: {name: x}, spec: {tfReplicaSpecs: {Worker: {template: {spec: "
      "{containers: [{name: tensorflow, image: a, args: [b]}]}}}}}}";
  CHECK(!parse_spec(images_command, {}).ok());
  options.set = {{"train.run", "python3 t.py"}};
  const auto given = parse_spec(images_command, options);
  REQUIRE(given.ok());
  CHECK(given->decider().run == std::vector<std::string>{"python3 t.py"});
}

TEST_CASE("parameters may stand in a manifest's command") {
  ParseOptions options;
  options.parameters = {{"rate", "[0.1, 0.2]"}};
  const auto set = parse_spec(
      "{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {name: x}, spec: {pytorchReplicaSpecs: {Master: {template: "
      "{spec: {containers: [{name: pytorch, command: [python3, t.py, '--rate={{ rate }}']}]}}}}}}",
      options);
  REQUIRE(set.ok());
  CHECK(set->member_count() == 2);
}

TEST_CASE("amounts of Kubernetes") {
  CHECK(parse_quantity("2") == 2);
  CHECK(parse_quantity("0.5") == 0.5);
  CHECK(parse_quantity("500m") == 0.5);
  CHECK(parse_quantity("4Gi") == 4294967296.0);
  CHECK(parse_quantity("512M") == 512e6);
  CHECK(parse_quantity("1e9") == 1e9);
  CHECK(parse_quantity("12k") == 12e3);
  for (const char* text : {"", "Gi", "4 Gi", "4GiB", "-1", "inf", "nan", "1e999", "0x10", "2 cores"}) {
    CAPTURE(text);
    CHECK(!parse_quantity(text));
  }
  CHECK(parse_processes("8") == 8);
  for (const char* text : {"", "0", "-1", "1025", "2x", "auto"}) CHECK(!parse_processes(text));
}
