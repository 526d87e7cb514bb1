// Whole trainings by a replica on devices, beside the same on the CPU.
#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/cuda/gpus.h"
#include "engine/data/digits.h"
#include "engine/formats/safetensors.h"
#include "engine/training/replica.h"
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

// As the runner starts it: one process.
Status train(const Folder& folder, On on, const std::string& output, const Json& changes) {
  Json spec = {{"model", {{"mlp", {{"hidden", {24}}}}}},
               {"data", {{"train", folder.path / "train"}, {"test", folder.path / "test"}}},
               {"batch", 30},
               {"steps", 8},
               {"optimizer", {{"kind", "sgd"}, {"learning-rate", 0.1}, {"momentum", 0.9}}},
               {"deadline", 20}};
  if (on == On::Device) spec["precision"] = "fp32";
  spec.merge_patch(changes);
  ::setenv("DTRAIN_ENGINE", spec.dump().c_str(), 1);
  ::setenv("OUTPUT_DIR", (folder.path / output).c_str(), 1);
  ::setenv("OMP_NUM_THREADS", "1", 1);
  ::setenv("CUDA_VISIBLE_DEVICES", on == On::Device ? "0,1" : "", 1);
  ::unsetenv("TF_CONFIG");
  return run_replica({}, &cuda::gpus());
}

std::vector<float> model_of(const Folder& folder, const std::string& output) {
  const auto file = SafetensorsFile::open(folder.path / output / "model.safetensors");
  REQUIRE(file.ok());
  std::vector<float> all;
  for (const auto& [name, shape] :
       std::vector<std::pair<std::string, std::vector<int64_t>>>{
           {"layers.0.weight", {24, 784}}, {"layers.0.bias", {24}}, {"layers.1.weight", {10, 24}}, {"layers.1.bias", {10}}}) {
    int64_t size = 1;
    for (const int64_t n : shape) size *= n;
    const size_t before = all.size();
    all.resize(before + static_cast<size_t>(size));
    REQUIRE(file->read(name, shape, {all.data() + before, static_cast<size_t>(size)}).ok());
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

TEST_CASE("a strategy that GPUs have not is refused") {
  if (!has_device()) return;
  const Folder folder;
  const Status status = train(folder, On::Device, "out", {{"strategy", {{"kind", "pipeline"}}}});
  REQUIRE(!status.ok());
  CHECK(status.error().message == "strategy: pipeline trains on CPUs only");
}

#ifdef DTRAIN_EMULATED_CUDA

TEST_CASE("several devices come to the model of one") {
  have_devices(3);
  const Folder folder;
  Json changes = kAdam;
  REQUIRE(train(folder, On::Device, "one", changes).ok());
  for (const int devices : {2, 3}) {
    CAPTURE(devices);
    changes["strategy"] = {{"kind", "mirrored"}, {"devices", devices}};
    const Status status = train(folder, On::Device, "several", changes);
    if (!status.ok()) FAIL(status.error().message);
    CHECK(distance(model_of(folder, "one"), model_of(folder, "several")) < 1e-5);
    fs::remove_all(folder.path / "several");
  }
  have_devices(1);
  CHECK(emulated::device_bytes() == 0);
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
  CHECK(status.error().message == "CUDA_VISIBLE_DEVICES=0,1 names no GPU that is here");
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
