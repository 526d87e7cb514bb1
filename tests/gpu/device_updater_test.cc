// What GPUs tell each other beside their steps.
#include <thread>

#include "engine/cuda/device_updater.h"
#include "engine/strategies/assemble.h"
#include "tests/gpu/device_trainings.h"

#ifdef DTRAIN_EMULATED_CUDA

namespace dtrain::engine {
namespace {

TEST_CASE("who waits for parameters from one that never comes ends within the deadline") {
  const Folder folder;
  const Json mesh = {{"kind", "mesh"}, {"mesh-data", 2}, {"mesh-model", 2}};
  auto spec = engine_spec_from_json(spec_of(folder, On::Device, {{"strategy", mesh}, {"deadline", 2}}).dump());
  REQUIRE(spec.ok());
  have_devices(4);
  auto place = place_from_environment();
  REQUIRE(place.ok());
  const auto plan = make_plan(std::move(*spec), std::move(*place), folder.path / "out", 4);
  REQUIRE(plan.ok());
  auto gang = assemble(*plan);
  REQUIRE(gang.ok());
  {
    const auto updater = cuda::gpus().open_updater(*plan, std::move(*gang));
    REQUIRE(updater.ok());
    std::vector<Status> statuses(4, ok());
    std::vector<std::thread> threads;
    for (const int me : {0, 2, 3}) {  // 3 has its parameters from 1
      threads.emplace_back([&, me] { statuses[static_cast<size_t>(me)] = (*updater)->distribute(me, 0, 0); });
    }
    for (std::thread& thread : threads) thread.join();
    for (const int me : {0, 2, 3}) {
      CAPTURE(me);
      const Status& status = statuses[static_cast<size_t>(me)];
      REQUIRE(!status.ok());
      CHECK_MESSAGE(status.error().message.find("for 2 s") != std::string::npos, status.error().message);
    }
  }
  have_devices(1);
  CHECK(emulated::device_bytes() == 0);
}

}  // namespace
}  // namespace dtrain::engine

#endif
