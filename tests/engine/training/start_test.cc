// Where a training starts, by the program itself: a training in an empty OUTPUT_DIR from what another left.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/formats/checkpoint.h"
#include "engine/kernels/kernels.h"
#include "engine/strategies/all_reduce.h"
#include "engine/strategies/assemble.h"
#include "engine/training/start.h"
#include "engine/training/training_state.h"
#include "tests/support/variable.h"
#include "trainings.h"
#include "tests/support/skipped.h"

namespace dtrain::trainings {
namespace {

Json with(Json spec, const Json& changes) {
  spec.merge_patch(changes);
  return spec;
}
Json from(const Json& spec, const fs::path& path) { return with(spec, {{"checkpoint", {{"from", path}}}}); }

// Two epochs of what takes four.
const Json& half_spec() {
  static const Json spec = all_reduce({{"optimizer", {{"momentum", 0.9}}}, {"checkpoint", {{"steps", 50}}}, {"epochs", 2}});
  return spec;
}
// Run once. It is there until the program ends, when no checks count any more: so it is not ended, and only its
// folder goes.
const Gang& half() {
  struct Half {
    Gang* const gang = new Gang(half_spec(), 2, 0);
    const int code = gang->run();
    ~Half() {
      std::error_code ignored;
      fs::remove_all(gang->own.path(), ignored);
    }
  };
  static const Half half;
  REQUIRE_MESSAGE(half.code == 0, half.gang->log("worker.0"));
  return *half.gang;
}
const Json whole_spec() { return with(half_spec(), {{"epochs", 4}}); }
const std::string& whole_model() {
  static const std::string model = [] {
    Gang gang(whole_spec(), 1, 0);
    REQUIRE_MESSAGE(gang.run() == 0, gang.logs());
    return gang.model();
  }();
  return model;
}

RunPlan plan_of(const Json& spec, const fs::path& output) {
  auto parsed = engine_spec_from_json(spec.dump());
  REQUIRE(parsed.ok());
  auto plan = make_plan(std::move(*parsed), Place{.workers = {""}, .ps = {}}, output);
  REQUIRE(plan.ok());
  return std::move(*plan);
}

std::unique_ptr<AllReduce> updater_of(const RunPlan& plan) {
  auto gang = assemble(plan);
  REQUIRE(gang.ok());
  auto updater = AllReduce::open(plan, std::move(*gang));
  REQUIRE(updater.ok());
  return std::move(*updater);
}

TEST_CASE("what is looked for behind is what is found at once") {
  const RunPlan plan = plan_of(whole_spec(), half().output), other = plan_of(with(whole_spec(), {{"seed", 7}}), half().output);
  const std::unique_ptr<AllReduce> updater = updater_of(plan);
  for (const double seconds : {0.0, 30.0}) {
    CAPTURE(seconds);
    auto start = Start::find_within(plan, seconds);
    REQUIRE(start.ok());
    REQUIRE(start->read(plan, *updater).ok());
    CHECK(start->step() == 160);
    CHECK(start->line() == "resumed_at_step=160");
    // What is refused is so at once or when it is to be read.
    auto refused = Start::find_within(other, seconds);
    const Status status = refused.ok() ? refused->read(other, *updater) : Status(refused.error());
    REQUIRE(!status.ok());
    CHECK(status.error().code == Code::InvalidArgument);
    CHECK_MESSAGE(status.error().message.find("seed") != std::string::npos, status.error().message);
  }
}

TEST_CASE("a training that starts from another's checkpoint comes to the bits of one that never stopped") {
  const auto check_same = [](const char* what, const fs::path& start, const Json& spec, int workers, int ps) {
    CAPTURE(std::string(what));
    Gang gang(from(spec, start), workers, ps);
    REQUIRE_MESSAGE(gang.run() == 0, gang.logs());
    const std::string log = gang.log("worker.0");
    CHECK_MESSAGE(says(log, {"resumed_at_step=", " from=" + half().output.native()}), log);
    CHECK(log.find("epoch=1 ") == std::string::npos);
    CHECK(gang.model() == whole_model());
  };
  const fs::path output = half().output;
  check_same("an OUTPUT_DIR", output, whole_spec(), 1, 0);
  check_same("a folder of checkpoints", output / "checkpoints", whole_spec(), 3, 0);
  check_same("one that is not the newest", output / "checkpoints/step-00000100/", whole_spec(), 2, 0);
  const auto sync = [](const Json& more) { return with(whole_spec(), {{"strategy", more}}); };
  check_same("servers", output, sync({{"kind", "parameter-server"}, {"mode", "sync"}}), 2, 2);
  const Json threads = with(sync({{"kind", "parameter-server"}, {"mode", "sync"}}), {{"threads", 2}});
  check_same("servers, by two threads each", output, threads, 2, 1);
  check_same("servers, by two threads of one", output, threads, 1, 1);
  check_same("a pipeline", output, sync({{"kind", "pipeline"}}), 2, 0);
}

// With asynchronous servers there were fewer updates than steps.
TEST_CASE("whoever goes on, Adam goes on with the count of updates that it has") {
  const auto spec = [](int steps, const Json& strategy) {
    Json made = spec_of({{"optimizer", nullptr}, {"epochs", nullptr}, {"steps", steps}, {"strategy", strategy}});
    made["optimizer"] = {{"kind", "adam"}, {"learning-rate", 0.01}};
    return made;
  };
  Gang before(spec(40, {{"kind", "parameter-server"}, {"apply-every", 8}}), 1, 1);
  REQUIRE_MESSAGE(before.run() == 0, before.logs());
  CHECK(updates(before) == 5);
  const auto after = [&](const char* strategy, int workers, int ps) {
    const Json kind = ps > 0 ? Json{{"kind", strategy}, {"mode", "sync"}} : Json{{"kind", strategy}};
    Gang gang(from(spec(43, kind), before.output), workers, ps);
    REQUIRE_MESSAGE(gang.run() == 0, gang.logs());
    CHECK(updates(gang) == 8);
    return gang.model();
  };
  const std::string model = after("parameter-server", 1, 1);
  CHECK(after("single", 1, 0) == model);
  CHECK(after("multi-worker-mirrored", 2, 0) == model);
  CHECK(after("pipeline", 2, 0) == model);
}

TEST_CASE("one that was killed starts elsewhere, and its own checkpoints come first afterwards") {
  const test::TemporaryFolder folder;
  {
    Gang broken(whole_spec(), 1, 0, "1", folder / "old");
    REQUIRE(broken.replicas[0]->runs_until(folder / "old/checkpoints/step-00000100"));
    broken.replicas[0]->signal(SIGKILL);
    broken.replicas[0]->wait();
  }
  const Json spec = from(whole_spec(), folder / "old");
  {
    Gang again(spec, 1, 0, "1", folder / "new");
    REQUIRE(again.replicas[0]->runs_until(folder / "new/checkpoints/step-00000250"));
    again.replicas[0]->signal(SIGKILL);
    again.replicas[0]->wait();
  }
  fs::remove_all(folder / "old");
  Gang last_one(spec, 1, 0, "2", folder / "new");
  REQUIRE_MESSAGE(last_one.run() == 0, last_one.logs());
  CHECK(last_one.log("worker.0").find(" from=") == std::string::npos);
  CHECK(last_one.model() == whole_model());
}

TEST_CASE("the checkpoint that is damaged is passed over, and nothing is changed where it lies") {
  const test::TemporaryFolder folder;
  fs::copy(half().output, folder / "old", fs::copy_options::recursive);
  const fs::path newest = newest_checkpoint(folder / "old/checkpoints")->path;
  fs::resize_file(newest / kOptimizerFile, 100);
  fs::create_directory(folder / "old/checkpoints/unfinished-1");
  Gang gang(from(whole_spec(), folder / "old"), 1, 0);
  REQUIRE_MESSAGE(gang.run() == 0, gang.logs());
  CHECK(says(gang.log("worker.0"), {newest, "the one before is taken", "resumed_at_step="}));
  CHECK(gang.model() == whole_model());
  CHECK(fs::exists(folder / "old/checkpoints/unfinished-1"));
  CHECK(says(refusal(from(whole_spec(), newest)), {newest, "optimizer.safetensors is not what was written"}));
  for (const auto& entry : fs::directory_iterator(folder / "old/checkpoints")) {
    if (fs::exists(entry.path() / kModelFile)) fs::remove(entry.path() / kModelFile);
  }
  CHECK(says(refusal(from(whole_spec(), folder / "old")), {folder / "old", "is whole", "can't be read"}));
}

TEST_CASE("where no checkpoint is whole it is said what is taken instead") {
  const test::TemporaryFolder folder;
  const fs::path newest = newest_checkpoint(half().output / "checkpoints")->path;
  fs::create_directories(folder / "out/checkpoints");
  fs::copy(newest, folder / "out/checkpoints" / newest.filename(), fs::copy_options::recursive);
  fs::resize_file(folder / "out/checkpoints" / newest.filename() / kOptimizerFile, 100);
  Gang gang(half_spec(), 1, 0, "1", folder / "out");
  REQUIRE_MESSAGE(gang.run() == 0, gang.logs());
  CHECK(says(gang.log("worker.0"), {"there is none before, so that the beginning is taken"}));
  CHECK(gang.log("worker.0").find("the one before is taken") == std::string::npos);
}

TEST_CASE("a training does not begin anew because its checkpoints can't be listed") {
  const test::TemporaryFolder folder;
  fs::create_directories(folder / "out");
  fs::create_symlink("checkpoints", folder / "out/checkpoints");   // ELOOP
  Gang gang(half_spec(), 1, 0, "1", folder / "out");
  CHECK(gang.run() == 1);   // as what may pass: it is launched again
  CHECK_MESSAGE(says(gang.log("worker.0"), {"list " + (folder / "out/checkpoints").native(), "Too many levels"}), gang.logs());
  CHECK(gang.log("worker.0").find("the beginning") == std::string::npos);
}

TEST_CASE("a start from what other instructions computed, or more participants sum, is told") {
  const auto start_log = [](int threads = 1) {
    Gang gang(with(from(whole_spec(), half().output), {{"threads", threads}}), 1, 0);
    REQUIRE_MESSAGE(gang.run() == 0, gang.logs());
    return gang.log("worker.0");
  };
  const std::string before = kernels<float>().isa, note = "was computed with " + before;
  (void)half();
  CHECK(start_log().find(note) == std::string::npos);
  CHECK(start_log(8).find(note) == std::string::npos);
  CHECK(says(start_log(9), {note + " and sums of 8 leaves", "what follows is with " + before + " and sums of 16"}));
  if (before == "baseline") return tests::say_left_out("with less than the CPU has, which has nothing more than baseline");
  const test::Variable baseline("DTRAIN_ISA", "baseline");
  CHECK(says(start_log(), {newest_checkpoint(half().output / "checkpoints")->path.native() + " " + note,
                           "what follows is with baseline"}));
}

TEST_CASE("a state with entries of another kind than they are written with is refused") {
  const RunPlan plan = plan_of(whole_spec(), digits());
  const Json state = Json::parse(state_of(plan, 8, 160, 160));
  const auto checked = [&](const Json& changes) {
    return check_state(plan, {.step = 160, .path = "c", .state = with(state, changes).dump()});
  };
  CHECK(checked(Json::object()).ok());
  CHECK(checked({{"leaves", nullptr}, {"instructions", nullptr}}).ok());  // as if there had been no such entries
  for (const Json& changes : {Json{{"leaves", "many"}}, Json{{"leaves", 8.5}}, Json{{"instructions", 7}}}) {
    CAPTURE(changes.dump());
    const Status status = checked(changes);
    REQUIRE_FALSE(status.ok());
    CHECK(status.error().message == "c: its state.json can't be read");
  }
}

TEST_CASE("a DTRAIN_ISA that is no instruction set is refused") {
  const test::Variable misspelt("DTRAIN_ISA", "avx51");
  CHECK(says(refusal(whole_spec()), {"DTRAIN_ISA=avx51 is no instruction set", "baseline, avx2, avx512, zen4, amx"}));
}

TEST_CASE("from a file of tensors a training takes the weights and nothing else") {
  // As slow as may be: what is tested after its step is what it started from.
  const Json slow = with(half_spec(), {{"seed", 7}, {"batch", 25}, {"steps", 1}, {"optimizer", {{"kind", "adam"}, {"learning-rate", 1e-12}}}});
  Gang gang(from(slow, half().output / kModelFile), 2, 0);
  REQUIRE_MESSAGE(gang.run() == 0, gang.logs());
  CHECK(says(gang.log("worker.0"), {"weights_from=" + (half().output / kModelFile).native()}));
  CHECK(gang.log("worker.0").find("resumed_at_step") == std::string::npos);
  CHECK(last(gang, "accuracy") == last(half(), "accuracy"));
  CHECK(says(refusal(from(with(slow, {{"model", {{"mlp", {{"hidden", {16}}}}}}}), half().output / kModelFile)),
             {half().output / kModelFile, "layers.0.weight is F32 [32, 784]", "F32 [16, 784]"}));
}

TEST_CASE("weights that are negative zeros become positive ones") {
  const test::TemporaryFolder folder;
  std::string bytes = half().model();
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof header);
  constexpr float kZero = -0.0f;
  std::memcpy(bytes.data() + sizeof header + header, &kZero, sizeof kZero);
  test::write_file(folder.path() / "pruned.safetensors", bytes);
  const RunPlan plan = plan_of(from(half_spec(), folder.path() / "pruned.safetensors"), folder.path() / "output");
  const std::unique_ptr<AllReduce> updater = updater_of(plan);
  auto start = Start::find(plan);
  REQUIRE(start.ok());
  REQUIRE(start->read(plan, *updater).ok());
  CHECK(std::ranges::count(updater->params(), 0.0f) > 0);
  CHECK(std::ranges::none_of(updater->params(), [](float weight) { return weight == 0 && std::signbit(weight); }));
}

TEST_CASE("a start that does not fit is refused, and what differs is named") {
  const test::TemporaryFolder folder;
  const fs::path old = half().output;
  const auto why = [&](const Json& changes, const fs::path& path) { return refusal(from(with(whole_spec(), changes), path)); };
  const std::string newest = newest_checkpoint(old / "checkpoints")->path;
  CHECK(says(why({{"seed", 7}}, old), {newest, "seed 42, and this one has 7", "model.safetensors"}));
  CHECK(says(why({{"batch", 40}}, old), {newest, "batch 50, and this one has 40"}));
  CHECK(says(why({{"optimizer", {{"kind", "adam"}}}}, old), {newest, "sgd with momentum, and this one has adam"}));
  CHECK(says(why({{"optimizer", {{"momentum", 0}}}}, old), {newest, "sgd with momentum, and this one has sgd"}));
  CHECK(says(why({{"epoch-samples", 1000}}, old), {newest, "epochs of all samples, and this one's have 1000 samples"}));
  CHECK(says(why({{"model", {{"mlp", {{"hidden", {16}}}}}}}, old), {newest, "layers.0.weight is F32 [32, 784]"}));
  CHECK(says(why({{"epochs", 2}}, old), {newest, "160 steps behind it, and this training is of 160", "more epochs"}));
  REQUIRE(generate_digits(folder / "data", {.train = 4000, .test = 30, .seed = 2}).ok());
  CHECK(says(why({{"data", {{"train", folder / "data/train"}}}}, old), {folder / "data/train", "the data changed: mean"}));
  CHECK(says(why(Json::object(), folder / "nowhere"), {(folder / "nowhere").native(), "is not there on"}));
  CHECK(says(why(Json::object(), folder / "data"), {(folder / "data").native(), "there is no checkpoint in", "OUTPUT_DIR"}));
  test::write_file(folder / "text", "no tensors");
  CHECK(says(why(Json::object(), folder / "text"), {(folder / "text").native()}));
}

TEST_CASE("a start of another model is refused where all shapes are the same, too") {
  const test::TemporaryFolder folder;
  test::write_file(folder / "text.txt", std::string(200, 'a'));
  const auto check_other = [](Json spec, const Json& changes, const std::string& what) {
    spec["steps"] = 1;
    Gang before(spec, 1, 0);
    REQUIRE_MESSAGE(before.run() == 0, before.logs());
    spec["steps"] = 2;
    const std::string log = refusal(from(with(spec, changes), before.output));
    CHECK_MESSAGE(says(log, {what}), log);
  };
  const Json gpt = {{"layers", 1}, {"heads", 2}, {"width", 8}, {"context", 8}};
  check_other({{"model", {{"gpt", gpt}}}, {"data", {{"train", folder / "text.txt"}}}, {"batch", 8}},
              {{"model", {{"gpt", {{"heads", 4}}}}}}, "a model of heads 2, and this one has 4");
  Json lenet = spec_of({{"model", {{"mlp", nullptr}, {"lenet", {{"kernel", 2}, {"channels", {2, 2}}}}}}});
  check_other(lenet, {{"model", {{"lenet", {{"padding", false}}}}}}, "a model of padding true, and this one has false");
  lenet["model"]["lenet"].update({{"kernel", 1}, {"pool", {1, 2}}});
  check_other(lenet, {{"model", {{"lenet", {{"pool", {2, 1}}}}}}}, "a model of pool [1,2], and this one has [2,1]");
}

}  // namespace
}  // namespace dtrain::trainings
