// Whole trainings by the program itself, as many processes as TF_CONFIG lists, on drawn digits.
#include <array>
#include <cmath>
#include <map>

#include "../models_beside.h"
#include "engine/formats/checkpoint.h"
#include "trainings.h"
#include "tests/support/skipped.h"

namespace dtrain::trainings {
namespace {

TEST_CASE("the model is the same, bit for bit, on every number of workers, threads and servers") {
  for (const Json& optimizer : {Json{{"clip", 0.5}, {"optimizer", {{"momentum", 0.9}}}}, Json{{"optimizer", {{"kind", "adamw"}, {"learning-rate", 0.003}, {"weight-decay", 0.1}}}}}) {
    CAPTURE(optimizer.dump());
    Gang alone(all_reduce(optimizer), 1, 0);
    REQUIRE_MESSAGE(alone.run() == 0, alone.logs());
    const std::string expected = alone.model();
    CHECK(last(alone, "accuracy") > 0.6);
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
                      {"epochs", 0.5}};
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
  Gang alone(all_reduce(), 1, 0);
  REQUIRE_MESSAGE(alone.run() == 0, alone.logs());
  for (const char* kind : {"mirrored", "central-storage"}) {
    for (const int devices : {1, 2, 4}) {
      CAPTURE(std::string(kind));
      CAPTURE(devices);
      Gang gang(spec_of({{"strategy", {{"kind", kind}, {"devices", devices}}}}), 1, 0);
      REQUIRE_MESSAGE(gang.run() == 0, gang.logs());
      CHECK(gang.model() == alone.model());
    }
  }
}

// One of many parameters, which threads of a process compute together; also in batches so large that products over
// their samples are by tiles where the processor has some.
TEST_CASE("a wide model is the same, bit for bit, on every number of threads") {
  // Leaves of a batch of 250 have 31 or 32 samples: in pieces of 16, then, a last one of 15 or of 16.
  for (const Json& how : {Json{{"clip", 0.5}, {"optimizer", {{"momentum", 0.9}}}},
                          Json{{"batch", 132}, {"optimizer", {{"kind", "adam"}, {"learning-rate", 0.001}}}},
                          Json{{"batch", 250}, {"micro-batch", 16}, {"optimizer", {{"momentum", 0.9}}}}}) {
    CAPTURE(how.dump());
    Json spec = all_reduce({{"model", {{"mlp", {{"hidden", {500, 300}}}}}}, {"epochs", 1}});
    spec.merge_patch(how);
    Gang alone(spec, 1, 0);
    REQUIRE_MESSAGE(alone.run() == 0, alone.logs());
    CHECK(last(alone, "accuracy") > (how.contains("micro-batch") ? 0.3 : 0.5));  // that one has the fewest steps
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

// Trained until it learns little more.
TEST_CASE("asynchronous servers come to the accuracy of synchronous ones, within five points") {
  const Json longer = {{"epochs", 20}, {"schedule", {{"kind", "cosine"}}}};
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

TEST_CASE("a training that is killed goes on to the same bits") {
  const Json spec = all_reduce({{"model", {{"lenet", {{"channels", {4, 6}}, {"hidden", {20}}}}, {"mlp", nullptr}}},
                                {"optimizer", {{"kind", "adam"}, {"learning-rate", 0.002}}},
                                {"checkpoint", {{"steps", 7}}},
                                {"epochs", 1}});
  Gang whole(spec, 2, 0);
  REQUIRE_MESSAGE(whole.run() == 0, whole.logs());

  // Killed after some checkpoint: somewhere in what follows it.
  const test::TemporaryFolder folder;
  for (int attempt = 1; attempt <= 3; ++attempt) {
    Gang broken(spec, 2, 0, std::to_string(attempt), folder / "out");
    const int64_t before = [&] {
      const auto found = Checkpoints::open(folder / "out/checkpoints", 9)->newest_healthy();
      return found ? found->step : 0;
    }();
    REQUIRE(broken.replicas[0]->runs_until(folder / fmt::format("out/checkpoints/step-{:08}", before + 14)));
    broken.replicas[static_cast<size_t>(attempt % 2)]->signal(SIGKILL);
    CHECK(broken.replicas[static_cast<size_t>(attempt % 2)]->wait() == 128 + SIGKILL);
    const auto other = static_cast<size_t>(1 - attempt % 2);
    CHECK(broken.replicas[other]->wait() == 1);
    CHECK(broken.log(fmt::format("worker.{}", other)).find(fmt::format("worker {}", attempt % 2)) != std::string::npos);
  }
  Gang last_one(spec, 1, 0, "4", folder / "out");  // and with another number of workers
  REQUIRE_MESSAGE(last_one.run() == 0, last_one.logs());
  CHECK(last_one.log("worker.0").find("resumed_at_step=") != std::string::npos);
  CHECK(last_one.model() == whole.model());
}

TEST_CASE("a parameter server that is killed and started again goes on where it was") {
  const Json spec = servers("sync");
  Gang whole(spec, 2, 2);
  REQUIRE(whole.run() == 0);
  Gang broken(spec, 2, 2);
  REQUIRE(broken.replicas[0]->runs_until(broken.output / "checkpoints/step-00000080"));
  broken.replicas[2]->signal(SIGKILL);
  broken.replicas[2]->wait();
  broken.start_again(2);
  REQUIRE_MESSAGE(broken.run() == 0, broken.logs());
  CHECK(broken.model() == whole.model());
}

TEST_CASE("a training by parameter servers that is killed goes on to the same bits, its workers in step") {
  const Json spec = [] {
    Json sync = servers("sync");
    sync.merge_patch({{"checkpoint", {{"steps", 40}}}, {"optimizer", {{"momentum", 0.9}}}});
    return sync;
  }();
  Gang whole(spec, 2, 2);
  REQUIRE_MESSAGE(whole.run() == 0, whole.logs());
  const test::TemporaryFolder folder;
  {
    Gang broken(spec, 2, 2, "1", folder / "out");
    REQUIRE(broken.replicas[0]->runs_until(folder / "out/checkpoints/step-00000120"));
    for (const auto& replica : broken.replicas) replica->signal(SIGKILL);
  }
  REQUIRE(!fs::exists(folder / "out/model.safetensors"));
  Gang again(spec, 2, 2, "2", folder / "out");
  REQUIRE_MESSAGE(again.run() == 0, again.logs());
  CHECK(again.log("worker.0").find("resumed_at_step=") != std::string::npos);
  CHECK(again.model() == whole.model());
  CHECK(!fs::exists(folder / "out/ps-state"));
}

TEST_CASE("without an asynchronous worker the others go on") {
  Gang gang(servers("async"), 3, 1);
  REQUIRE(gang.replicas[0]->runs_until(gang.output / "checkpoints"));
  gang.replicas[2]->signal(SIGKILL);
  CHECK(gang.run() == 0);
  CHECK(last(gang, "accuracy") > 0.45);  // of what two of three workers learned; a guess is right in 0.1
}

// 3,200 steps, saved every 20: whatever the machine does meanwhile, there is time to stop somebody.
Json long_servers(const std::string& mode, const Json& changes) {
  Json spec = servers(mode);
  spec.merge_patch({{"epochs", 40}, {"checkpoint", {{"steps", 20}}}, {"deadline", 60}});
  spec.merge_patch(changes);
  return spec;
}

// The steps of the newest checkpoint.
int64_t saved(const Gang& gang) {
  const auto newest = newest_checkpoint(gang.output / "checkpoints");
  return newest ? newest->step : 0;
}

// The numbers after `key=` in a process's log.
std::vector<int64_t> said(const Gang& gang, const std::string& name, const std::string& key) {
  std::vector<int64_t> numbers;
  if (!fs::exists(gang.own / name)) return numbers;
  const std::string log = gang.log(name);
  for (size_t at = log.find(key + "="); at != std::string::npos; at = log.find(key + "=", at + 1)) {
    numbers.push_back(std::atoll(log.c_str() + at + key.size() + 1));
  }
  return numbers;
}

TEST_CASE("an asynchronous worker that was killed and started again goes on with the others, who never stopped") {
  for (const char* mode : {"async", "ssp"}) {
    CAPTURE(std::string(mode));
    Gang gang(long_servers(mode, Json::object()), 3, 2);
    const auto joined = [&] { return said(gang, "worker.2", "joined_at_step"); };
    REQUIRE(gang.replicas[2]->runs_until([&] { return !joined().empty(); }));
    if (std::string(mode) == "ssp") REQUIRE(gang.replicas[0]->runs_until([&] { return saved(gang) >= 20; }));
    gang.replicas[2]->signal(SIGKILL);
    CHECK(gang.replicas[2]->wait() == 128 + SIGKILL);
    REQUIRE(gang.replicas[0]->runs_until([&] { return saved(gang) >= 120; }));
    // So that they are not done before it has come.
    gang.replicas[0]->signal(SIGSTOP);
    gang.replicas[1]->signal(SIGSTOP);
    gang.start_again(2);
    REQUIRE_MESSAGE(gang.replicas[2]->runs_until([&] { return joined().size() == 2; }), gang.log("worker.2"));
    gang.replicas[0]->signal(SIGCONT);
    gang.replicas[1]->signal(SIGCONT);
    for (const size_t worker : {0, 1, 2}) {
      CAPTURE(worker);
      CHECK_MESSAGE(gang.replicas[worker]->wait() == 0, gang.log(fmt::format("worker.{}", worker)));
    }
    CHECK(gang.run() == 0);
    // It takes the samples that come after those of its steps, and not the first ones again.
    CHECK(joined().front() == 0);
    CHECK(joined().back() > (std::string(mode) == "ssp" ? 100 : 0));
    CHECK(last(gang, "step") == 3200);
    CHECK(last(gang, "accuracy") > 0.6);
  }
}

TEST_CASE("a worker that was not waited for goes on where the others are") {
  Gang gang(long_servers("sync", {{"strategy", {{"backup", 1}}}}), 3, 2);
  // Two of three do each step. With one of the others stopped there is none without worker 2, who may come late.
  gang.replicas[1]->signal(SIGSTOP);
  const auto joined = [&] { return said(gang, "worker.2", "joined_at_step"); };
  REQUIRE(gang.replicas[2]->runs_until([&] { return !joined().empty(); }));
  REQUIRE(gang.replicas[0]->runs_until([&] { return saved(gang) >= 20; }));
  gang.replicas[2]->signal(SIGSTOP);
  gang.replicas[1]->signal(SIGCONT);
  // It may have seen all steps until the one that is saved after the one that is being written: there every server
  // waits for the master.
  const int64_t seen = saved(gang) + 40;
  REQUIRE_MESSAGE(gang.replicas[0]->runs_until([&] { return saved(gang) >= seen + 300; }), gang.log("worker.0"));
  gang.replicas[2]->signal(SIGCONT);
  CHECK(gang.replicas[0]->wait() == 0);
  // With the others and not behind them: the servers still answer.
  CHECK_MESSAGE(gang.replicas[2]->wait() == 0, gang.log("worker.2"));
  CHECK(gang.run() == 0);
  REQUIRE_MESSAGE(said(gang, "worker.2", "left_out_of_steps").size() == 1, gang.log("worker.2"));
  CHECK(said(gang, "worker.2", "left_out_of_steps").front() >= 300);
  CHECK(last(gang, "step") == 3200);
  CHECK(last(gang, "accuracy") > 0.6);
}

TEST_CASE("ssp: a worker that was silent for too long goes on where the slowest are, who don't wait for it to come there") {
  Gang gang(long_servers("ssp", {{"deadline", 6}}), 3, 2);
  REQUIRE(gang.replicas[0]->runs_until([&] { return saved(gang) >= 20; }));
  gang.replicas[2]->signal(SIGSTOP);
  const int64_t before = saved(gang);
  REQUIRE(gang.replicas[0]->runs_until([&] { return saved(gang) >= before + 400; }));
  gang.replicas[2]->signal(SIGCONT);
  CHECK(gang.replicas[0]->wait() == 0);
  CHECK_MESSAGE(gang.replicas[2]->wait() == 0, gang.log("worker.2"));
  CHECK(gang.run() == 0);
  REQUIRE_MESSAGE(said(gang, "worker.2", "left_out_of_steps").size() == 1, gang.log("worker.2"));
  CHECK(said(gang, "worker.2", "left_out_of_steps").front() >= 300);
  CHECK(last(gang, "step") == 3200);
}

TEST_CASE("the master may be the one that was left out, until there is something to save") {
  Gang gang(long_servers("sync", {{"strategy", {{"backup", 1}}}, {"checkpoint", {{"steps", 3200}}}}), 2, 1);
  REQUIRE(gang.replicas[0]->runs_until([&] { return !said(gang, "worker.0", "step").empty(); }));
  gang.replicas[0]->signal(SIGSTOP);
  // The other one trains on alone, to the end.
  CHECK_MESSAGE(gang.replicas[1]->wait() == 0, gang.log("worker.1"));
  gang.replicas[0]->signal(SIGCONT);
  REQUIRE_MESSAGE(gang.run() == 0, gang.logs());
  CHECK(last(gang, "step") == 3200);
  CHECK(last(gang, "left_out_of_steps") > 10);
  CHECK(saved(gang) == 3200);
}

// Left to itself gRPC looks for the server every 5 s: with eight kills it is there too late for one of them.
TEST_CASE("a server that was started again is found at once by gRPC, too") {
#ifdef __SANITIZE_THREAD__
  tests::say_left_out("gRPC, which the sanitizer does not see into");
  return;
#endif
  Gang gang(long_servers("async", {{"strategy", {{"data-path", "grpc"}}}, {"deadline", 4}}), 1, 1);
  for (int kill = 0; kill <= 8; ++kill) {
    const int64_t before = saved(gang);
    REQUIRE_MESSAGE(gang.replicas[0]->runs_until([&] { return saved(gang) > before; }), gang.log("worker.0"));
    gang.replicas[1]->signal(SIGKILL);
    gang.replicas[1]->wait();
    gang.start_again(1);
  }
}

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

TEST_CASE("who never comes is named") {
  Json spec = all_reduce({{"deadline", 1}});
  Gang gang(spec, 3, 0);
  gang.replicas[2]->signal(SIGKILL);
  CHECK(gang.run() == 1);
  CHECK_MESSAGE(gang.log("worker.0").find("worker 2") != std::string::npos, gang.log("worker.0"));
}

// What a training by one process says that is refused.
std::string refusal(const Json& changes, const fs::path& output = {}) {
  Gang gang(spec_of(changes), 1, 0, "1", output);
  CHECK(gang.run() == 2);
  return gang.log("worker.0");
}
bool says(const std::string& log, std::initializer_list<std::string> parts) {
  for (const std::string& part : parts) {
    if (log.find(part) == std::string::npos) return false;
  }
  return log.find("epoch=") == std::string::npos;  // before training
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
    return refusal(data);
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
  CHECK(says(refusal(gpt), {text, "token 122 at position 300", "the vocabulary has 120"}));
}

TEST_CASE("a training goes on only with the model and the data that it began with") {
  const test::TemporaryFolder folder;
  REQUIRE(generate_digits(folder / "data", {.train = 200, .test = 30, .seed = 1}).ok());
  const auto spec = [&](const Json& more) {
    Json changes = {{"data", {{"train", folder / "data/train"}, {"test", nullptr}}}, {"epochs", 1}};
    changes.merge_patch(more);
    return changes;
  };
  const fs::path output = folder / "out";
  const std::string checkpoint = output / "checkpoints/step-00000004";
  {
    Gang gang(spec_of(spec(Json::object())), 1, 0, "1", output);
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
  Gang longer(spec_of(spec({{"epochs", 2}})), 1, 0, "2", output);
  REQUIRE_MESSAGE(longer.run() == 0, longer.logs());
  CHECK(longer.log("worker.0").find("resumed_at_step=4") != std::string::npos);
}

TEST_CASE("bad input is an error before training, that names what is wrong") {
  const auto error = [](const Json& changes) { return refusal(changes); };
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
