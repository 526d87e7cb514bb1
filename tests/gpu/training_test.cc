// Whole trainings by a replica on devices, beside the same on the CPU.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/cuda/gpus.h"
#include "engine/data/digits.h"
#include "engine/formats/safetensors.h"
#include "engine/training/replica.h"
#include "tests/engine/server/servers.h"
#include "tests/gpu/device_array.h"

namespace dtrain::engine {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// A folder with digits, which goes with it.
struct Folder {
  Folder() {
    std::string name = (fs::temp_directory_path() / "dtrain-gpu-XXXXXX").native();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path = name;
    REQUIRE(generate_digits(path, {.train = 300, .test = 60, .seed = 1}).ok());
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  fs::path path;
};

enum class On { Cpu, Device };

#ifdef DTRAIN_EMULATED_CUDA
void have_devices(int count) { emulated::set_device_count(count); }
#endif

Json spec_of(const Folder& folder, On on, const Json& changes) {
  Json spec = {{"model", {{"mlp", {{"hidden", {24}}}}}},
               {"data", {{"train", folder.path / "train"}, {"test", folder.path / "test"}}},
               {"batch", 30},
               {"steps", 8},
               {"optimizer", {{"kind", "sgd"}, {"learning-rate", 0.1}, {"momentum", 0.9}}},
               {"deadline", 20}};
  if (on == On::Device) spec["precision"] = "fp32";
  if (changes.contains("model")) spec.erase("model");
  spec.merge_patch(changes);
  return spec;
}

// As the runner starts it: one process, or one of those in `places`.
Status train(const Folder& folder, On on, const std::string& output, const Json& changes, const std::string& places = "") {
  ::setenv("DTRAIN_ENGINE", spec_of(folder, on, changes).dump().c_str(), 1);
  ::setenv("OUTPUT_DIR", (folder.path / output).c_str(), 1);
  ::setenv("OMP_NUM_THREADS", "1", 1);
  ::setenv("CUDA_VISIBLE_DEVICES", on == On::Device ? "0,1,2" : "", 1);
  places.empty() ? ::unsetenv("TF_CONFIG") : ::setenv("TF_CONFIG", places.c_str(), 1);
  const Status status = run_replica({}, &cuda::gpus());
  ::unsetenv("TF_CONFIG");
  return status;
}

// All tensors, one after the other.
std::vector<float> model_of(const Folder& folder, const std::string& output, const Json& changes = Json::object()) {
  const auto file = SafetensorsFile::open(folder.path / output / "model.safetensors");
  REQUIRE(file.ok());
  const bool has_text = changes.contains("model") && changes["model"].contains("gpt");
  const SampleShape images{.channels = 1, .height = 28, .width = 28, .classes = 10}, text{.context = 6, .vocabulary = 128};
  Json model = changes.contains("model") ? changes["model"] : Json{{"mlp", {{"hidden", {24}}}}};
  const auto spec = engine_spec_from_json(Json{{"model", model}, {"data", {{"train", "x"}}}}.dump());
  REQUIRE(spec.ok());
  std::vector<float> all;
  const Layout layout = layout_of(spec->model, has_text ? text : images);
  for (const Parameter& p : layout.parameters()) {
    std::vector<int64_t> shape = p.shape;
    if (p.transposed) std::swap(shape[0], shape[1]);
    const size_t before = all.size();
    all.resize(before + static_cast<size_t>(p.size()));
    REQUIRE(file->read(p.name, shape, {all.data() + before, static_cast<size_t>(p.size())}).ok());
  }
  return all;
}

double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double apart = 0, length = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    apart += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
    length += std::pow(static_cast<double>(a[i]), 2);
  }
  return std::sqrt(apart / length);
}

// Whether there is a device at all.
bool has_device() { return cuda::test_context() != nullptr; }

const Json kAdam = {{"optimizer", {{"kind", "adamw"}, {"learning-rate", 0.003}, {"weight-decay", 0.1}}}};

TEST_CASE("a training on a device comes to the model that the CPU comes to") {
  if (!has_device()) return;
  const Folder folder;
  Json changes = Json::object();
  SUBCASE("with momentum") {}
  SUBCASE("plain") { changes = {{"optimizer", {{"kind", "sgd"}, {"learning-rate", 0.1}}}}; }
  SUBCASE("with AdamW") { changes = kAdam; }
  SUBCASE("with clipping") { changes = {{"clip", 0.05}}; }
  SUBCASE("in pieces") { changes = {{"micro-batch", 7}}; }
  REQUIRE(train(folder, On::Cpu, "cpu", changes).ok());
  const Status status = train(folder, On::Device, "device", changes);
  if (!status.ok()) FAIL(status.error().message);
  CHECK(distance(model_of(folder, "cpu"), model_of(folder, "device")) < 1e-5);
}

