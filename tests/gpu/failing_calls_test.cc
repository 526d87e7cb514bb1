// Trainings in which a call of CUDA's runtime fails, whichever it is: they end, with an error, and give everything back.
#include "tests/gpu/device_trainings.h"
#include "tests/support/sanitized.h"

#ifdef DTRAIN_EMULATED_CUDA

namespace dtrain::engine {
namespace {

constexpr int64_t kTries = tests::kSanitized ? 3 : 8;

// Fails one call after the other, about `tries` of them, until a training has no more.
void check_failing(const Json& changes, cudaError_t error, emulated::Failing failing, int64_t calls, int64_t tries) {
  const Folder folder;
  const int64_t apart = std::max<int64_t>(1, calls / tries);
  int64_t n = 1 + static_cast<int64_t>(std::random_device{}()) % apart, failed = 0, ended = 0;
  for (bool has_failed = true; has_failed; n += apart) {
    CAPTURE(n);
    static_cast<void>(cudaGetLastError());  // of the training before, which would have ended the process
    REQUIRE(n < 20 * calls);
    emulated::fail_call(n, error, failing);
    const Status status = train(folder, On::Device, "out", changes);
    has_failed = emulated::stop_failing();
    CHECK(emulated::device_bytes() == 0);
    fs::remove_all(folder.path / "out");
    failed += has_failed ? 1 : 0;
    if (status.ok()) continue;
    ++ended;
    CHECK(has_failed);
    CHECK_MESSAGE(status.error().code != Code::DeadlineExceeded, status.error().message);
  }
  CHECK(n > calls / 2);
  // What fails in the end, or leaves something uncleared that nobody reads, ends nothing.
  CHECK(ended > 0);
  if (failing != emulated::Failing::OnceOfClears) CHECK(2 * ended >= failed);
}

TEST_CASE("a call of CUDA that fails ends a training, whichever it is") {
  Json changes = kAdam;
  changes["steps"] = 3;
  changes["precision"] = "bf16";
  int64_t calls = 150;
  SUBCASE("one GPU") {}
  SUBCASE("several, in buckets") {
    have_devices(2);
    changes["strategy"] = {{"kind", "mirrored"}, {"bucket-mb", 0.001}};
    calls = 400;
  }
  SUBCASE("stages") {
    have_devices(2);
    changes["strategy"] = {{"kind", "pipeline"}, {"micro-batches", 2}};
    calls = 400;
  }
  SUBCASE("kept by the host") {
    have_devices(2);
    changes["strategy"] = {{"kind", "central-storage"}};
    calls = 300;
  }
  check_failing(changes, cudaErrorMemoryAllocation, emulated::Failing::Once, calls, kTries);
  check_failing(changes, cudaErrorIllegalAddress, emulated::Failing::FromThenOn, calls, kTries);
  have_devices(1);
}

TEST_CASE("labels that could not be cleared are no labels to rehearse with") {
  Json changes = kAdam;
  changes["steps"] = 1;
  changes["precision"] = "bf16";
  have_devices(2);
  SUBCASE("all-reduce") { changes["strategy"] = {{"kind", "mirrored"}}; }
  SUBCASE("stages") { changes["strategy"] = {{"kind", "pipeline"}, {"micro-batches", 2}}; }
  constexpr int64_t kClears = 20;
  check_failing(changes, cudaErrorMemoryAllocation, emulated::Failing::OnceOfClears, kClears, tests::kSanitized ? kClears / 4 : kClears);
  have_devices(1);
}

}  // namespace
}  // namespace dtrain::engine

#endif
