#include "schema/spec.h"

#include <doctest/doctest.h>

#include <algorithm>

#include "tests/support/golden.h"
#include "tests/unit/schema/specs.h"

using namespace dtrain;
using namespace dtrain::tests;

namespace {

namespace fs = std::filesystem;

Result<Spec> parse(const std::string& yaml, const ParseOptions& options = {}) {
  return parse_spec(yaml, options);
}

const std::string kDistributed = R"(
project: toaster
train:
  framework: tensorflow
  tensorflow: {distributed: {worker: 3, ps: 2}}
  run: train --layers {{ num-layers }} --rate {{learning-rate}}
)";

}  // namespace

TEST_CASE("good files mean what their canonical form says") {
  const auto files = golden_files("spec/good", ".yml");
  REQUIRE(files.size() > 5);
  for (const fs::path& file : files) {
    CAPTURE(file.filename().string());
    ParseOptions options;
    if (file.filename().string().starts_with("riseml")) options.file_name = "some/riseml.yml";
    const auto spec = parse(text_of(file), options);
    if (!spec.ok()) FAIL_CHECK(spec.error().message);
    if (!spec.ok()) continue;
    check_expected(file, to_yaml(*spec));
    const auto again = parse(to_yaml(*spec));
    REQUIRE(again.ok());
    CHECK(*again == *spec);
  }
}

TEST_CASE("a project's name that is too long is told the limit") {
  CHECK(parse("{project: " + std::string(100, 'a') + ", train: {run: x}}").ok());
  CHECK(refusal("{project: " + std::string(101, 'a') + ", train: {run: x}}").find("expected a name of at most 100 letters, digits") != std::string::npos);
}

TEST_CASE("bad files are refused with every problem, in file order") {
  const auto files = golden_files("spec/bad", ".yml");
  REQUIRE(files.size() > 20);
  for (const fs::path& file : files) {
    CAPTURE(file.filename().string());
    const auto spec = parse(text_of(file));
    REQUIRE_FALSE(spec.ok());
    CHECK(spec.error().code == Code::InvalidArgument);
    std::string got = spec.error().message + "\n";
    if (!spec.error().hint.empty()) got += "hint: " + spec.error().hint + "\n";
    check_expected(file, got);
  }
}

TEST_CASE("problems come as facts too, each with what to do apart") {
  std::vector<Mistake> mistakes;
  ParseOptions options;
  options.mistakes = &mistakes;
  options.set = {{"train.resources.gpus", "x"}};
  const auto spec =
      parse("project: p\ntrain:\n  resources: {cpu: 2}\n  priority: 'a; b'\n  run: x\n", options);
  REQUIRE_FALSE(spec.ok());
  REQUIRE(mistakes.size() == 3);
  CHECK(mistakes[0] ==
        Mistake{"dtrain.yml", 3, 15, "train.resources.cpu: unknown key", "did you mean 'cpus'?"});
  CHECK(mistakes[1].line == 4);
  CHECK(mistakes[1].message.find("'a; b'") != std::string::npos);
  CHECK(mistakes[1].hint.empty());
  CHECK(mistakes[2].file == "--set train.resources.gpus=x");
  CHECK(mistakes[2].line == 0);
}

TEST_CASE("roles are told apart: the first worker is the master") {
  const auto spec =
      parse(kDistributed, {.parameters = {{"num-layers", "4"}, {"learning-rate", "1"}}});
  REQUIRE(spec.ok());
  REQUIRE(spec->roles.size() == 3);
  CHECK(spec->decider().role == Role::Master);
  CHECK(spec->role(Role::Worker)->count == 2);
  CHECK(spec->role(Role::Ps)->count == 2);
  CHECK(spec->role(Role::Chief) == nullptr);
  CHECK(spec->replica_count() == 5);
  CHECK(spec->is_distributed());
}

TEST_CASE("an experiment that is not distributed has one train replica") {
  for (const char* distributed : {"{}", "false", "", "null"}) {
    const auto spec = parse(fmt::format(
        "{{project: a, train: {{framework: tensorflow, tensorflow: {{distributed: {}}}, run: x}}}}",
        distributed));
    REQUIRE(spec.ok());
    REQUIRE(spec->roles.size() == 1);
    CHECK(spec->roles[0].role == Role::Train);
  }
}

