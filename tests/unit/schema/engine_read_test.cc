#include "schema/engine_read.h"

#include <doctest/doctest.h>

#include "schema/engine_keys.h"
#include "schema/expand.h"
#include "tests/unit/schema/specs.h"

using namespace dtrain;
using namespace dtrain::tests;

namespace {

// An experiment whose section has `more` beside what it needs.
std::string yaml_with(const std::string& more, const std::string& beside = "") {
  return fmt::format(
      "project: p\ntrain:\n  framework: engine\n{}  engine:\n    model: mlp\n    data: {{train: "
      "x}}\n    {}\n",
      beside, more);
}

EngineSpec read(const std::string& more) {
  const auto spec = engine_spec_of(member_spec(spec_of(yaml_with(more)), 0));
  if (!spec.ok()) FAIL(spec.error().message);
  return *spec;
}

EngineSpec member(const Spec& spec, uint32_t number) {
  const auto engine = engine_spec_of(member_spec(spec, number));
  if (!engine.ok()) FAIL(engine.error().message);
  return *engine;
}

}  // namespace

TEST_CASE("what is left out has the defaults of the EngineSpec") {
  EngineSpec expected;
  expected.train_data = "x";
  CHECK(read("") == expected);
}

TEST_CASE("models") {
  const auto model = [](const std::string& text) {
    const Spec spec = spec_of(fmt::format(
        "{{project: p, train: {{framework: engine, engine: {{data: {{train: x}}, model: {}}}}}}}",
        text));
    return engine_spec_of(spec).value().model;
  };
  CHECK(model("mlp") == ModelSpec(MlpSpec{}));
  CHECK(model("{mlp: }") == ModelSpec(MlpSpec{}));
  CHECK(model("{mlp: {hidden: 30}}") == ModelSpec(MlpSpec{{30}}));
  CHECK(model("{mlp: {hidden: []}}") == ModelSpec(MlpSpec{{}}));
  CHECK(model("{mlp: {hidden: [512, 256]}}") == ModelSpec(MlpSpec{{512, 256}}));
  CHECK(model("lenet") == ModelSpec(LenetSpec{}));
  CHECK(model("{lenet: {padding: false, pool: [1, 2]}}") == ModelSpec(LenetSpec{.padding = false, .pool = {1, 2}}));
  CHECK(model("{lenet: {kernel: 3, channels: [8, 9], hidden: 10}}") ==
        ModelSpec(LenetSpec{3, {8, 9}, {10}}));
  CHECK(model("gpt") == ModelSpec(GptSpec{}));
  CHECK(model("{gpt: {layers: 2, heads: 3, width: 12, context: 8, vocabulary: 300}}") ==
        ModelSpec(GptSpec{2, 3, 12, 8, 300}));
}

TEST_CASE("strategies, and the one that goes without saying") {
  CHECK(read("").strategy.kind == Strategy::Single);
  CHECK(read("distributed: {worker: 1}").strategy.kind == Strategy::Single);
  CHECK(read("distributed: {worker: 2}").strategy.kind == Strategy::MultiWorkerMirrored);
  CHECK(read("distributed: {worker: 1, ps: 1}").strategy.kind == Strategy::ParameterServer);
  CHECK(read("strategy: single").strategy.kind == Strategy::Single);
  CHECK(read("strategy: allreduce\n    distributed: {worker: 2}").strategy.kind ==
        Strategy::MultiWorkerMirrored);
  CHECK(read("strategy: {mirrored: {devices: 2}}").strategy.devices == 2);
  CHECK(read("strategy: {mirrored: {bucket-mb: 2.5}}").strategy.bucket_mb == 2.5);
  CHECK(read("strategy: {allreduce: {bucket-mb: 8}}\n    distributed: {worker: 2}").strategy.bucket_mb == 8);
  CHECK(read("strategy: central-storage").strategy.kind == Strategy::CentralStorage);
  CHECK(read("strategy: {pipeline: {micro-batches: 8}}").strategy.micro_batches == 8);
  CHECK(read("strategy: {tensor: {}}").strategy.kind == Strategy::Tensor);
  const StrategySpec mesh =
      read("strategy: {mesh: {data: 3, model: 2, bucket-mb: 4}}\n    distributed: {worker: 6}").strategy;
  CHECK(mesh.mesh_data == 3);
  CHECK(mesh.mesh_model == 2);
  CHECK(mesh.bucket_mb == 4);
  const StrategySpec servers = read(
                                   "strategy: {parameter-server: {mode: ssp, staleness: 3, "
                                   "apply-every: 2, data-path: grpc}}\n"
                                   "    distributed: {worker: 2, ps: 2}")
                                   .strategy;
  CHECK(servers == StrategySpec{Strategy::ParameterServer, 0, ServerMode::Ssp, 3, 2, 0,
                                DataPath::Grpc, 4, 1, 1});
  const StrategySpec sync = read(
                                "strategy: {parameter-server: {mode: sync, backup: 1}}\n    "
                                "distributed: {worker: 2, ps: 1}")
                                .strategy;
  CHECK(sync.mode == ServerMode::Sync);
  CHECK(sync.backup == 1);
}

