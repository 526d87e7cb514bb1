// Whole trainings by a replica on devices, beside the same on the CPU.
#include <fstream>

#include "engine/strategies/assemble.h"
#include "tests/engine/server/servers.h"
#include "tests/gpu/device_trainings.h"

namespace dtrain::engine {
namespace {

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

TEST_CASE("a training on a device that starts again goes on to the same model") {
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
#ifdef DTRAIN_EMULATED_CUDA
  CHECK(model_of(folder, "whole") == model_of(folder, "parts"));
#else  // each training times cuBLASLt's candidates, and may come to another one
  CHECK(distance(model_of(folder, "whole"), model_of(folder, "parts")) < 1e-5);
#endif
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

TEST_CASE("a step on one device is one graph, from the second of a size on") {
  have_devices(1);
  const Folder folder;
  Json changes = Json::object();
  SUBCASE("mlp") {}
  SUBCASE("mlp in bf16") { changes = {{"precision", "bf16"}}; }
  SUBCASE("lenet") { changes = {{"model", {{"lenet", Json::object()}}}}; }
  SUBCASE("gpt") {
    std::ofstream(folder.path / "text") << std::string(4000, 'x');
    const Json model = {{"layers", 1}, {"heads", 2}, {"width", 16}, {"context", 6}};
    changes = {{"model", {{"gpt", model}}}, {"data", {{"train", folder.path / "text"}, {"test", folder.path / "text"}}},
               {"precision", "bf16"}};
  }
  const int64_t before = emulated::graph_launches();
  const Status status = train(folder, On::Device, "out", changes);
  if (!status.ok()) FAIL(status.error().message);
  CHECK(emulated::graph_launches() - before >= 7);  // of 8
}

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

// On devices, by two servers.
Status train_with_servers(const Folder& folder, const std::string& output, const Json& changes) {
  const auto spec = engine_spec_from_json(spec_of(folder, On::Device, changes).dump());
  REQUIRE(spec.ok());
  const Layout layout = layout_of(spec->model, {.channels = 1, .height = 28, .width = 28, .classes = 10});
  Place place;
  place.workers = {""};
  const auto plan = make_plan(*spec, place, folder.path);
  REQUIRE(plan.ok());
  const Servers servers(*spec, layout, 2, 1, 0, plan->data);
  const Json places = {{"cluster", {{"worker", {"127.0.0.1:1"}}, {"ps", servers.worker(0).servers}}},
                       {"task", {{"type", "worker"}, {"index", 0}}}};
  return train(folder, On::Device, output, changes, places.dump());
}

TEST_CASE("devices whose parameters servers keep come to what one comes to alone") {
  const Folder folder;
  have_devices(2);
  Json changes = {{"strategy", {{"kind", "parameter-server"}, {"mode", "sync"}, {"devices", 0}}}};
  SUBCASE("one step after the other") {}
  SUBCASE("as gradients come") { changes["strategy"]["mode"] = "async"; }
  REQUIRE(train(folder, On::Device, "alone", Json::object()).ok());
  const Status status = train_with_servers(folder, "served", changes);
  have_devices(1);
  if (!status.ok()) FAIL(status.error().message);
  CHECK(distance(model_of(folder, "alone"), model_of(folder, "served")) < 1e-5);
  CHECK(emulated::device_bytes() == 0);
}

TEST_CASE("a device goes on with the updates that servers have counted, as the CPU does") {
  const Folder folder;
  have_devices(1);
  Json served = kAdam, alone = kAdam;
  served["strategy"] = {{"kind", "parameter-server"}, {"apply-every", 4}};
  const Status status = train_with_servers(folder, "served", served);
  if (!status.ok()) FAIL(status.error().message);
  alone.merge_patch({{"steps", 11}, {"checkpoint", {{"from", folder.path / "served"}}}});
  REQUIRE(train(folder, On::Device, "device", alone).ok());
  REQUIRE(train(folder, On::Cpu, "cpu", alone).ok());
  CHECK(distance(model_of(folder, "device"), model_of(folder, "cpu")) < 1e-5);
}

TEST_CASE("one device whose parameters the host keeps comes to what it comes to alone") {
  have_devices(1);
  const Folder folder;
  REQUIRE(train(folder, On::Device, "alone", Json::object()).ok());
  const Status status = train(folder, On::Device, "kept", {{"strategy", {{"kind", "central-storage"}}}});
  if (!status.ok()) FAIL(status.error().message);
  CHECK(distance(model_of(folder, "alone"), model_of(folder, "kept")) < 1e-5);
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
  CHECK(status.error().message == "strategy.mesh: a mesh of 1 x 2 needs 2 GPUs, and there are 3");
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

TEST_CASE("memory that is not enough is told before training, with what is free") {
  const Folder folder;
  // Nothing at all; nothing for parameters; nothing for activations.
  for (const auto& [most, what] : {std::pair{size_t{0}, "anything"}, {50'000, "a model of "}, {600'000, "the activations of "}}) {
    CAPTURE(what);
    emulated::fail_allocations_above(most);
    const Status status = train(folder, On::Device, "out", {{"model", {{"mlp", {{"hidden", {24, 3000}}}}}}, {"batch", 200}});
    emulated::fail_allocations_above(SIZE_MAX);
    REQUIRE(!status.ok());
    CHECK(status.error().code == Code::ResourceExhausted);
    CHECK_MESSAGE(status.error().message.starts_with(std::string("Emulated GPU has not enough memory for ") + what),
                  status.error().message);
    CHECK(status.error().message.ends_with(": 1.0 of 1.0 GiB are free"));
    CHECK(emulated::device_bytes() == 0);
  }
}

TEST_CASE("a device has room for its samples, and for no more") {
  const Folder folder;
  emulated::fail_allocations_above(30 * 28 * 28 * sizeof(float));  // a batch, which is more than the parameters
  const Status status = train(folder, On::Device, "out", Json::object());
  emulated::fail_allocations_above(SIZE_MAX);
  if (!status.ok()) FAIL(status.error().message);
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