TEST_CASE("JAX has workers, the first of which is the master") {
  const auto in_train = [](const std::string& keys) { return "project: p\ntrain:\n  run: x\n  framework: jax\n" + keys; };
  const auto spec = parse(in_train("  jax: {distributed: {worker: 3}}\n"));
  REQUIRE(spec.ok());
  CHECK(spec->framework == Framework::Jax);
  REQUIRE(spec->roles.size() == 2);
  CHECK(spec->roles[0].role == Role::Master);
  CHECK(spec->roles[1].count == 2);
  REQUIRE(parse(in_train("")).ok());
  CHECK(refusal(in_train("  jax: {distributed: {ps: 1}}\n")).find("JAX has no parameter servers") != std::string::npos);
  CHECK(refusal(in_train("  jax: {nproc-per-node: 2}\n")).find("train.jax.nproc-per-node: unknown key") != std::string::npos);
  CHECK(refusal(in_train("  tensorflow: {distributed: {worker: 2}}\n")).find("roles of JAX stand below 'jax'") != std::string::npos);
  CHECK(refusal(in_train("  pytorch: {distributed: {worker: 2}}\n")).find("this section needs 'framework: pytorch' beside it") != std::string::npos);
  CHECK(refusal(in_train("  env: {PROCESS_ID: 1}\n")) == "dtrain.yml:5:21: train.env.PROCESS_ID: PROCESS_ID is set by dtrain itself; remove it");
  CHECK(refusal("project: p\ntrain: {run: x, jax: {distributed: {worker: 2}}}\n").find("this section needs 'framework: jax' beside it") != std::string::npos);
}

TEST_CASE("PyTorch has workers, the first of which is the master, and processes of torchrun's in each") {
  const auto in_train = [](const std::string& keys) { return "project: p\ntrain:\n  run: x\n  framework: pytorch\n" + keys; };
  auto spec = parse(in_train("  pytorch: {nproc-per-node: gpu, distributed: {worker: 3, master: {resources: {gpus: 2}}}}\n"));
  REQUIRE(spec.ok());
  CHECK(spec->framework == Framework::Pytorch);
  CHECK(spec->pytorch.nproc_per_node == PytorchOptions::kOnePerGpu);
  REQUIRE(spec->roles.size() == 2);
  CHECK(spec->roles[0].role == Role::Master);
  CHECK(spec->roles[0].resources.gpus == 2);
  CHECK(spec->roles[1].role == Role::Worker);
  CHECK(spec->roles[1].count == 2);
  spec = parse(in_train("  pytorch: {nproc-per-node: 4}\n"));
  REQUIRE(spec.ok());
  CHECK(spec->pytorch.nproc_per_node == 4);
  CHECK(spec->decider().role == Role::Train);
  REQUIRE(parse(in_train("")).ok());

  CHECK(refusal(in_train("  pytorch: {distributed: {ps: 1}}\n")).find("PyTorch has no parameter servers of its own") !=
        std::string::npos);
  CHECK(refusal(in_train("  pytorch: {distributed: {worker: 0}}\n")) ==
        "dtrain.yml:5:35: train.pytorch.distributed.worker: at least one worker is needed: the first one is the master");
  CHECK(refusal(in_train("  pytorch: {nproc-per-node: 0}\n")) ==
        "dtrain.yml:5:29: train.pytorch.nproc-per-node: got 0, expected a whole number from 1 to 1024");
  CHECK(refusal(in_train("  tensorflow: {distributed: {worker: 2}}\n")).find("roles of PyTorch stand below 'pytorch'") !=
        std::string::npos);
  CHECK(refusal(in_train("  env: {MASTER_PORT: 29500}\n")) ==
        "dtrain.yml:5:22: train.env.MASTER_PORT: MASTER_PORT is set by dtrain itself; remove it");
  CHECK(refusal(in_train("  parameters: {rank: 8}\n")).find("this would replace RANK in the environment") !=
        std::string::npos);
  CHECK(parse("{project: p, train: {run: x, env: {MASTER_PORT: 1}, parameters: {rank: 8}}}").ok());
  CHECK(refusal("{project: p, train: {run: x, pytorch: {nproc-per-node: 2}}}") ==
        "dtrain.yml:1:39: train.pytorch: this section needs 'framework: pytorch' beside it");
  const auto riseml = [&] {
    ParseOptions options;
    options.file_name = "riseml.yml";
    return parse(in_train("  pytorch: {distributed: {worker: 2}}\n"), options);
  }();
  REQUIRE(riseml.ok());
  CHECK(riseml->role(Role::Ps) == nullptr);
}