TEST_CASE("lengths, optimisers, schedules and the rest") {
  CHECK(read("batch: 8").batch == 8);
  CHECK(read("scaling: weak").weak_scaling);
  CHECK(read("micro-batch: 4").micro_batch == 4);
  CHECK(read("epochs: 0.5").epochs == 0.5);
  CHECK(read("").precision == Precision::Auto);
  CHECK(read("precision: fp32").precision == Precision::Fp32);
  CHECK(read("steps: 1000000000000").steps == 1'000'000'000'000);
  CHECK(read("epoch: {samples: 500}").epoch_samples == 500);
  CHECK(read("clip: 1.5").clip_norm == 1.5);
  CHECK(read("seed: 9007199254740992").seed == 9'007'199'254'740'992);
  CHECK(read("threads: 3").threads == 3);
  CHECK(read("deadline: 1m30s").deadline_seconds == 90);
  CHECK(read("deadline: 2.5").deadline_seconds == 2.5);
  CHECK(read("optimizer: sgd").optimizer == OptimizerSpec{});
  CHECK(read("optimizer: {sgd: {learning-rate: 0.5, momentum: 0.9, nesterov: true, weight-decay: "
             "0.1}}")
            .optimizer == OptimizerSpec{Optimizer::Sgd, 0.5, 0.9, true, 0.9, 0.999, 1e-8, 0.1});
  CHECK(read("optimizer: adam").optimizer ==
        OptimizerSpec{Optimizer::Adam, 0.001, 0, false, 0.9, 0.999, 1e-8, 0});
  CHECK(read("optimizer: {adamw: {beta1: 0.8, beta2: 0.9, epsilon: 1e-6}}").optimizer ==
        OptimizerSpec{Optimizer::AdamW, 0.001, 0, false, 0.8, 0.9, 1e-6, 0.01});
  CHECK(read("schedule: cosine").schedule.kind == Schedule::Cosine);
  CHECK(read("schedule: {constant: {warm-up: 500 steps, scale-with-batch: 64}}").schedule ==
        ScheduleSpec{Schedule::Constant, 0, 500, 1, 0, 0.1, 0, 64});
  CHECK(read("schedule: {step: {every: 2.5 epochs, factor: 0.5}}").schedule ==
        ScheduleSpec{Schedule::Step, 0, 0, 2.5, 0, 0.5, 0, 0});
  CHECK(read("schedule: {step: {every: 200 steps}}").schedule == ScheduleSpec{Schedule::Step, 0, 0, 1, 200, 0.1, 0, 0});
  CHECK(read("schedule: {linear: {final: 0.2, warm-up: 1 epoch}}").schedule ==
        ScheduleSpec{Schedule::Linear, 1, 0, 1, 0, 0.1, 0.2, 0});
  const EngineSpec steps = read("checkpoint: {every: 500 steps, keep: 2}");
  CHECK(steps.checkpoint_steps == 500);
  CHECK(steps.checkpoint_keep == 2);
  const EngineSpec epochs = read("checkpoint: {every: 0.5 epochs}");
  CHECK(epochs.checkpoint_steps == 0);
  CHECK(epochs.checkpoint_epochs == 0.5);
}

TEST_CASE("spans of training") {
  CHECK(parse_training_span("500 steps")->count == 500);
  CHECK(parse_training_span("1step")->epochs == false);
  CHECK(parse_training_span("0.25 epochs")->count == 0.25);
  CHECK(parse_training_span("1 epoch")->epochs);
  for (const char* text :
       {"", "5", "steps", " 5 steps", "5 steps ", "0.5 steps", "-1 epoch", "1. epochs", "1e3 steps",
        "5 Steps", "1234567890123 steps", "1234567 epochs", "5 stepss"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_training_span(text));
  }
}

TEST_CASE("{{ name }} stands for values, and each member has its own") {
  const Spec spec =
      spec_of(yaml_with("batch: \"{{ batch }}\"\n    optimizer: \"{{ how }}\"\n    checkpoint: "
                        "{every: \"{{ n }} steps\"}",
                        "  parameters: {batch: [8, 16], how: [sgd, adam], n: 500}\n"));
  CHECK(spec.member_count() == 4);
  CHECK(spec.decider().run == std::vector<std::string>{kEngineCommand});
  CHECK(member(spec, 1).batch == 8);
  CHECK(member(spec, 2).batch == 8);
  CHECK(member(spec, 2).optimizer.kind == Optimizer::Adam);
  CHECK(member(spec, 3).batch == 16);
  CHECK(member(spec, 4).checkpoint_steps == 500);
}

TEST_CASE("a list is a dimension of the set, and may be asked for elsewhere") {
  const Spec spec =
      spec_of(yaml_with("batch: [8, 16]\n    optimizer: {sgd: {learning-rate: [0.1, 0.01]}}\n    "
                        "micro-batch: \"{{ batch }}\""));
  REQUIRE(spec.member_count() == 4);
  CHECK(spec.parameters[0].name == "batch");
  CHECK(spec.parameters[1].name == "learning-rate");
  CHECK(member(spec, 2).batch == 8);
  CHECK(member(spec, 2).micro_batch == 8);
  CHECK(member(spec, 2).optimizer.learning_rate == 0.01);
  CHECK(member(spec, 3).micro_batch == 16);
  const auto again = parse_spec(to_yaml(spec), {});
  REQUIRE(again.ok());
  CHECK(member(*again, 4) == member(spec, 4));
}

TEST_CASE("lists where one list belongs are a dimension of the set, too") {
  const auto mlp = [](const std::string& hidden) {
    std::string yaml = yaml_with("batch: 8");
    return yaml.replace(yaml.find("model: mlp"), 10, "model: {mlp: {hidden: " + hidden + "}}");
  };
  const Spec spec = spec_of(mlp("[[64], [32, 16]]"));
  REQUIRE(spec.member_count() == 2);
  CHECK(spec.parameters[0].name == "hidden");
  CHECK(spec.parameters[0].values == std::vector<std::string>{"[64]", "[32, 16]"});
  CHECK(member(spec, 1).model == ModelSpec(MlpSpec{{64}}));
  CHECK(member(spec, 2).model == ModelSpec(MlpSpec{{32, 16}}));
  const auto again = parse_spec(to_yaml(spec), {});
  REQUIRE(again.ok());
  CHECK(member(*again, 2) == member(spec, 2));
  const Spec one = spec_of(mlp("[[64], [32, 16]]"), {.parameters = {{"hidden", "[32, 16]"}}});
  CHECK(one.member_count() == 1);
  CHECK(member(one, 0).model == ModelSpec(MlpSpec{{32, 16}}));
  CHECK(refusal(mlp("[[64], [0]]")) ==
        "dtrain.yml:5:35: train.engine.model.mlp.hidden[1]: got 0, expected a whole number from 1 to 1000000");
  CHECK(refusal(mlp("[[64], 32]")) ==
        "dtrain.yml:5:28: train.engine.model.mlp.hidden[1]: got a list, expected a whole number from 1 to 1000000");
}

TEST_CASE("maps in a list are a dimension of the set, too, each with its own options") {
  const Spec spec = spec_of(yaml_with("optimizer: [sgd, {adam: {learning-rate: 0.002}}, {sgd: {momentum: 0.9}}]"));
  REQUIRE(spec.member_count() == 3);
  CHECK(spec.parameters[0].name == "optimizer");
  CHECK(spec.parameters[0].values ==
        std::vector<std::string>{"sgd", "{adam: {learning-rate: 0.002}}", "{sgd: {momentum: 0.9}}"});
  CHECK(member(spec, 1).optimizer.kind == Optimizer::Sgd);
  CHECK(member(spec, 2).optimizer.kind == Optimizer::Adam);
  CHECK(member(spec, 2).optimizer.learning_rate == 0.002);
  CHECK(member(spec, 3).optimizer.momentum == 0.9);
  const auto again = parse_spec(to_yaml(spec), {});
  REQUIRE(again.ok());
  CHECK(member(*again, 3) == member(spec, 3));
  const Spec one = spec_of(yaml_with("optimizer: [sgd, {adam: {beta1: 0.8}}]"),
                           {.parameters = {{"optimizer", "{adam: {beta1: 0.8}}"}}});
  CHECK(one.member_count() == 1);
  CHECK(member(one, 0).optimizer.beta1 == 0.8);
  CHECK(refusal(yaml_with("optimizer: [sgd, {adam: {beta1: [0.8, 0.9]}}]")) ==
        "dtrain.yml:7:37: train.engine.optimizer.adam.beta1: got a list, expected a number from 0 to 0.999999999");
  CHECK(refusal(yaml_with("optimizer: [sgd, {adam: {beta1: '{{ b }}'}}]", "  parameters: {b: [0.8, 0.9]}\n"))
            .starts_with("dtrain.yml:8:16: train.engine.optimizer: got a list, expected sgd, "));
}

TEST_CASE("-p and --set reach into the section") {
  const std::string yaml = yaml_with("batch: \"{{ batch }}\"\n    clip: [1, 2]");
  const Spec spec = spec_of(yaml, {.parameters = {{"batch", "[4, 6]"}, {"clip", "3"}}});
  CHECK(spec.member_count() == 2);
  CHECK(member(spec, 2).batch == 6);
  CHECK(member(spec, 2).clip_norm == 3);
  const Spec set = spec_of(
      yaml, {.set = {{"train.engine.model", "{lenet: {kernel: 3}}"}, {"train.engine.clip", "0"}},
             .parameters = {{"batch", "4"}}});
  CHECK(member(set, 0).clip_norm == 0);
  CHECK(member(set, 0).model == ModelSpec(LenetSpec{3, {6, 16}, {120, 84}}));
  CHECK(refusal(yaml).find("{{ batch }} has no value; give it with -p batch=VALUE") !=
        std::string::npos);
  CHECK(refusal(yaml, {.parameters = {{"batch", "x"}}}) ==
        "dtrain.yml:7:12: train.engine.batch: got 'x', expected a whole number from 1 to 16777216");
}

TEST_CASE("values with commas where a number belongs have a hint at the list they are meant for") {
  const std::string yaml = yaml_with("batch: \"{{ batch }}\"\n    clip: 1");
  const auto hint = [&](ParseOptions options) { return parse_spec(yaml, options).error().hint; };
  CHECK(hint({.parameters = {{"batch", "4,6"}}}) == "a list of values is written -p 'batch=[4,6]'");
  CHECK(hint({.set = {{"train.engine.clip", "0.5,1"}}, .parameters = {{"batch", "4"}}}) ==
        "a list of values is written --set 'train.engine.clip=[0.5,1]'");
  CHECK(hint({.parameters = {{"batch", "x"}}}).empty());
  // Another value's mistake.
  CHECK(hint({.set = {{"note", "a,b"}}, .parameters = {{"batch", "x"}}}).empty());
}

TEST_CASE("a misspelt key of the engine is led to the one that takes its value") {
  const std::string yaml = "project: x\ntrain: {framework: engine, engine: {model: mlp, data: {train: d}}}\n";
  const auto set = [&](const char* key, const char* value) { return refusal(yaml, {.set = {{key, value}}}); };
  CHECK(set("train.engine.epoch", "3").ends_with("got '3', expected a map of samples; did you mean 'epochs'?"));
  CHECK(set("engine.epoch", "3").ends_with("engine: unknown key; did you mean train.engine.epochs?"));
  CHECK(set("engine.epoch.sample", "3").ends_with("did you mean train.engine.epoch.samples?"));
  CHECK(set("parameters.rate", "3").ends_with("did you mean train.parameters.rate?"));
  CHECK(set("resources", "{cpus: 1, gpus: 1}").ends_with("did you mean train.resources?"));
}

TEST_CASE("--set KEY=null takes a key out, so that another may stand for it") {
  const std::string yaml = yaml_with("epochs: 3");
  CHECK(refusal(yaml, {.set = {{"train.engine.steps", "5"}}}).find("epochs") != std::string::npos);
  const Spec spec = spec_of(yaml, {.set = {{"train.engine.steps", "5"}, {"train.engine.epochs", "null"}}});
  CHECK(member(spec, 0).steps == 5);
  // What is not there may be misspelt, and an empty text is a mistake of a script.
  CHECK(refusal(yaml, {.set = {{"train.engine.epohcs", "null"}}}).find("did you mean 'epochs'") != std::string::npos);
  CHECK(refusal(yaml, {.set = {{"train.engine.epochs", ""}}}).find("got nothing") != std::string::npos);
}

TEST_CASE("who fails means what it means for the strategy") {
  const auto rules = [](const std::string& more, const std::string& beside = "") {
    const Spec spec = spec_of(yaml_with(more, beside));
    std::string text = fmt::format("{}", spec.restart.limit);
    for (const RoleSpec& role : spec.roles) {
      text += fmt::format(" {}:{}", to_string(role.role),
                          role.on_failure == OnFailure::Fail      ? "fail"
                          : role.on_failure == OnFailure::Restart ? "restart"
                                                                  : "ignore");
    }
    return text + (spec.engine.in_step ? " in step" : "");
  };
  CHECK(spec_of(yaml_with("")).restart.backoff_ms == kEngineBackoffMs);
  CHECK(rules("") == "3 train:restart in step");
  CHECK(rules("distributed: {worker: 2}") == "3 master:restart worker:restart in step");
  CHECK(rules("distributed: {worker: 2, ps: 1}") == "3 master:restart worker:ignore ps:restart");
  CHECK(rules("distributed: {worker: 2, ps: {count: 1}}\n    strategy: {parameter-server: {mode: "
              "ssp}}") == "3 master:restart worker:ignore ps:restart");
  CHECK(rules("distributed: {worker: 2, ps: 1}\n    strategy: {parameter-server: {mode: sync}}") ==
        "3 master:restart worker:restart ps:restart in step");
  CHECK(rules("distributed: {worker: 2, ps: 1}", "  restart: {limit: 0}\n") ==
        "0 master:fail worker:ignore ps:fail");
  CHECK(rules("distributed: {worker: {count: 2, on-failure: restart}, ps: 1}") ==
        "3 master:restart worker:restart ps:restart");
}

TEST_CASE("texts of any kind come through a section") {
  const Spec spec = spec_of(
      "{project: p, train: {framework: engine, engine: {model: mlp, data: {train: "
      "\"a: {b} # 'c' \\\" {{ x }}\", test: '007'}}, parameters: {x: \"#: 'y\"}}}");
  const EngineSpec engine = member(spec, 0);
  CHECK(engine.train_data == "a: {b} # 'c' \" #: 'y");
  CHECK(engine.test_data == "007");
}