TEST_CASE("a training on a device that starts again goes on to the same bits") {
  if (!has_device()) return;
  const Folder folder;
  const Json every = {{"checkpoint", {{"steps", 3}}}};
  Json shorter = every;
  shorter.merge_patch(kAdam);
  Json longer = shorter;
  shorter["steps"] = 6;
  REQUIRE(train(folder, On::Device, "whole", longer).ok());
  REQUIRE(train(folder, On::Device, "parts", shorter).ok());
  REQUIRE(train(folder, On::Device, "parts", longer).ok());
  CHECK(model_of(folder, "whole") == model_of(folder, "parts"));
}

TEST_CASE("bf16 rounds what is computed, not what is learned") {
  if (!has_device()) return;
  const Folder folder;
  REQUIRE(train(folder, On::Cpu, "cpu", kAdam).ok());
  Json changes = kAdam;
  changes["precision"] = "bf16";
  REQUIRE(train(folder, On::Device, "device", changes).ok());
  const double apart = distance(model_of(folder, "cpu"), model_of(folder, "device"));
  CHECK(apart > 1e-6);
  CHECK(apart < 0.1);
}

TEST_CASE("a number that is none ends a training on a device by the name of the step") {
  if (!has_device()) return;
  const Folder folder;
  const Status status = train(folder, On::Device, "out", {{"optimizer", {{"learning-rate", 1e6}}}, {"steps", 40}});
  REQUIRE(!status.ok());
  CHECK(status.error().code == Code::InvalidArgument);
  CHECK_MESSAGE(status.error().message.find(" in step ") != std::string::npos, status.error().message);
  CHECK(!fs::exists(folder.path / "out" / "model.safetensors"));
}

#ifdef DTRAIN_EMULATED_CUDA

TEST_CASE("several devices come to the model of one") {
  have_devices(3);
  const Folder folder;
  Json changes = kAdam;
  Json strategy = {{"kind", "mirrored"}};
  SUBCASE("all gradients at once") {}
  SUBCASE("those of the last layers while the others are computed") { strategy["bucket-mb"] = 0.001; }
  SUBCASE("in pieces") {
    strategy["bucket-mb"] = 0.001;
    changes["micro-batch"] = 4;
  }
  SUBCASE("one of them has no samples") {
    strategy["bucket-mb"] = 0.001;
    changes["batch"] = 2;
  }
  REQUIRE(train(folder, On::Device, "one", changes).ok());
  for (const int devices : {2, 3}) {
    CAPTURE(devices);
    strategy["devices"] = devices;
    changes["strategy"] = strategy;
    const Status status = train(folder, On::Device, "several", changes);
    if (!status.ok()) FAIL(status.error().message);
    CHECK(distance(model_of(folder, "one"), model_of(folder, "several")) < 1e-5);
    fs::remove_all(folder.path / "several");
  }
  have_devices(1);
  CHECK(emulated::device_bytes() == 0);
}

// Fibers are slow under the address sanitizer.
#ifdef __SANITIZE_ADDRESS__
constexpr int kTextSteps = 2;
#else
constexpr int kTextSteps = 4;
#endif

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
    changes.merge_patch({{"batch", 11}, {"steps", kTextSteps}});
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
    check_split(kMlp, pipeline(4), 3, 1e-5);
    check_split(kMlp, pipeline(1), 4, 1e-5, clip);
    check_split(kMlp, pipeline(7), 2, 1e-5);
  }
  SUBCASE("lenet, pipeline") { check_split(kLenet, pipeline(3), 4, 1e-5, clip); }
  SUBCASE("gpt, pipeline") {
    check_split(kGpt, pipeline(4), 4, 1e-4);
    check_split(kGpt, pipeline(3), 2, 1e-4, clip);
  }
  SUBCASE("mlp, tensor") { check_split(kMlp, tensor, 4, 1e-5, clip); }
  SUBCASE("lenet, tensor") { check_split(kLenet, tensor, 2, 1e-5); }
  SUBCASE("gpt, tensor") { check_split(kGpt, tensor, 4, 1e-4, clip); }
  SUBCASE("mlp, mesh") { check_split(kMlp, mesh(2, 2), 4, 1e-5, clip); }
  SUBCASE("gpt, mesh") {
    check_split(kGpt, mesh(3, 2), 6, 1e-4);
    check_split(kGpt, mesh(2, 2), 4, 1e-4, clip);
  }
  SUBCASE("in bf16") {
    check_split(kGpt, pipeline(4), 4, 0.05, bf16);
    check_split(kGpt, tensor, 2, 0.05, bf16);
  }
  SUBCASE("kept by the host") { check_split(kMlp, {{"kind", "central-storage"}}, 3, 1e-5, clip); }
}