TEST_CASE("framework: mpi has a launcher, which runs the command and decides, and workers that wait") {
  const auto in_train = [](const std::string& keys) { return "project: p\ntrain:\n  run: mpirun x\n  framework: mpi\n" + keys; };
  auto spec = parse(in_train("  resources: {cpus: 2, gpus: 1}\n  mpi: {slots: gpu, distributed: {worker: 3}}\n"));
  REQUIRE(spec.ok());
  CHECK(spec->framework == Framework::Mpi);
  CHECK(spec->mpi.slots == MpiOptions::kOnePerGpu);
  REQUIRE(spec->roles.size() == 2);
  CHECK(spec->decider().role == Role::Launcher);
  CHECK(spec->decider().run == std::vector<std::string>{"mpirun x"});
  CHECK(spec->decider().resources == Resources{0.1, uint64_t{512} << 20, 0});
  CHECK(spec->roles[1].role == Role::Worker);
  CHECK(spec->roles[1].count == 3);
  CHECK(spec->roles[1].run == std::vector<std::string>{kMpiWorkerCommand});
  CHECK(spec->roles[1].resources.gpus == 1);
  CHECK(spec->finish_grace_ms == 0);   // nobody waits for workers to end by themselves

  spec = parse(in_train("  mpi: {distributed: {worker: 1, launcher: {resources: {gpus: 2}}}}\n"));
  REQUIRE(spec.ok());
  CHECK(spec->decider().resources.gpus == 2);
  CHECK(spec->mpi.slots == 1);
  spec = parse(in_train(""));
  REQUIRE(spec.ok());
  CHECK(spec->decider().role == Role::Train);

  CHECK(refusal(in_train("  mpi: {distributed: {ps: 1}}\n")).find("MPI has no parameter servers") != std::string::npos);
  CHECK(refusal(in_train("  mpi: {distributed: {worker: {run: y}}}\n")).find("its command is train.run") !=
        std::string::npos);
  CHECK(refusal(in_train("  mpi: {distributed: {launcher: {run: y}}}\n")).find("write it there") != std::string::npos);
  CHECK(refusal(in_train("  mpi: {distributed: {worker: 0}}\n")) ==
        "dtrain.yml:5:31: train.mpi.distributed.worker: at least one worker is needed");
  CHECK(refusal(in_train("  mpi: {distributed: {worker: 1, launcher: 0}}\n")) ==
        "dtrain.yml:5:44: train.mpi.distributed.launcher: there is always exactly one launcher");
  CHECK(refusal(in_train("  completion: all-workers\n  mpi: {distributed: {worker: 2}}\n"))
            .find("MPI's workers end when the launcher has ended") != std::string::npos);
  CHECK(refusal(in_train("  tensorflow: {distributed: {worker: 2}}\n")).find("roles of MPI stand below 'mpi'") !=
        std::string::npos);
  CHECK(refusal("{project: p, train: {run: x, mpi: {slots: 2}}}") ==
        "dtrain.yml:1:35: train.mpi: this section needs 'framework: mpi' beside it");
}

TEST_CASE("a placeholder in the run of one of PyTorch's roles has its value") {
  const std::string yaml = "project: p\ntrain:\n  run: x\n  framework: pytorch\n"
                           "  pytorch: {distributed: {worker: {count: 2, run: 'y {{ rate }}'}}}\n";
  CHECK(refusal(yaml).find("train.pytorch.distributed.worker.run: {{ rate }} has no value") != std::string::npos);
}

