// What GPUs tell each other beside their steps.
#include <thread>

#include "engine/cuda/device_updater.h"
#include "engine/environment.h"
#include "engine/strategies/assemble.h"
#include "tests/gpu/device_trainings.h"

#ifdef DTRAIN_EMULATED_CUDA

namespace dtrain::engine {
namespace {

// Of a replica on so many GPUs.
struct Opened {
  Opened(const Folder& folder, int devices, const Json& changes) {
    auto spec = engine_spec_from_json(spec_of(folder, On::Device, changes).dump());
    REQUIRE(spec.ok());
    have_devices(devices);
    auto place = place_from_environment();
    REQUIRE(place.ok());
    auto made = make_plan(std::move(*spec), std::move(*place), folder.path / "out", devices);
    REQUIRE(made.ok());
    plan.emplace(std::move(*made));
    auto gang = assemble(*plan);
    REQUIRE(gang.ok());
    auto opened = cuda::DeviceUpdater::open(*plan, std::move(*gang));
    REQUIRE(opened.ok());
    updater = std::move(*opened);
  }
  ~Opened() {
    const int64_t before = emulated::communicators_ended_alone();
    updater.reset();
    have_devices(1);
    CHECK(emulated::device_bytes() == 0);
    CHECK(emulated::communicators_ended_alone() == before);
  }
  std::optional<RunPlan> plan;
  std::unique_ptr<cuda::DeviceUpdater> updater;
};

TEST_CASE("who waits for parameters from one that never comes ends within the deadline") {
  const Folder folder;
  const Opened opened(folder, 4, {{"strategy", {{"kind", "mesh"}, {"mesh-data", 2}, {"mesh-model", 2}}}, {"deadline", 2}});
  std::vector<Status> statuses(4, ok());
  std::vector<std::thread> threads;
  for (const int me : {0, 2, 3}) {  // 3 has its parameters from 1
    threads.emplace_back([&, me] { statuses[static_cast<size_t>(me)] = opened.updater->distribute(me, 0, 0); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const int me : {0, 2, 3}) {
    CAPTURE(me);
    const Status& status = statuses[static_cast<size_t>(me)];
    REQUIRE(!status.ok());
    CHECK_MESSAGE(status.error().message.find("for 2 s") != std::string::npos, status.error().message);
  }
}

TEST_CASE("NCCL is asked to keep the order of sums where a GPU has two on their way at once") {
  const Folder folder;
  const auto asked = [&](int devices, const Json& strategy) {
    ::unsetenv("NCCL_LAUNCH_ORDER_IMPLICIT");
    const Opened opened(folder, devices, {{"strategy", strategy}});
    return variable("NCCL_LAUNCH_ORDER_IMPLICIT");
  };
  CHECK(asked(4, {{"kind", "mesh"}, {"mesh-data", 2}, {"mesh-model", 2}}) == "1");
  CHECK(asked(2, {{"kind", "mesh"}, {"mesh-data", 1}, {"mesh-model", 2}}) == "");
  CHECK(asked(2, {{"kind", "mirrored"}}) == "");
}

TEST_CASE("one GPU alone may take longer than the deadline") {
  const Folder folder;
  const auto is_watched = [&](int devices) {
    const Opened opened(folder, devices, {{"strategy", {{"kind", "mirrored"}}}});
    return opened.updater->watch(0, 0, "evaluate") != nullptr;
  };
  CHECK(!is_watched(1));
  CHECK(is_watched(2));
}

}  // namespace
}  // namespace dtrain::engine

#endif
