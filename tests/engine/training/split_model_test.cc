// Trainings whose model is split over processes, beside the same model in one.
#include "../models_beside.h"
#include "trainings.h"

namespace dtrain::trainings {
namespace {

// Beside the digits, which are there until the program ends.
const fs::path& text() {
  static const bool written = [] {
    write_text(digits());
    return true;
  }();
  CHECK(written);
  return digits();
}

Json mlp() { return spec_of({{"model", {{"mlp", {{"hidden", {32, 24, 16}}}}}}, {"epochs", 2}}); }
Json lenet() {
  return spec_of({{"model", {{"mlp", nullptr}, {"lenet", {{"channels", {4, 6}}, {"hidden", {20}}}}}},
                  {"epoch-samples", 1000},
                  {"epochs", 1}});
}
Json gpt() {
  return spec_of({{"model", {{"mlp", nullptr}, {"gpt", {{"layers", 4}, {"heads", 4}, {"width", 32}, {"context", 24}}}}},
                  {"data", {{"train", text() / "train.txt"}, {"test", text() / "test.txt"}}},
                  {"batch", 16},
                  {"steps", 30},
                  {"epochs", nullptr},
                  {"clip", 1.0},
                  {"optimizer", {{"kind", "adamw"}, {"learning-rate", 0.003}}}});
}
Json pipeline(Json spec, int micro_batches = 4) {
  spec["strategy"] = {{"kind", "pipeline"}, {"micro-batches", micro_batches}};
  return spec;
}
Json tensor(Json spec) {
  spec["strategy"] = {{"kind", "tensor"}};
  return spec;
}
Json mesh(Json spec, int data, int model) {
  spec["strategy"] = {{"kind", "mesh"}, {"mesh-data", data}, {"mesh-model", model}};
  return spec;
}
Json with_threads(Json spec, int threads) {
  spec["threads"] = threads;
  return spec;
}

std::string trained(const Json& spec, int workers) {
  Gang gang(spec, workers, 0);
  REQUIRE_MESSAGE(gang.run() == 0, gang.logs());
  for (int worker = 1; worker < workers; ++worker) {
    CHECK_MESSAGE(gang.replicas[static_cast<size_t>(worker)]->wait() == 0,
                  gang.log(fmt::format("worker.{}", worker)));
  }
  return gang.model();
}

TEST_CASE("a pipeline of fully connected layers or convolutions trains the same bits as one process") {
  const std::string alone = trained(mlp(), 1);
  CHECK(trained(pipeline(mlp()), 2) == alone);
  CHECK(trained(pipeline(mlp(), 8), 3) == alone);
  CHECK(trained(pipeline(mlp(), 1), 4) == alone);
  CHECK(trained(with_threads(pipeline(mlp(), 2), 2), 2) == alone);
  CHECK(trained(with_threads(pipeline(mlp(), 2), 3), 2) == alone);
  Json wide = mlp();
  wide.merge_patch({{"model", {{"mlp", {{"hidden", {192, 160}}}}}}, {"batch", 132}, {"epochs", 1}});
  CHECK(trained(pipeline(wide), 2) == trained(wide, 1));
  const std::string convolved = trained(lenet(), 1);
  for (const int workers : {2, 3, 4}) {
    CAPTURE(workers);
    CHECK(trained(pipeline(lenet()), workers) == convolved);
  }
}

TEST_CASE("split models are the same to rounding, whichever way they are split") {
  struct Way {
    const char* name;
    Json spec;
    int workers;
  };
  for (const Json& base : {lenet(), gpt()}) {
    const std::string alone = trained(base, 1);
    std::vector<Way> ways{{"tensor", tensor(base), 2},
                          {"tensor", tensor(base), 4},
                          {"tensor, threads", with_threads(tensor(base), 2), 2},
                          {"mesh", mesh(base, 2, 2), 4},
                          {"mesh of one part", mesh(base, 2, 1), 2}};
    const bool is_gpt = base["model"].contains("gpt");
    if (is_gpt) {
      ways.push_back({"mesh", mesh(base, 3, 2), 6});
      ways.push_back({"pipeline", pipeline(base), 2});
      ways.push_back({"pipeline", pipeline(base, 8), 4});
      ways.push_back({"pipeline, threads", with_threads(pipeline(base), 2), 3});
    }
    for (const Way& way : ways) {
      CAPTURE(std::string(way.name));
      CAPTURE(way.workers);
      CAPTURE(base["model"].dump());
      const std::string split = trained(way.spec, way.workers);
      CHECK(distance(alone, split) < 2e-4);
      // And always the same.
      if (is_gpt && !tests::kSanitized) CHECK(trained(way.spec, way.workers) == split);
    }
  }
}

TEST_CASE("a split model that is killed goes on to the same bits, also split another way") {
  Json base = gpt();
  base["checkpoint"] = {{"steps", 5}, {"keep", 3}};
  for (const Json& spec : {pipeline(base), tensor(base)}) {
    CAPTURE(spec["strategy"].dump());
    const std::string whole = trained(spec, 2);
    const test::TemporaryFolder folder;
    {
      Gang broken(spec, 2, 0, "1", folder / "out");
      REQUIRE(broken.replicas[0]->runs_until(folder / "out/checkpoints/step-00000010"));
      broken.replicas[1]->signal(SIGKILL);
      CHECK(broken.replicas[1]->wait() == 128 + SIGKILL);
      CHECK(broken.run() == 1);
      CHECK_MESSAGE(broken.log("worker.0").find("worker 1") != std::string::npos, broken.log("worker.0"));
    }
    const fs::path copy = folder / "copy";
    fs::copy(folder / "out", copy, fs::copy_options::recursive);
    Gang again(spec, 2, 0, "2", folder / "out");
    REQUIRE_MESSAGE(again.run() == 0, again.logs());
    CHECK(again.log("worker.0").find("resumed_at_step=") != std::string::npos);
    CHECK(again.model() == whole);
    Gang other(base, 1, 0, "2", copy);
    REQUIRE_MESSAGE(other.run() == 0, other.logs());
    CHECK(other.log("worker.0").find("resumed_at_step=") != std::string::npos);
    CHECK(distance(whole, other.model()) < 2e-4);
  }
}

TEST_CASE("a stage that hangs is named within the deadline") {
  Json spec = pipeline(gpt());
  spec["steps"] = 100000;
  spec["deadline"] = 1;
  spec["checkpoint"] = {{"steps", 5}, {"keep", 1}};
  Gang gang(spec, 2, 0);
  REQUIRE(gang.replicas[0]->runs_until(gang.output / "checkpoints/step-00000005"));
  gang.replicas[1]->signal(SIGSTOP);
  CHECK(gang.run() == 1);
  CHECK_MESSAGE(gang.log("worker.0").find("worker 1") != std::string::npos, gang.log("worker.0"));
}

}  // namespace
}  // namespace dtrain::trainings