TEST_CASE("riseml.yml has RiseML's defaults, dtrain.yml its own") {
  const std::string yaml =
      "{project: a, train: {framework: tensorflow, tensorflow: {distributed: {worker: 2}}, run: "
      "x}}";
  const auto own = parse(yaml);
  const auto riseml = parse(yaml, {.file_name = "/home/x/riseml.yml"});
  REQUIRE(own.ok());
  REQUIRE(riseml.ok());
  CHECK(own->role(Role::Ps) == nullptr);
  CHECK(own->concurrency == 0);
  CHECK(riseml->role(Role::Ps)->count == 1);
  CHECK(riseml->concurrency == 1);
}

TEST_CASE("any riseml*.yml is RiseML's, and what it meant otherwise is said") {
  const auto notes_of = [](const std::string& keys, const char* file) {
    std::vector<std::string> notes;
    ParseOptions options;
    options.file_name = file;
    options.notes = &notes;
    REQUIRE(parse("{project: p1, train: {run: x, " + keys + "}}", options).ok());
    return notes;
  };
  using Notes = std::vector<std::string>;
  CHECK(parse("{project: p1, train: {run: x}}", {.file_name = "a/riseml-hyper.yml"})->concurrency == 1);
  CHECK(parse("{project: p1, train: {run: x}}", {.file_name = "riseml/other.yml"})->concurrency == 0);
  CHECK(notes_of("resources: {cpus: 1, mem: 4, gpus: 0}", "riseml.yml") ==
        Notes{"train.resources.mem: 4 counts MiB, which are too little for any process; write 4GiB for gigabytes"});
  CHECK(notes_of("resources: {cpus: 1, mem: 4096, gpus: 0}", "riseml.yml").empty());
  const std::string tensorboard = "RiseML started a TensorBoard where nothing is said of one; here --set train.tensorflow.tensorboard=true does";
  CHECK(notes_of("framework: tensorflow", "riseml.yml") == Notes{tensorboard});
  CHECK(notes_of("tensorflow: {version: 1.5.0}", "riseml_gpu.yml") == Notes{tensorboard});
  CHECK(notes_of("framework: tensorflow, tensorflow: {tensorboard: false}", "riseml.yml").empty());
  CHECK(notes_of("framework: tensorflow", "dtrain.yml").empty());
}

TEST_CASE("what RiseML deployed is left out, and said") {
  ParseOptions options;
  std::vector<std::string> notes;
  options.file_name = "riseml.yml";
  options.notes = &notes;
  CHECK(parse("{project: x, train: {run: a}, deploy: {image: {name: i}, run: b}}", options).ok());
  CHECK(notes == std::vector<std::string>{"left out: deploy; models are trained here, and deployed elsewhere"});
}

TEST_CASE("riseml.yml takes no list for a value, and says which file does") {
  const std::string yaml =
      "{project: a, train: {framework: tensorflow, tensorflow: {distributed: {worker: [1, 2]}}, run: "
      "x}}";
  CHECK(parse(yaml).ok());
  const auto riseml = parse(yaml, {.file_name = "riseml.yml"});
  REQUIRE_FALSE(riseml.ok());
  CHECK(riseml.error().message.find("worker: got a list") != std::string::npos);
  CHECK(riseml.error().hint == "in a dtrain.yml such lists make a set; in a riseml.yml those of 'parameters' do");
  const auto other = parse("{project: a, train: {run: }}", {.file_name = "riseml.yml"});
  REQUIRE_FALSE(other.ok());
  CHECK(other.error().hint.empty());
}

TEST_CASE("a missing parameter asks for exactly the line to type") {
  const auto spec = parse(kDistributed);
  REQUIRE_FALSE(spec.ok());
  CHECK(
      spec.error().hint ==
      "give the parameters their values: dtrain train -p learning-rate=VALUE -p num-layers=VALUE");
}

