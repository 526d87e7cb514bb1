// Models whose parts are on several devices, beside the same on one.
#include <fstream>

#include "tests/gpu/device_trainings.h"
#include "tests/support/sanitized.h"

#ifdef DTRAIN_EMULATED_CUDA

namespace dtrain::engine {
namespace {

// What is trained alone, and on so many devices in parts.
void check_split(const Json& model, const Json& strategy, int devices, double tolerance, const Json& more = Json::object()) {
  const Folder folder;
  Json changes = kAdam;
  changes.merge_patch(more);
  changes["model"] = model;
  if (model.contains("gpt")) {
    const std::string words = "the quick brown fox jumps over the lazy dog, and the dog does not mind. ";
    std::ofstream(folder.path / "train.txt") << words + words + words + words;
    std::ofstream(folder.path / "test.txt") << words;
    changes["data"] = {{"train", folder.path / "train.txt"}, {"test", folder.path / "test.txt"}};
    changes.merge_patch({{"batch", 11}, {"steps", 2}});
  } else if (model.contains("lenet")) {
    changes["steps"] = 3;
  }
  have_devices(devices);
  const Status alone = train(folder, On::Device, "one", changes);
  if (!alone.ok()) FAIL(alone.error().message);
  changes["strategy"] = strategy;
  const Status status = train(folder, On::Device, "parts", changes);
  have_devices(1);
  if (!status.ok()) FAIL(status.error().message);
  CHECK(distance(model_of(folder, "one", changes), model_of(folder, "parts", changes)) < tolerance);
  CHECK(emulated::device_bytes() == 0);
}

const Json kMlp = {{"mlp", {{"hidden", {24, 16, 12}}}}};
const Json kLenet = {{"lenet", {{"kernel", 5}, {"channels", {4, 6}}, {"hidden", {24, 12}}}}};
const Json kGpt = {{"gpt", {{"layers", 4}, {"heads", 4}, {"width", 16}, {"context", 6}, {"vocabulary", 128}}}};

TEST_CASE("a model whose parts are on several devices comes to what one comes to") {
  const auto pipeline = [](int micro_batches) {
    return Json{{"kind", "pipeline"}, {"micro-batches", micro_batches}};
  };
  const Json tensor = {{"kind", "tensor"}};
  const auto mesh = [](int data, int model) {
    return Json{{"kind", "mesh"}, {"mesh-data", data}, {"mesh-model", model}, {"bucket-mb", 0.002}};
  };
  const Json clip = {{"clip", 0.05}}, bf16 = {{"precision", "bf16"}};
  SUBCASE("mlp, pipeline") {
    check_split(kMlp, pipeline(4), 3, 1e-5, clip);
    if (tests::kSanitized) return;
    check_split(kMlp, pipeline(1), 4, 1e-5, clip);
    check_split(kMlp, pipeline(7), 2, 1e-5);
  }
  SUBCASE("lenet, pipeline") { check_split(kLenet, pipeline(3), 4, 1e-5, clip); }
  SUBCASE("gpt, pipeline") {
    check_split(kGpt, pipeline(3), 2, 1e-4, clip);
    if (!tests::kSanitized) check_split(kGpt, pipeline(4), 4, 1e-4);
  }
  SUBCASE("mlp, tensor") { check_split(kMlp, tensor, 4, 1e-5, clip); }
  SUBCASE("lenet, tensor") { check_split(kLenet, tensor, 2, 1e-5); }
  SUBCASE("gpt, tensor") { check_split(kGpt, tensor, 4, 1e-4, clip); }
  SUBCASE("mlp, mesh") { check_split(kMlp, mesh(2, 2), 4, 1e-5, clip); }
  SUBCASE("gpt, mesh") {
    check_split(kGpt, mesh(2, 2), 4, 1e-4, clip);
    if (!tests::kSanitized) check_split(kGpt, mesh(3, 2), 6, 1e-4);
  }
  SUBCASE("in bf16") {
    check_split(kGpt, pipeline(4), 4, 0.05, bf16);
    check_split(kGpt, tensor, 2, 0.05, bf16);
  }
  SUBCASE("kept by the host") { check_split(kMlp, {{"kind", "central-storage"}}, 3, 1e-5, clip); }
}

TEST_CASE("parts go on from a checkpoint of the whole, and the whole from one of parts") {
  const Folder folder;
  have_devices(4);
  Json changes = kAdam;
  changes["model"] = kMlp;
  changes["checkpoint"] = {{"steps", 3}};
  REQUIRE(train(folder, On::Device, "whole", changes).ok());
  const Json alone = nullptr, tensor = {{"kind", "tensor"}}, stages = {{"kind", "pipeline"}, {"micro-batches", 2}};
  for (const auto& [before, after] : {std::pair{alone, tensor}, {tensor, stages}, {stages, alone}}) {
    CAPTURE(before.dump());
    changes["steps"] = 6;
    changes["strategy"] = before;
    REQUIRE(train(folder, On::Device, "parts", changes).ok());
    changes["steps"] = 8;
    changes["strategy"] = after;
    const Status status = train(folder, On::Device, "parts", changes);
    if (!status.ok()) FAIL(status.error().message);
    CHECK(distance(model_of(folder, "whole", changes), model_of(folder, "parts", changes)) < 1e-5);
    fs::remove_all(folder.path / "parts");
  }
  have_devices(1);
}

TEST_CASE("a number that is none ends all parts of a model by the name of the step") {
  have_devices(4);
  const Folder folder;
  Json changes = {{"model", kMlp}, {"optimizer", {{"learning-rate", 1e6}}}, {"steps", 40}};
  SUBCASE("stages") { changes["strategy"] = {{"kind", "pipeline"}, {"micro-batches", 3}}; }
  SUBCASE("slices") { changes["strategy"] = {{"kind", "tensor"}}; }
  SUBCASE("copies of slices") { changes["strategy"] = {{"kind", "mesh"}, {"mesh-data", 2}, {"mesh-model", 2}}; }
  SUBCASE("kept by the host") { changes["strategy"] = {{"kind", "central-storage"}}; }
  const Status status = train(folder, On::Device, "out", changes);
  have_devices(1);
  REQUIRE(!status.ok());
  CHECK(status.error().code == Code::InvalidArgument);
  CHECK_MESSAGE(status.error().message.find(" in step ") != std::string::npos, status.error().message);
}

}  // namespace
}  // namespace dtrain::engine

#endif
