// Trainings whose host is one step ahead of its GPUs: what it has enqueued when, and what comes of a step that goes
// wrong while the next one is on its way.
#include <algorithm>
#include <array>
#include <atomic>
#include <fstream>
#include <future>
#include <limits>
#include <thread>

#include "engine/cuda/device_updater.h"
#include "engine/formats/checkpoint.h"
#include "engine/strategies/assemble.h"
#include "engine/training/training.h"
#include "tests/gpu/device_trainings.h"

#ifdef DTRAIN_EMULATED_CUDA

namespace dtrain::engine {
namespace {

// What a test does around what a participant computes of a step, which is enqueued in between; and at its end.
struct Around {
  using Moment = std::function<void(cuda::Rank& rank, int me, int64_t step)>;
  Moment before = [](cuda::Rank&, int, int64_t) {}, after = before;
  std::function<void(int me)> at_end = [](int) {};
};

class WatchedShare : public Share {
 public:
  WatchedShare(std::unique_ptr<Share> share, cuda::Rank& rank, int me, const Around& around)
      : share_(std::move(share)), rank_(rank), me_(me), around_(around) {}
  ~WatchedShare() override { around_.at_end(me_); }

  Range reads(int64_t batch) const override { return share_->reads(batch); }
  Result<Outcome> train(const Batch& batch, int64_t step) override {
    around_.before(rank_, me_, step);
    TRY(const Outcome outcome, share_->train(batch, step));
    around_.after(rank_, me_, step);
    return outcome;
  }
  Result<Outcome> evaluate(Range range, int64_t step) override { return share_->evaluate(range, step); }