TEST_CASE("-p declares, overrides and makes grids") {
  const auto spec =
      parse(kDistributed, {.parameters = {{"num-layers", "{range: {min: 2, max: 6, step: 2}}"},
                                          {"learning-rate", "[0.1, 0.01]"},
                                          {"learning-rate", "[0.5, 0.25]"}}});
  REQUIRE(spec.ok());
  CHECK(spec->parameters == std::vector<Parameter>{{"learning-rate", {"0.5", "0.25"}},
                                                   {"num-layers", {"2", "4", "6"}}});
  CHECK(spec->member_count() == 6);

  const std::string with_a = "{project: p, train: {parameters: {a: 1}, run: x}}";
  CHECK(parse(with_a, {.parameters = {{"a", "text: with, {all} it's"}}})->parameters[0].values[0] ==
        "text: with, {all} it's");
  for (const char* text : {"[A] b", "{a} b", "[A][B]", "[A] {b}", "{a}-{b}.txt", "[a]: b", "[A]\nb"}) {
    const auto given = parse(with_a, {.parameters = {{"a", text}}});
    REQUIRE_MESSAGE(given.ok(), given.error().message);
    CHECK(given->parameters[0].values == std::vector<std::string>{text});
  }
  CHECK(parse(with_a, {.parameters = {{"a", R"(["x]y", z] )"}}})->parameters[0].values == std::vector<std::string>{"x]y", "z"});
  const std::string with_list = "{project: p, train: {python: [python3.11, python3.12], run: x}}";
  CHECK(refusal(with_list, {.parameters = {{"python", "[A] b"}}}).find("train.python: got '[A] b', expected") != std::string::npos);
  CHECK(parse(with_a, {.parameters = {{"a", "{{ b }}"}}})->parameters[0].values[0] == "{{ b }}");
  // What has no value for that has one that was given.
  CHECK(refusal("{project: p, train: {run: 'x {{ c }}'}}", {.parameters = {{"c", "[1"}}}).find("has no value") == std::string::npos);
  CHECK(refusal(with_a, {.parameters = {{"b", "2"}}}) ==
        "-p b=2: there is no parameter 'b'; did you mean 'a'?");
  CHECK(refusal(with_a, {.parameters = {{"2b", "2"}}}).starts_with("-p 2b=2: '2b' is not a name"));
  CHECK(refusal(with_a, {.parameters = {{"a", "[1"}}})
            .starts_with("-p a=[1: this is not valid YAML"));
  CHECK(refusal(with_a, {.parameters = {{"a", "\xff"}}}) ==
        "-p a=\\xff: the value is not UTF-8 text");
}

TEST_CASE("a budget for restarts is used unless a role says otherwise") {
  const auto alone = parse("{project: p, train: {run: x, restart: {limit: 2}}}");
  REQUIRE(alone.ok());
  CHECK(alone->roles[0].on_failure == OnFailure::Restart);
  const auto gang = parse(
      "{project: p, train: {run: x, restart: {limit: 2}, framework: tensorflow, tensorflow: "
      "{distributed: {worker: 2, ps: {count: 1, on-failure: fail}}}}}");
  REQUIRE(gang.ok());
  CHECK(gang->role(Role::Worker)->on_failure == OnFailure::Restart);
  CHECK(gang->role(Role::Ps)->on_failure == OnFailure::Fail);
  CHECK(parse("{project: p, train: {run: x}}")->roles[0].on_failure == OnFailure::Fail);
}

