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

TEST_CASE("what all slices hold is updated alike, whatever gradient each of them came to") {
  const Folder folder;
  const Opened opened(folder, 4, {{"strategy", {{"kind", "mesh"}, {"mesh-data", 2}, {"mesh-model", 2}}},
                                  {"model", {{"mlp", {{"hidden", {16}}}}}}});
  cuda::DeviceUpdater& updater = *opened.updater;
  const auto in_threads = [&](auto work) {
    std::vector<std::thread> threads;
    for (int me = 0; me < 4; ++me) threads.emplace_back([&, me] { work(me, updater.rank(me)); });
    for (std::thread& thread : threads) thread.join();
  };
  // A slice's of the first layer, and of the second one what all have: its bias.
  const auto params_of = [](cuda::Rank& rank, Piece::Whose whose) {
    std::vector<float> params;
    for (const Range range : rank.ranges({whose})) {
      const size_t before = params.size();
      params.resize(before + static_cast<size_t>(range.size()));
      rank.device().copy_to_host(rank.params() + range.begin, range.size(), params.data() + before);
    }
    REQUIRE(rank.device().wait().ok());
    return params;
  };
  std::vector<Status> statuses(4, ok());
  std::vector<std::vector<float>> same(4), own(4);
  in_threads([&](int me, cuda::Rank& rank) {
    rank.device().use();
    Status& status = statuses[static_cast<size_t>(me)];
    if (status = updater.distribute(me, 0, 0); !status.ok()) return;
    const std::vector<float> gradient(static_cast<size_t>(rank.layout().size()), 0.1f + 0.001f * static_cast<float>(me));
    rank.device().copy_to_device(gradient.data(), rank.layout().size(), rank.gradients());
    const cuda::Totals totals{.loss = 1, .rows = 1};
    rank.device().copy_to_device(&totals, 1, rank.context().totals());
    if (auto done = updater.finish_step(me, {.step = 0, .learning_rate = 0.1}, {}); !done.ok()) {
      status = done.error();
    } else if (done = updater.settle(me, 0); !done.ok()) {
      status = done.error();
    } else {
      same[static_cast<size_t>(me)] = params_of(rank, Piece::Same);
      own[static_cast<size_t>(me)] = params_of(rank, Piece::Own);
    }
  });
  for (const Status& status : statuses) REQUIRE_MESSAGE(status.ok(), status.error().message);
  REQUIRE(same[0].size() > 0);
  for (size_t me = 1; me < 4; ++me) CHECK(same[me] == same[0]);
  CHECK(own[2] == own[0]);
  CHECK(own[3] == own[1]);
  CHECK(own[1] != own[0]);
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
