// What comes out of whole trainings by the program itself, as many processes as TF_CONFIG lists, on drawn digits.
#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "../models_beside.h"
#include "tests/support/sanitized.h"
#include "tests/support/skipped.h"
#include "trainings.h"

namespace dtrain::trainings {
namespace {

TEST_CASE("the model is the same, bit for bit, on every number of workers, threads and servers") {
  for (Json optimizer : {Json{{"clip", 0.5}, {"optimizer", {{"momentum", 0.9}}}}, Json{{"optimizer", {{"kind", "adamw"}, {"learning-rate", 0.003}, {"weight-decay", 0.1}}}}}) {
    optimizer["epochs"] = 4 * kPart;
    CAPTURE(optimizer.dump());
    Gang alone(all_reduce(optimizer), 1, 0);
    REQUIRE_MESSAGE(alone.run() == 0, alone.logs());
    const std::string expected = alone.model();
    if (kPart == 1) CHECK(last(alone, "accuracy") > 0.6);
    const auto check_same = [&](const char* what, const Json& spec, int workers, int ps) {
      CAPTURE(std::string(what));
      CAPTURE(workers);
      Gang gang(spec, workers, ps);
      REQUIRE_MESSAGE(gang.run() == 0, gang.logs());
      CHECK(gang.model() == expected);
    };
    Json threads = all_reduce(optimizer);
    threads["threads"] = 3;
    check_same("threads", threads, 1, 0);
    check_same("workers", all_reduce(optimizer), 2, 0);
    check_same("workers", all_reduce(optimizer), 3, 0);
    check_same("workers", all_reduce(optimizer), 4, 0);
    check_same("threads of workers", threads, 2, 0);
    Json sync = servers("sync");
    sync.merge_patch(optimizer);
    check_same("sync", sync, 1, 1);
    check_same("sync", sync, 2, 2);
    check_same("sync", sync, 4, 3);
    sync["threads"] = 2;
    check_same("sync, threads", sync, 2, 1);
#ifdef __SANITIZE_THREAD__
    tests::say_left_out("gRPC, which the sanitizer does not see into");
#else
    sync["strategy"]["data-path"] = "grpc";
    check_same("sync, gRPC", sync, 2, 2);
#endif
  }
}

TEST_CASE("convolutions and attention are the same, bit for bit, on every number of workers and servers") {
  const test::TemporaryFolder files;
  write_text(files.path());
  const Json lenet = {{"model", {{"lenet", {{"kernel", 3}, {"channels", {6, 16}}, {"hidden", {20}}}}, {"mlp", nullptr}}},
                      {"epochs", 0.5 * kPart}};
  const Json gpt = {{"model", {{"gpt", {{"layers", 2}, {"heads", 2}, {"width", 16}, {"context", 16}}}, {"mlp", nullptr}}},
                    {"data", {{"train", files / "train.txt"}, {"test", files / "test.txt"}}},
                    {"batch", 16},
                    {"steps", 20},
                    {"epochs", nullptr}};
  for (const Json& model : {lenet, gpt}) {
    CAPTURE(model.dump());
    Json spec = all_reduce(model), sync = servers("sync");
    sync.merge_patch(model);
    Gang alone(spec, 1, 0);
    REQUIRE_MESSAGE(alone.run() == 0, alone.logs());
    const auto check_same = [&](const Json& of, int workers, int ps) {
      CAPTURE(workers);
      CAPTURE(ps);
      Gang gang(of, workers, ps);
      REQUIRE_MESSAGE(gang.run() == 0, gang.logs());
      CHECK(gang.model() == alone.model());
    };
    check_same(spec, 2, 0);
    check_same(spec, 4, 0);
    check_same(sync, 1, 1);
    check_same(sync, 2, 2);
    check_same(sync, 4, 1);
    spec["micro-batch"] = 2;
    Gang pieces(spec, 1, 0);
    REQUIRE_MESSAGE(pieces.run() == 0, pieces.logs());
    Gang shared(spec, 4, 0);
    REQUIRE_MESSAGE(shared.run() == 0, shared.logs());
    CHECK(shared.model() == pieces.model());
  }
}

TEST_CASE("devices of one process are threads that come to the same bits, wherever parameters lie") {
  const Json part = {{"epochs", 4 * kPart}};
  Gang alone(all_reduce(part), 1, 0);
  REQUIRE_MESSAGE(alone.run() == 0, alone.logs());
  for (const char* kind : {"mirrored", "central-storage"}) {
    for (const int devices : {1, 2, 4}) {
      CAPTURE(std::string(kind));
      CAPTURE(devices);
      Gang gang(spec_of({{"strategy", {{"kind", kind}, {"devices", devices}}}, {"epochs", 4 * kPart}}), 1, 0);
      REQUIRE_MESSAGE(gang.run() == 0, gang.logs());
      CHECK(gang.model() == alone.model());
    }
  }
}

// Most of an image is background where there is no noise on it.
fs::path without_noise(const fs::path& folder) {
  REQUIRE(generate_digits(folder, {.train = 3000, .test = 300, .seed = 1}).ok());
  for (const char* name : {"train/train-images-idx3-ubyte", "test/t10k-images-idx3-ubyte"}) {
    std::string file = test::read_file(folder / name);
    constexpr size_t kHeader = 16;
    for (size_t i = kHeader; i < file.size(); ++i) {
      if (static_cast<uint8_t>(file[i]) < 100) file[i] = 0;
    }
    test::write_file(folder / name, file);
  }
  return folder;
}

// One of many parameters, which threads of a process compute together; also in batches so large that products over
// their samples are by tiles where the processor has some. Of some layers zeros are left out, of 300 columns not; of images the background.
TEST_CASE("a wide model is the same, bit for bit, on every number of threads") {
  const test::TemporaryFolder folder;
  const fs::path plain = without_noise(folder.path());
  // Leaves of a batch of 250 have 31 or 32 samples: in pieces of 16, then, a last one of 15 or of 16.
  for (const Json& how : {Json{{"clip", 0.5}, {"optimizer", {{"momentum", 0.9}}}},
                          Json{{"batch", 132}, {"optimizer", {{"kind", "adam"}, {"learning-rate", 0.001}}}},
                          Json{{"batch", 250}, {"micro-batch", 16}, {"optimizer", {{"momentum", 0.9}}}},
                          Json{{"batch", 96}, {"optimizer", {{"momentum", 0.9}}}, {"data", {{"train", plain / "train"}, {"test", plain / "test"}}}}}) {
    CAPTURE(how.dump());
    Json spec = all_reduce({{"model", {{"mlp", {{"hidden", {496, 300}}}}}}, {"epochs", kPart / (tests::kSanitized ? 4 : 1)}});
    spec.merge_patch(how);
    Gang alone(spec, 1, 0);
    REQUIRE_MESSAGE(alone.run() == 0, alone.logs());
    if (kPart == 1) CHECK(last(alone, "accuracy") > (how.contains("micro-batch") ? 0.3 : 0.5));  // that one has the fewest steps
    // Five are too many to do it together, and beside other workers each thread has a share of the batch.
    for (const auto& [threads, workers] : {std::array{2, 1}, {3, 1}, {4, 1}, {5, 1}, {2, 2}, {2, 4}}) {
      CAPTURE(threads);
      CAPTURE(workers);
      spec["threads"] = threads;
      Gang gang(spec, workers, 0);
      REQUIRE_MESSAGE(gang.run() == 0, gang.logs());
      CHECK(gang.model() == alone.model());
    }
  }
}

// Trained until it learns little more, and tested on so many that chance is a small part of the difference.
TEST_CASE("asynchronous servers come to the accuracy of synchronous ones, within five points") {
  if (tests::kSanitized) return tests::say_skipped("many more steps, each as in the tests before");
  const test::TemporaryFolder folder;
  REQUIRE(generate_digits(folder.path(), {.train = 4000, .test = 8000, .seed = 1}).ok());
  const Json longer = {{"epochs", 20},
                       {"schedule", {{"kind", "cosine"}}},
                       {"data", {{"train", folder / "train"}, {"test", folder / "test"}}}};
  const auto accuracy = [&](const char* mode, int ps) {
    Json spec = servers(mode);
    spec.merge_patch(longer);
    Gang gang(spec, 2, ps);
    REQUIRE_MESSAGE(gang.run() == 0, gang.logs());
    return last(gang, "accuracy");
  };
  const double sync = accuracy("sync", 1);
  CHECK(sync > 0.78);
  for (const char* mode : {"async", "ssp"}) {
    const double other = accuracy(mode, 2);
    CAPTURE(std::string(mode));
    CHECK(other > sync - 0.05);
  }
}

TEST_CASE("asynchronous servers take no gradient whose norm is larger than clip") {
  const auto loss = [](Json spec, double clip, int ps) {
    spec.merge_patch({{"clip", clip}, {"epochs", 1}});
    Gang gang(spec, 1, ps);
    REQUIRE_MESSAGE(gang.run() == 0, gang.logs());
    return last(gang, "test_loss");
  };
  const double clipped = loss(all_reduce(), 0.02, 0);
  CHECK(clipped > loss(all_reduce(), 0, 0) + 0.1);
  for (const char* mode : {"async", "ssp"}) {
    CAPTURE(std::string(mode));
    CHECK(loss(servers(mode), 0.02, 2) == doctest::Approx(clipped).epsilon(1e-3));
  }
}

TEST_CASE("the loss that the master tells of is that of all workers") {
  const auto losses = [](const Gang& gang) {
    std::vector<std::string> found;
    const std::string log = gang.log("worker.0");
    for (size_t at = log.find(" loss="); at != std::string::npos; at = log.find(" loss=", at + 1)) {
      found.push_back(log.substr(at, log.find(' ', at + 1) - at));
    }
    return found;
  };
  Json alone = servers("sync");
  alone["strategy"] = {{"kind", "single"}};
  Gang one(alone, 1, 0), sync(servers("sync"), 3, 2);
  REQUIRE_MESSAGE(one.run() == 0, one.logs());
  REQUIRE_MESSAGE(sync.run() == 0, sync.logs());
  CHECK(losses(one).size() == 4);
  CHECK(losses(one) == losses(sync));
}

// A test takes as long as several epochs.
TEST_CASE("of asynchronous workers, too, each epoch has its line") {
  const test::TemporaryFolder folder;
  REQUIRE(generate_digits(folder.path(), {.train = 400, .test = 8000, .seed = 1}).ok());
  for (const auto& [mode, apply_every] : {std::pair{"async", 1}, {"async", 4}, {"ssp", 1}}) {
    CAPTURE(std::string(mode));
    CAPTURE(apply_every);
    Json spec = servers(mode);
    spec.merge_patch({{"epochs", 12},
                      {"data", {{"train", folder / "train"}, {"test", folder / "test"}}},
                      {"strategy", {{"apply-every", apply_every}, {"staleness", 1000}}}});
    Gang gang(spec, 3, 2);
    REQUIRE_MESSAGE(gang.run() == 0, gang.logs());
    const std::string log = gang.log("worker.0");
    for (int epoch = 1; epoch <= 12; ++epoch) {
      CHECK_MESSAGE(log.find(fmt::format("\nepoch={} ", epoch)) != std::string::npos, log);
    }
  }
}

TEST_CASE("five workers of three threads are in step") {
  Json spec = servers("sync");
  spec.merge_patch({{"epochs", 1}, {"threads", 3}});
  Gang gang(spec, 5, 1);
  REQUIRE_MESSAGE(gang.run() == 0, gang.logs());
  CHECK(updates(gang) == 80);
}

TEST_CASE("asynchronous workers make each part of each batch once") {
  for (const char* mode : {"async", "ssp"}) {
    for (const int parts : {1, 3, 7}) {  // of an update; of 3 x 80, and 3 x 80 = 7 x 34 + 2
      CAPTURE(std::string(mode));
      CAPTURE(parts);
      Json spec = servers(mode);
      spec.merge_patch({{"epochs", 1}, {"threads", std::min(3, (parts + 1) / 2)}, {"strategy", {{"apply-every", parts}}}});
      Gang gang(spec, 3, 2);
      REQUIRE_MESSAGE(gang.run() == 0, gang.logs());
      CHECK(updates(gang) == (3 * 80 + parts - 1) / parts);
    }
  }
}

TEST_CASE("a batch with fewer samples than workers teaches what it has") {
  for (const char* mode : {"async", "ssp", "sync"}) {
    CAPTURE(std::string(mode));
    Json spec = servers(mode);
    spec.merge_patch({{"batch", 3999}});
    Gang gang(spec, 2, 1);
    REQUIRE_MESSAGE(gang.run() == 0, gang.logs());
    CHECK(last(gang, "step") == 8);
    CHECK(std::isfinite(last(gang, "test_loss")));
  }
}

TEST_CASE("a training says what its data are, how many epochs are done, and that nothing is left of one that is over") {
  const test::TemporaryFolder folder;
  const Json spec = all_reduce({{"epochs", 1.5}, {"schedule", {{"warm-up-epochs", 2}}}});
  for (const char* attempt : {"1", "2"}) {
    Gang gang(spec, 1, 0, attempt, folder / "out");
    REQUIRE_MESSAGE(gang.run() == 0, gang.logs());
    const std::string log = gang.log("worker.0");
    const auto says = [&](const std::string& text) { return log.find(text) != std::string::npos; };
    CHECK_MESSAGE(says("data samples=4000 test_samples=500 shape=1x28x28 classes=10\n"), log);
    const bool first = attempt[0] == '1';
    CHECK_MESSAGE(says("warm-up takes 160 steps, and there are 120: the learning rate ends at 0.075\n"), log);
    CHECK_MESSAGE(says("epoch=1 step=80 ") == first, log);
    CHECK_MESSAGE(says("epoch=1.50 step=120 ") == first, log);
    CHECK_MESSAGE(says("all 120 steps are done: nothing is left to train\n") != first, log);
  }
  Gang fewer(all_reduce({{"epochs", 1}}), 1, 0, "3", folder / "out");
  REQUIRE_MESSAGE(fewer.run() == 0, fewer.logs());
  CHECK(fewer.log("worker.0").find("all 80 steps are done: nothing is left to train\n") != std::string::npos);
}

TEST_CASE("asynchronous servers go on with the optimiser's own count of updates") {
  Json spec = servers("async");
  spec.merge_patch({{"optimizer", {{"kind", "adam"}, {"learning-rate", 0.001}}}, {"strategy", {{"apply-every", 4}}}});
  Gang whole(spec, 1, 1);
  REQUIRE_MESSAGE(whole.run() == 0, whole.logs());
  Json first = spec, second = spec;
  first["epochs"] = 2;
  Gang half(first, 1, 1);
  REQUIRE_MESSAGE(half.run() == 0, half.logs());
  second["checkpoint"]["from"] = half.output;
  Gang rest(second, 1, 1);
  REQUIRE_MESSAGE(rest.run() == 0, rest.logs());
  CHECK(rest.log("worker.0").find("resumed_at_step=160") != std::string::npos);
  CHECK(rest.model() == whole.model());
}

}  // namespace
}  // namespace dtrain::trainings