TEST_CASE("--set overrides any key, and its errors name it") {
  const std::string yaml = "{project: p, train: {resources: {gpus: many}, run: [a, b]}}";
  const auto spec = parse(yaml, {.set = {{"train.resources.gpus", "2"},
                                         {"train.restart.limit", "3"},
                                         {"train.run", "echo hello"},
                                         {"note", "mine"}}});
  REQUIRE(spec.ok());
  CHECK(spec->roles[0].resources.gpus == 2);
  CHECK(spec->restart.limit == 3);
  CHECK(spec->roles[0].run == std::vector<std::string>{"echo hello"});
  CHECK(spec->note == "mine");
  const auto quoted = parse(yaml, {.set = {{"train.run", "'/a b/python' train.py"}, {"note", "'a: b'"}, {"train.resources.gpus", "1"}}});
  REQUIRE(quoted.ok());
  CHECK(quoted->roles[0].run == std::vector<std::string>{"'/a b/python' train.py"});
  CHECK(quoted->note == "a: b");

  const std::string good = "{project: p, train: {run: x}}";
  CHECK(refusal(good, {.set = {{"train.resources.gpu", "2"}}}) ==
        "--set train.resources.gpu=2: train.resources.gpu: unknown key; did you mean 'gpus'?");
  CHECK(refusal(good, {.set = {{"train.resources.gpus", "two"}}}) ==
        "--set train.resources.gpus=two: train.resources.gpus: got 'two', expected a whole number "
        "from 0 to 1024");
  CHECK(refusal(good, {.set = {{"train.run.first", "x"}}}) ==
        "--set train.run.first=x: train.run: this is 'x' in the file and has no keys; set it as a "
        "whole");
  for (const char* key : {"", ".", "train.", "a..b", "\xff"}) {
    CHECK(refusal(good, {.set = {{key, "x"}}}).find("expected KEY=VALUE") != std::string::npos);
  }
  CHECK(refusal(good, {.set = {{"train.run", "{{ x }}"}}}).find("quote it") != std::string::npos);
  CHECK(parse("", {.set = {{"project", "p"}, {"train.run", "x"}}}).ok());
}

TEST_CASE("--set KEY=null takes out what is there, and says nothing where there is no such thing but of a misspelt key") {
  const std::string yaml = "{project: x, train: {run: a, env: {A: b}}}";
  for (const char* key : {"train.restart", "train.resources.gpus", "train.tensorflow.distributed.ps.image", "train.env.B", "train.env.A"}) {
    ParseOptions options;
    options.set = {{key, "null"}};
    const auto spec = parse(yaml, options);
    CHECK_MESSAGE(spec.ok(), key);
  }
  for (const char* key : {"train.restrat", "train.resources.gpu", "project", "train.params"}) {
    ParseOptions options;
    options.set = {{key, "null"}};
    CHECK_MESSAGE(!parse(yaml, options).ok(), key);
  }
}

TEST_CASE("a folded command whose options stand below each other is one line") {
  const auto folded =
      parse("project: p\ntrain:\n  run: >-\n    train --a 1\n          --b 2\n      --c 3\n");
  REQUIRE(folded.ok());
  CHECK(folded->roles[0].run[0] == "train --a 1 --b 2 --c 3");
  const auto literal = parse("project: p\ntrain:\n  run: |\n    if true\n      then x\n    fi\n");
  REQUIRE(literal.ok());
  CHECK(literal->roles[0].run[0] == "if true\n  then x\nfi\n");
}

TEST_CASE("a wall of problems is cut") {
  std::string yaml = "project: p\ntrain: {run: x}\n";
  for (int i = 0; i < 200; ++i) yaml += fmt::format("k{}: 1\n", i);
  const std::string message = refusal(yaml);
  CHECK(std::count(message.begin(), message.end(), '\n') == 50);
  CHECK(message.ends_with("and 150 more problems"));
}

TEST_CASE("what would not fit into one message is refused here") {
  std::string yaml =
      "project: p\ntrain:\n  run: &r \"" + std::string(90'000, 'x') + "\"\n  install: [";
  for (int i = 0; i < 8; ++i) yaml += "*r, ";
  CHECK(refusal(yaml + "*r]\n").find("spelt out this is more than 524288 bytes") !=
        std::string::npos);
}

TEST_CASE("the starter file is accepted as it is") {
  const auto spec = parse(starter_yaml("my-project"));
  if (!spec.ok()) FAIL(spec.error().message);
  CHECK(spec->project == "my-project");
  CHECK(spec->framework == Framework::Command);
  CHECK_FALSE(spec->is_set());
}

TEST_CASE("what the starter file says of the engine is accepted, too") {
  std::string yaml = starter_yaml("my-project");
  yaml.erase(yaml.find("  # Your command goes here"));
  const size_t engine = yaml.find("# framework: engine");
  REQUIRE(engine != std::string::npos);
  yaml.replace(engine, 2, "");
  yaml.replace(yaml.find("# engine: "), 2, "");
  const auto spec = parse(yaml);
  if (!spec.ok()) FAIL(spec.error().message);
  CHECK(spec->framework == Framework::Engine);
}