 private:
  const std::unique_ptr<Share> share_;
  cuda::Rank& rank_;
  const int me_;
  const Around& around_;
};

// A process on so many GPUs.
Status train_on(int devices, const Folder& folder, const std::string& output, const Json& changes,
                const Around& around) {
  have_devices(devices);
  const auto run = [&]() -> Status {
    TRY(EngineSpec spec, engine_spec_from_json(spec_of(folder, On::Device, changes).dump()));
    TRY(Place place, place_from_environment());
    TRY(const RunPlan plan, make_plan(std::move(spec), std::move(place), folder.path / output, devices));
    TRY(auto gang, assemble(plan));
    TRY(const auto updater, cuda::gpus().open_updater(plan, std::move(gang)));
    TRY(Start start, Start::find(plan));
    const auto make_share = [&](const RunPlan& of, Updater& by, int me) -> Result<std::unique_ptr<Share>> {
      TRY(auto share, cuda::gpus().make_share(of, by, me));
      cuda::Rank& rank = dynamic_cast<cuda::DeviceUpdater&>(by).rank(me);
      return std::unique_ptr<Share>(std::make_unique<WatchedShare>(std::move(share), rank, me, around));
    };
    return Training(plan, start, *updater, make_share).run();
  };
  const Status status = run();
  have_devices(1);
  return status;
}

void write_text(const Folder& folder, int bytes) {
  std::ofstream text(folder.path / "text");
  for (int i = 0; i < bytes; ++i) text << static_cast<char>('a' + i * i % 23);
}

// With what it has so far.
void hang_when_done(cuda::Rank& rank, int device) {
  const Status done = rank.device().wait();
  if (!done.ok()) FAIL_CHECK(done.error().message);
  emulated::hang(device);
}

const Json kStages = {{"strategy", {{"kind", "pipeline"}, {"micro-batches", 2}}}};
const Json kBuckets = {{"strategy", {{"kind", "mirrored"}, {"bucket-mb", 0.001}}}};
const Json kCopies = {{"strategy", {{"kind", "mirrored"}}}};

TEST_CASE("a step is enqueued before the one before it is done") {
  const Folder folder;
  Json changes = kAdam;
  int devices = 1;
  SUBCASE("as a graph") {}
  SUBCASE("in bf16") { changes["precision"] = "bf16"; }
  SUBCASE("in pieces") { changes["micro-batch"] = 7; }
  SUBCASE("of text") {
    write_text(folder, 4000);
    changes["model"] = {{"gpt", {{"layers", 1}, {"heads", 2}, {"width", 16}, {"context", 6}, {"vocabulary", 128}}}};
    changes["data"] = {{"train", folder.path / "text"}, {"test", folder.path / "text"}};
  }
  SUBCASE("of copies") { changes.merge_patch(kCopies), devices = 2; }
  bool is_whole = true;
  SUBCASE("of copies, in buckets") { changes.merge_patch(kBuckets), devices = 2, is_whole = false; }
  SUBCASE("of stages") { changes.merge_patch(kStages), devices = 2, is_whole = false; }
  REQUIRE(train_on(devices, folder, "undisturbed", changes, {}).ok());

  // From the end of step 2 until step 4 is enqueued, or is about to be, the first device does nothing.
  std::promise<void> enqueued;
  Around around;
  around.before = [&](cuda::Rank& rank, int me, int64_t step) {
    if (me == 0 && step == 3) hang_when_done(rank, 0);
    if (me == 0 && step == 4 && !is_whole) enqueued.set_value();
  };
  around.after = [&](cuda::Rank&, int me, int64_t step) {
    if (me == 0 && step == 4 && is_whole) enqueued.set_value();
  };
  bool came_to_it = false;
  std::thread other([&] {
    came_to_it = enqueued.get_future().wait_for(std::chrono::seconds(60)) == std::future_status::ready;
    emulated::recover();
    emulated::stir();
  });
  changes["deadline"] = 120;
  const Status status = train_on(devices, folder, "hung", changes, around);
  other.join();
  if (!status.ok()) FAIL(status.error().message);
  CHECK(came_to_it);
  CHECK(model_of(folder, "hung", changes) == model_of(folder, "undisturbed", changes));
}

TEST_CASE("what GPUs that meet compute is planned before any of them waits for another one") {
  const Folder folder;
  write_text(folder, 6 * 50 + 1);
  Json changes = {{"model", {{"gpt", {{"layers", 2}, {"heads", 2}, {"width", 16}, {"context", 6}, {"vocabulary", 128}}}}},
                  {"data", {{"train", folder.path / "text"}, {"test", folder.path / "text"}}},
                  {"precision", "bf16"},
                  {"steps", 3}};
  int devices = 2;
  SUBCASE("copies") { changes.merge_patch(kCopies); }
  SUBCASE("copies, in buckets and pieces") { changes.merge_patch(kBuckets), changes["micro-batch"] = 7; }
  SUBCASE("slices") { changes["strategy"] = {{"kind", "tensor"}}; }
  SUBCASE("copies of slices") {
    changes["strategy"] = {{"kind", "mesh"}, {"mesh-data", 2}, {"mesh-model", 2}};
    devices = 4;
  }
  SUBCASE("stages") { changes["strategy"] = {{"kind", "pipeline"}, {"micro-batches", 4}}; }
  std::array<std::atomic<int64_t>, 4> planned;
  Around around;
  around.before = [&](cuda::Rank&, int me, int64_t step) {
    if (step == 0) planned[static_cast<size_t>(me)] = emulated::plans(me);
  };
  around.at_end = [&](int me) { CHECK(emulated::plans(me) == planned[static_cast<size_t>(me)].load()); };
  const Status status = train_on(devices, folder, "out", changes, around);
  if (!status.ok()) FAIL(status.error().message);
}

TEST_CASE("a number that is none ends all by the name of its step, and nothing that came of it is saved") {
  const Folder folder;
  Json changes = {{"checkpoint", {{"steps", 4}}}, {"clip", 1.0}};
  int devices = 1;
  SUBCASE("one GPU") {}
  SUBCASE("copies") { changes.merge_patch(kCopies), devices = 2; }
  SUBCASE("stages") { changes.merge_patch(kStages), devices = 2; }
  const double loss = std::numeric_limits<double>::quiet_NaN();
  const float gradient = std::numeric_limits<float>::infinity();
  for (const bool is_loss : {true, false}) {
    // The first one, one in the middle, the ones around a checkpoint, and the last one.
    for (const int64_t wrong : {0, 1, 3, 4, 7}) {
      CAPTURE(is_loss);
      CAPTURE(wrong);
      std::atomic<int64_t> begun = 0;
      Around around;
      around.before = [&](cuda::Rank&, int, int64_t step) { begun = step; };
      // Of the last device alone.
      around.after = [&](cuda::Rank& rank, int me, int64_t step) {
        if (me != devices - 1 || step != wrong) return;
        is_loss ? rank.device().copy_to_device(&loss, 1, &rank.context().totals()->loss)
                : rank.device().copy_to_device(&gradient, 1, rank.gradients());
      };
      const Status status = train_on(devices, folder, "out", changes, around);
      REQUIRE(!status.ok());
      CHECK(status.error().code == Code::InvalidArgument);
      CHECK(status.error().message ==
            fmt::format("{} in step {}", is_loss ? "the loss is nan" : "a gradient is not finite", wrong + 1));
      CHECK(begun <= wrong + 1);
      CHECK(!fs::exists(folder.path / "out/model.safetensors"));
      const auto saved = newest_checkpoint(folder.path / "out/checkpoints");
      CHECK((saved ? saved->step : 0) == wrong / 4 * 4);
      CHECK(emulated::device_bytes() == 0);
      fs::remove_all(folder.path / "out");
    }
  }
}

TEST_CASE("a GPU that stops to answer in the middle ends all within the deadline") {
  const Folder folder;
  Json changes;
  // Of what is many launches no whole step is enqueued beside another one, lest the host should wait in a launch.
  int64_t most = 5;
  int devices = 2;
  SUBCASE("copies") { changes = kCopies, most = 6; }
  SUBCASE("copies, in pieces") { changes = kCopies, changes["micro-batch"] = 7; }
  SUBCASE("copies, in buckets") { changes = kBuckets; }
  SUBCASE("slices") { changes = {{"strategy", {{"kind", "tensor"}}}}; }
  SUBCASE("stages") { changes = kStages; }
  SUBCASE("more stages than micro-batches") {
    changes = kStages;
    changes["model"] = {{"mlp", {{"hidden", {24, 24}}}}};
    devices = 3;
  }
  changes["deadline"] = 2;
  Around around;
  std::atomic<int64_t> enqueued = 0;
  around.after = [&](cuda::Rank&, int, int64_t step) { enqueued = std::max<int64_t>(enqueued, step); };
  around.before = [](cuda::Rank& rank, int me, int64_t step) {
    if (me == 1 && step == 5) hang_when_done(rank, 1);
  };
  const Status status = train_on(devices, folder, "out", changes, around);
  emulated::recover();
  REQUIRE(!status.ok());
  CHECK_MESSAGE(status.error().message.find("GPUs did not answer for 2 s after step 5") != std::string::npos,
                status.error().message);
  CHECK(enqueued == most);
  CHECK(!fs::exists(folder.path / "out/model.safetensors"));
  CHECK(emulated::device_bytes() == 0);
}

TEST_CASE("a sum that came to nothing ends the training, however fast its step was over") {
  const Folder folder;
  Json changes;
  SUBCASE("of copies") { changes = kCopies; }
  SUBCASE("of copies, in buckets") { changes = kBuckets; }
  SUBCASE("of slices") { changes = {{"strategy", {{"kind", "tensor"}}}}; }
  SUBCASE("of stages") { changes = kStages; }
  Around around;
  std::atomic<int64_t> enqueued = 0;
  around.after = [&](cuda::Rank& rank, int, int64_t step) {
    enqueued = std::max<int64_t>(enqueued, step);
    if (step == 5) rank.abandon();  // all of them alike: nobody waits for another one
  };
  const Status status = train_on(2, folder, "out", changes, around);
  REQUIRE(!status.ok());
  CHECK(status.error().message == "communication was given up");
  CHECK(enqueued <= 6);
  CHECK(!fs::exists(folder.path / "out/model.safetensors"));
  CHECK(emulated::device_bytes() == 0);
}

TEST_CASE("a participant that does not come to a step is named within the deadline") {
  const Folder folder;
  Json changes;
  int devices = 2;
  SUBCASE("copies") { changes = kCopies; }
  SUBCASE("copies of slices, which wait for some by one communicator, for others by another") {
    changes = {{"strategy", {{"kind", "mesh"}, {"mesh-data", 2}, {"mesh-model", 2}, {"bucket-mb", 0.001}}}};
    devices = 4;
  }
  changes["deadline"] = 2;
  std::promise<void> ended;
  Around around;
  around.before = [&](cuda::Rank&, int me, int64_t step) {
    if (me == 1 && step == 5) ended.get_future().wait();
  };
  around.at_end = [&](int me) {
    if (me == 0) ended.set_value();
  };
  const Status status = train_on(devices, folder, "out", changes, around);
  REQUIRE(!status.ok());
  CHECK_MESSAGE(status.error().message.find("thread 1 of ") != std::string::npos, status.error().message);
  CHECK_MESSAGE(status.error().message.find(" after step 5") != std::string::npos, status.error().message);
  CHECK(emulated::device_bytes() == 0);
}

TEST_CASE("who waits for another GPU ends within the deadline, with more launches than a GPU takes at once") {
  const Folder folder;
  Json changes;
  int after = 3;
  SUBCASE("slices, in forward: of the step before it has not asked yet") {
    changes = {{"strategy", {{"kind", "tensor"}}}, {"model", {{"mlp", {{"hidden", std::vector<int>(60, 8)}}}}}};
    after = 2;
  }
  SUBCASE("stages") { changes = {{"strategy", {{"kind", "pipeline"}, {"micro-batches", 32}}}, {"batch", 64}}; }
  changes["deadline"] = 2;
  std::promise<void> ended;
  Around around;
  around.before = [&](cuda::Rank& rank, int me, int64_t step) {
    if (step != 3) return;
    const Status done = rank.device().wait();
    if (!done.ok()) FAIL_CHECK(done.error().message);
    emulated::make_queues(300);
    if (me == 1) ended.get_future().wait();
  };
  around.at_end = [&](int me) {
    if (me == 0) ended.set_value();
  };
  const Status status = train_on(2, folder, "out", changes, around);
  emulated::make_queues(SIZE_MAX);
  REQUIRE(!status.ok());
  CHECK_MESSAGE(status.error().message.find(fmt::format("for 2 s after step {} ", after)) != std::string::npos, status.error().message);
  CHECK(emulated::device_bytes() == 0);
}

// Forward alone: what one slice computes of it while the other one is not there.
TEST_CASE("a forward of many layers that waits for another GPU ends within the deadline") {
  const Folder folder;
  write_text(folder, 6 * 10 + 1);
  Json changes = {{"strategy", {{"kind", "tensor"}}},
                  {"model", {{"gpt", {{"layers", 40}, {"heads", 2}, {"width", 8}, {"context", 6}, {"vocabulary", 128}}}}},
                  {"data", {{"train", folder.path / "text"}, {"test", folder.path / "text"}}},
                  {"batch", 2}, {"steps", 4}, {"deadline", 2}};
  std::promise<void> ended;
  Around around;
  around.before = [&](cuda::Rank& rank, int me, int64_t step) {
    if (step != 2) return;
    const Status done = rank.device().wait();
    if (!done.ok()) FAIL_CHECK(done.error().message);
    emulated::make_queues(400);
    if (me == 1) ended.get_future().wait();
  };
  around.at_end = [&](int me) {
    if (me == 0) ended.set_value();
  };
  const Status status = train_on(2, folder, "out", changes, around);
  emulated::make_queues(SIZE_MAX);
  REQUIRE(!status.ok());
  CHECK_MESSAGE(status.error().message.find("GPUs did not answer for 2 s after step 1") != std::string::npos, status.error().message);
  CHECK(emulated::device_bytes() == 0);
}

// Of many layers: so the update is as many launches as a device takes at once, behind a sum that never comes.
TEST_CASE("an update that waits for another GPU ends within the deadline, with more launches than a GPU takes at once") {
  const Folder folder;
  write_text(folder, 6 * 10 + 1);
  Json changes = kAdam;
  changes.merge_patch(kBuckets);
  changes["model"] = {{"gpt", {{"layers", 40}, {"heads", 1}, {"width", 8}, {"context", 6}, {"vocabulary", 128}}}};
  changes["data"] = {{"train", folder.path / "text"}, {"test", folder.path / "text"}};
  changes.merge_patch({{"batch", 2}, {"steps", 4}, {"deadline", 2}});
  std::atomic<bool> over = false;
  Around around;
  // Its sums of the step are done when its stream is, which then does nothing more.
  around.after = [&](cuda::Rank& rank, int me, int64_t step) {
    if (step != 1) return;
    const Status done = rank.device().wait();
    if (!done.ok()) FAIL_CHECK(done.error().message);
    emulated::make_queues(400);
    if (me == 1) emulated::enqueue(rank.stream(), [&] { return over.load(); });
  };
  around.at_end = [&](int) {
    over = true;
    emulated::stir();
  };
  const Status status = train_on(2, folder, "out", changes, around);
  emulated::make_queues(SIZE_MAX);
  REQUIRE(!status.ok());
  CHECK_MESSAGE(status.error().message.find("GPUs did not answer for 2 s after step 1") != std::string::npos, status.error().message);
  CHECK(emulated::device_bytes() == 0);
}

}  // namespace
}  // namespace dtrain::engine

#endif
