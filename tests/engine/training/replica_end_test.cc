// What ends a training, or refuses it before it begins, and what is said of it.
#include <sys/resource.h>

#include "engine/data/digits.h"
#include "engine/formats/checkpoint.h"
#include "trainings.h"

namespace dtrain::trainings {
namespace {

TEST_CASE("a loss that is no number ends the training, and names the step") {
  Gang gang(all_reduce({{"optimizer", {{"learning-rate", 1e6}}}}), 2, 0);
  CHECK(gang.run() == 2);
  CHECK(gang.replicas[1]->wait() != 0);
  for (const char* name : {"worker.0", "worker.1"}) {
    CHECK_MESSAGE(gang.log(name).find("in step ") != std::string::npos, gang.log(name));
    CHECK(gang.log(name).find("the loss is ") != std::string::npos);
    CHECK(gang.log(name).find("-nan") == std::string::npos);
  }
  CHECK(!fs::exists(gang.output / "model.safetensors"));
}

// One step, and the next forward overflows.
const Json kTooFast = {{"model", {{"mlp", {{"hidden", {128, 128, 128, 128, 128, 128, 128, 128}}}}}},
                       {"optimizer", {{"learning-rate", 1e6}}},
                       {"schedule", {{"scale-with-batch", 1}}}};

TEST_CASE("with servers, too, a loss that is no number ends the training, and names the step") {
  for (const char* mode : {"sync", "async", "ssp"}) {
    CAPTURE(std::string(mode));
    Json spec = servers(mode);
    spec.merge_patch(kTooFast);
    Gang gang(spec, 2, 1);
    CHECK(gang.run() == 2);
    CHECK_MESSAGE(gang.log("worker.0").find("the loss is nan in step ") != std::string::npos, gang.log("worker.0"));
    CHECK(!fs::exists(gang.output / "model.safetensors"));
  }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)   // these take more addresses than there are
TEST_CASE("a training that takes more memory than there is ends with a word") {
  rlimit before{};
  ::getrlimit(RLIMIT_AS, &before);
  for (const int workers : {1, 2}) {
    CAPTURE(workers);
    const rlimit tight{(workers == 1 ? rlim_t{1000} : rlim_t{600}) << 20, before.rlim_max};
    ::setrlimit(RLIMIT_AS, &tight);
    Gang gang(all_reduce({{"model", {{"mlp", {{"hidden", {20000, 20}}}}}}, {"batch", 4000}, {"threads", 1}}), workers, 0);
    ::setrlimit(RLIMIT_AS, &before);
    CHECK(gang.run() == 1);
    CHECK_MESSAGE(gang.log("worker.0").find("there is not enough memory") != std::string::npos, gang.logs());
  }
}
#endif

TEST_CASE("a strategy that the processes are too few or too many for is refused by who starts them by hand, too") {
  const auto refused = [](const Json& strategy, int workers, int servers, const char* why) {
    CAPTURE(strategy.dump());
    Gang gang(spec_of({{"strategy", strategy}}), workers, servers);
    CHECK(gang.replicas[0]->wait() == 2);
    CHECK_MESSAGE(gang.log("worker.0").find(why) != std::string::npos, gang.log("worker.0"));
  };
  const Json mesh = {{"kind", "mesh"}, {"mesh-data", 1}, {"mesh-model", 2}};
  refused(mesh, 3, 0, "strategy.mesh: a mesh of 1 x 2 needs 2 workers, and there are 3");
  refused({{"kind", "pipeline"}}, 3, 0, "strategy: 3 workers are 3 stages, and the model has 2 layers");
  refused({{"kind", "parameter-server"}}, 2, 0, "strategy: parameter-server needs parameter servers");
}

TEST_CASE("a model that is split ends so, too") {
  for (const char* kind : {"pipeline", "tensor"}) {
    CAPTURE(std::string(kind));
    Json spec = spec_of(kTooFast);
    spec["strategy"] = {{"kind", kind}};
    Gang gang(spec, 2, 0);
    CHECK(gang.run() == 2);
    CHECK_MESSAGE(gang.log("worker.0").find("the loss is nan in step ") != std::string::npos, gang.log("worker.0"));
    CHECK(!fs::exists(gang.output / "model.safetensors"));
  }
}

TEST_CASE("a loss of the test data that is no number is told of as that, after the step that it is of") {
  Json spec = all_reduce(kTooFast);
  spec.merge_patch({{"steps", 1}, {"epochs", nullptr}});
  Gang gang(spec, 1, 0);
  CHECK(gang.run() == 2);
  CHECK_MESSAGE(gang.log("worker.0").find("the loss of the test data is nan after step 1") != std::string::npos,
                gang.log("worker.0"));
}

TEST_CASE("weights that are no numbers are not saved, and the step is named after which they are so") {
  // They grow by 1e12 a step, and one layer's logits are numbers until they aren't.
  Json spec = all_reduce({{"model", {{"mlp", {{"hidden", Json::array()}}}}},
                          {"optimizer", {{"kind", "adamw"}, {"learning-rate", 1e6}, {"weight-decay", 1000}}},
                          {"schedule", {{"scale-with-batch", 1}}}});
  spec.merge_patch({{"batch", 1000}, {"steps", 4}, {"epochs", nullptr}, {"data", {{"test", nullptr}}}});
  Gang gang(spec, 1, 0);
  CHECK(gang.run() == 2);
  const std::string log = gang.log("worker.0");
  CHECK_MESSAGE(log.find("after step 4: layers.0.weight is not finite, and is not saved") != std::string::npos, log);
  CHECK(log.find("a smaller learning rate") != std::string::npos);
  CHECK_FALSE(newest_checkpoint(gang.output / "checkpoints"));
}

TEST_CASE("who never comes is named") {
  Json spec = all_reduce({{"deadline", 1}});
  Gang gang(spec, 3, 0);
  gang.replicas[2]->signal(SIGKILL);
  CHECK(gang.run() == 1);
  CHECK_MESSAGE(gang.log("worker.0").find("worker 2") != std::string::npos, gang.log("worker.0"));
}

TEST_CASE("data that are damaged or do not fit are refused by the name of their file") {
  const test::TemporaryFolder folder;
  REQUIRE(generate_digits(folder / "good", {.train = 100, .test = 30, .seed = 1}).ok());
  const fs::path images = folder / "data/train/train-images-idx3-ubyte";
  const fs::path labels = folder / "data/train/train-labels-idx1-ubyte";
  const fs::path test_labels = folder / "data/test/t10k-labels-idx1-ubyte";
  const Json data = {{"data", {{"train", folder / "data/train"}, {"test", folder / "data/test"}}}};
  const auto log_with = [&](const fs::path& file, auto change) {
    fs::remove_all(folder / "data");
    fs::copy(folder / "good", folder / "data", fs::copy_options::recursive);
    std::string bytes = test::read_file(file);
    change(bytes);
    test::write_file(file, bytes);
    return refusal(spec_of(data));
  };
  const auto cut = [](std::string& bytes) { bytes.pop_back(); };
  CHECK(says(log_with(images, cut), {images, "cut off: 78399 of 78400 bytes"}));
  CHECK(says(log_with(images, [](std::string& bytes) { bytes[3] = 1; }), {images, "not an IDX file of images"}));
  CHECK(says(log_with(labels, [](std::string& bytes) { bytes[7] = 99, bytes.pop_back(); }), {labels, "99 labels", images}));
  // A class that training never saw.
  CHECK(says(log_with(test_labels, [](std::string& bytes) { bytes[8 + 20] = 10; }), {test_labels, "label 10 at index 20", "10 classes"}));

  const fs::path text = folder / "text.txt";
  test::write_file(text, std::string(300, 'a') + "z");
  const Json gpt = {{"model", {{"mlp", nullptr}, {"gpt", {{"context", 8}, {"vocabulary", 120}}}}}, {"data", {{"train", text}, {"test", nullptr}}}};
  CHECK(says(refusal(spec_of(gpt)), {text, "token 122 at position 300", "the vocabulary has 120"}));
}

TEST_CASE("a training goes on only with the model and the data that it began with") {
  const test::TemporaryFolder folder;
  REQUIRE(generate_digits(folder / "data", {.train = 200, .test = 30, .seed = 1}).ok());
  const auto spec = [&](const Json& more) {
    Json changes = {{"data", {{"train", folder / "data/train"}, {"test", nullptr}}}, {"epochs", 1}};
    changes.merge_patch(more);
    return spec_of(changes);
  };
  const fs::path output = folder / "out";
  const std::string checkpoint = output / "checkpoints/step-00000004";
  {
    Gang gang(spec(Json::object()), 1, 0, "1", output);
    REQUIRE_MESSAGE(gang.run() == 0, gang.logs());
  }
  CHECK(says(refusal(spec({{"model", {{"mlp", {{"hidden", {16}}}}}}}), output), {checkpoint, "layers.0.weight is F32 [32, 784]", "F32 [16, 784]"}));
  CHECK(says(refusal(spec({{"batch", 40}}), output), {checkpoint, "another seed or batch"}));
  // As many bytes, other images; then fewer images.
  for (const int64_t count : {200, 190}) {
    REQUIRE(generate_digits(folder / "data", {.train = count, .test = 30, .seed = 2}).ok());
    CHECK(says(refusal(spec(Json::object()), output), {folder / "data/train", "the data changed", count == 200 ? "mean" : "samples", checkpoint}));
  }
  REQUIRE(generate_digits(folder / "data", {.train = 200, .test = 30, .seed = 1}).ok());
  // The same labels in another order.
  const fs::path labels = folder / "data/train/train-labels-idx1-ubyte";
  const std::string as_before = test::read_file(labels);
  std::string turned = as_before;
  std::rotate(turned.begin() + 8, turned.begin() + 9, turned.end());
  test::write_file(labels, turned);
  CHECK(says(refusal(spec(Json::object()), output), {folder / "data/train", "the data changed: checksum", checkpoint}));
  test::write_file(labels, as_before);
  Gang longer(spec({{"epochs", 2}}), 1, 0, "2", output);
  REQUIRE_MESSAGE(longer.run() == 0, longer.logs());
  CHECK(longer.log("worker.0").find("resumed_at_step=4") != std::string::npos);
}

TEST_CASE("bad input is an error before training, that names what is wrong") {
  const auto error = [](const Json& changes) { return refusal(spec_of(changes)); };
  CHECK(error({{"data", {{"train", "nowhere"}}}}).find("nowhere") != std::string::npos);
  CHECK(error({{"batch", 5000}}).find("a batch of 5000 is more than the 4000 samples") != std::string::npos);
  CHECK(error({{"model", {{"mlp", nullptr}, {"gpt", Json::object()}}}}) != "");
  CHECK(error({{"model", {{"mlp", {{"hiden", {3}}}}}}}).find("hiden") != std::string::npos);
  CHECK(error({{"model", {{"mlp", {{"hidden", {1'000'000, 1'000'000}}}}}}}).find("and this host has ") != std::string::npos);
  // Cut off, as by a full disk: it would be the same however often it was tried.
  const test::TemporaryFolder folder;
  fs::copy(digits() / "train", folder / "train");
  fs::resize_file(folder / "train/train-images-idx3-ubyte", 100'000);
  CHECK(error({{"data", {{"train", (folder / "train").string()}}}}).find("cut off") != std::string::npos);
}

}  // namespace
}  // namespace dtrain::trainings