TEST_CASE("devices whose parameters servers keep come to what one comes to alone") {
  const Folder folder;
  have_devices(2);
  Json changes = {{"strategy", {{"kind", "parameter-server"}, {"mode", "sync"}, {"devices", 0}}}};
  SUBCASE("one step after the other") {}
  SUBCASE("as gradients come") { changes["strategy"]["mode"] = "async"; }
  REQUIRE(train(folder, On::Device, "alone", Json::object()).ok());
  const auto spec = engine_spec_from_json(spec_of(folder, On::Device, changes).dump());
  REQUIRE(spec.ok());
  const Layout layout = layout_of(spec->model, {.channels = 1, .height = 28, .width = 28, .classes = 10});
  const Servers servers(*spec, layout, 2, 1);
  const Json places = {{"cluster", {{"worker", {"127.0.0.1:1"}}, {"ps", servers.worker(0).servers}}},
                       {"task", {{"type", "worker"}, {"index", 0}}}};
  const Status status = train(folder, On::Device, "served", changes, places.dump());
  have_devices(1);
  if (!status.ok()) FAIL(status.error().message);
  CHECK(distance(model_of(folder, "alone"), model_of(folder, "served")) < 1e-5);
  CHECK(emulated::device_bytes() == 0);
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

TEST_CASE("a GPU that does not answer ends all within the deadline, and all say so") {
  have_devices(3);
  const Folder folder;
  Json changes = {{"deadline", 2}, {"strategy", {{"kind", "mirrored"}}}};
  SUBCASE("all gradients at once") {}
  SUBCASE("in buckets") { changes["strategy"]["bucket-mb"] = 0.001; }
  for (const int device : {0, 2}) {
    CAPTURE(device);
    emulated::hang(device);
    const Status status = train(folder, On::Device, "out", changes);
    emulated::recover();
    REQUIRE(!status.ok());
    // GPUs, or who waits for his: not that communication was given up, which comes of it.
    CHECK_MESSAGE(status.error().message.find(" did not answer for 2 s") != std::string::npos, status.error().message);
    CHECK(emulated::device_bytes() == 0);
  }
  have_devices(1);
}

TEST_CASE("a mesh that does not fit the GPUs is told so") {
  have_devices(3);
  const Folder folder;
  const Status status = train(folder, On::Device, "out", {{"strategy", {{"kind", "mesh"}, {"mesh-data", 1}, {"mesh-model", 2}}}});
  have_devices(1);
  REQUIRE(!status.ok());
  CHECK(status.error().message == "a mesh with 2 parts of the model needs a multiple of 2 GPUs, and there are 3");
}

TEST_CASE("two participants with one GPU are told so") {
  have_devices(2);
  emulated::make_devices_one(true);
  const Folder folder;
  const Status status = train(folder, On::Device, "out", {{"strategy", {{"kind", "mirrored"}}}});
  emulated::make_devices_one(false);
  have_devices(1);
  REQUIRE(!status.ok());
  CHECK(status.error().code == Code::InvalidArgument);
  CHECK_MESSAGE(status.error().message.find("have the same GPU, Emulated GPU GPU-01000000-") != std::string::npos,
                status.error().message);
}

TEST_CASE("memory that is not enough is told before training") {
  const Folder folder;
  emulated::fail_allocations_above(50'000);
  const Status status = train(folder, On::Device, "out", Json::object());
  emulated::fail_allocations_above(SIZE_MAX);
  REQUIRE(!status.ok());
  CHECK(status.error().code == Code::ResourceExhausted);
  CHECK(emulated::device_bytes() == 0);
}

TEST_CASE("without a GPU a replica that was given one says so") {
  have_devices(0);
  const Folder folder;
  const Status status = train(folder, On::Device, "out", Json::object());
  have_devices(1);
  REQUIRE(!status.ok());
  CHECK(status.error().message == "CUDA_VISIBLE_DEVICES=0,1,2 names no GPU that is here");
}

TEST_CASE("a program without a backend says what to build") {
  ::setenv("DTRAIN_ENGINE", "{}", 1);
  ::setenv("CUDA_VISIBLE_DEVICES", "0", 1);
  const Status status = run_replica({}, nullptr);
  REQUIRE(!status.ok());
  CHECK(status.error().message == "this dtrain-engine was built without GPUs");
}

#endif

}  // namespace
}  // namespace dtrain::engine
