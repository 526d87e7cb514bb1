#include "schema/kubeflow_write.h"

#include <doctest/doctest.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <sstream>

#include "schema/expand.h"
#include "schema/kubeflow_command.h"
#include "schema/kubeflow_yaml.h"
#include "schema/run_script.h"
#include "tests/support/golden.h"
#include "tests/unit/schema/exported_text.h"
#include "tests/unit/schema/specs.h"

using namespace dtrain;
using namespace dtrain::tests;

namespace {

Exported manifest_of(const Spec& spec) {
  auto manifest = kubeflow_manifest(spec);
  if (!manifest.ok()) FAIL(manifest.error().message);
  return std::move(manifest).value();
}

// What is written of an image's, "torch:2", with these keys of train.
Exported torch_of(const std::string& keys) { return manifest_of(spec_of("{project: x, train: {framework: pytorch, image: torch:2, " + keys + "}}")); }

// Without what the manifest has no place for.
Spec without(Spec spec, const std::vector<LeftOut>& left_out) {
  const Spec usual;
  const std::map<std::string, std::function<void()>> clear = {
      {"install", [&] { spec.install.clear(); }},
      {"version", [&] { spec.tensorflow.version.clear(); }},
      {"python", [&] { spec.python = usual.python; }},
      {"outputs", [&] { spec.outputs.clear(); }},
      {"hosts", [&] { spec.hosts.clear(); }},
      {"after", [&] {
         spec.after.clear();
         spec.after_end.clear();
       }},
      {"per-host", [&] {
         for (RoleSpec& role : spec.roles) role.per_host = 0;
       }},
      {"metrics", [&] { spec.metrics.clear(); }},
      {"tensorboard", [&] {
         spec.tensorflow.tensorboard = false;
         std::erase_if(spec.roles, [](const RoleSpec& role) { return role.role == Role::Tensorboard; });
       }},
      {"priority", [&] { spec.priority = usual.priority; }},
      {"preemptible", [&] { spec.preemptible = false; }},
      {"failure-policy", [&] { spec.failure_policy.clear(); }},
      {"name", [&] { spec.name.clear(); }},
      {"note", [&] { spec.note.clear(); }},
      {"elastic", [&] { spec.elastic.reset(); }},
      {"elastic.min", [&] {
         spec.elastic->least_of_role = 1;
         if (spec.role(Role::Worker)->count == 1) spec.elastic.reset();
       }},
      {"grow-after", [&] { spec.elastic->grow_after_ms = Elastic().grow_after_ms; }},
      {"completion", [&] { spec.completion = usual.completion; }},
      {"finish-grace", [&] { spec.finish_grace_ms = spec.framework == Framework::Mpi ? 0 : usual.finish_grace_ms; }},
      {"backoff", [&] { spec.restart.backoff_ms = usual.restart.backoff_ms; }},
      {"on-failure: ignore", [&] {
         for (RoleSpec& role : spec.roles) {
           const bool is_said = spec.framework == Framework::Tensorflow && role.role == Role::Worker;   // enableDynamicWorker
           if (role.on_failure == OnFailure::Ignore && !is_said) role.on_failure = OnFailure::Fail;
         }
       }}};
  for (const LeftOut& one : left_out) {
    CAPTURE(one.key);
    REQUIRE(clear.contains(one.key));
    clear.at(one.key)();
  }
  return spec;
}

// What means the same in other words.
Spec in_words_of_a_manifest(Spec spec) {
  for (const Parameter& parameter : spec.parameters) spec.env[parameter_env_name(parameter.name)] = parameter.values.front();
  spec.parameters.clear();
  std::vector<HostMount> mounts;
  for (const auto& [name, path] : spec.data) {
    spec.env[parameter_env_name(name) + "_DIR"] = "/data/" + name;
    mounts.push_back({path, "/data/" + name, true});
  }
  spec.data.clear();
  spec.mounts.insert(spec.mounts.begin(), mounts.begin(), mounts.end());
  spec.concurrency = 0;                              // of members, of which this is one
  spec.hard_cpus = spec.hard_memory = false;         // its limits, which are no caps to who reads it
  for (RoleSpec& role : spec.roles) role.resources.cpus = std::ceil(role.resources.cpus * 1000) / 1000;
  spec.stop_grace_ms = (spec.stop_grace_ms + 999) / 1000 * 1000;
  if (spec.pytorch.nproc_per_node == PytorchOptions::kOnePerGpu) spec.pytorch.nproc_per_node = 1;   // a word for torchrun
  if (spec.mpi.slots == MpiOptions::kOnePerGpu) spec.mpi.slots = std::max(1, spec.role(Role::Worker)->resources.gpus);
  if (spec.framework == Framework::Jax) spec.completion = Completion::AllWorkers;   // which is said
  if (spec.roles[0].role == Role::Train) spec.roles[0].role = Role::Master;   // a gang of one
  const bool some_restart = std::ranges::any_of(spec.roles, [](const RoleSpec& role) { return restarts(role.on_failure); });
  if (!some_restart) spec.restart = {};
  // A master unlike the workers.
  if (spec.framework == Framework::Tensorflow && spec.roles.size() > 1 && spec.roles[0].role == Role::Master && spec.roles[1].role == Role::Worker) {
    const auto unlike = [&](const RoleSpec& worker) {
      RoleSpec same = spec.roles[0];
      same.role = worker.role;
      same.count = worker.count;
      if (worker.on_failure == OnFailure::Ignore && same.on_failure == OnFailure::Fail) same.on_failure = OnFailure::Ignore;
      return same != worker;
    };
    if (unlike(spec.roles[1])) spec.roles[0].role = Role::Chief;
  }
  return spec;
}

void drop_runs(Spec& spec) {
  for (RoleSpec& role : spec.roles) role.run = {"run"};
}

// What is in a manifest and is not read of one: limits as caps.
std::string text_as_read(Spec spec) {
  spec.hard_cpus = spec.hard_memory = false;
  return manifest_of(spec).text;
}

// The first lines that differ; empty where none do.
std::string difference(const std::string& one, const std::string& other) {
  std::istringstream left(one), right(other);
  std::string a, b;
  while (true) {
    const bool is_left = static_cast<bool>(std::getline(left, a)), is_right = static_cast<bool>(std::getline(right, b));
    if (!is_left && !is_right) return "";
    if (is_left != is_right || a != b) return fmt::format("'{}' and '{}'", is_left ? a : "the end", is_right ? b : "the end");
  }
}

}  // namespace

TEST_CASE("a dtrain.yml is written as a manifest, which says what it leaves out") {
  for (const auto& file : golden_files("kubeflow/written", ".yml")) {
    CAPTURE(file.filename().string());
    const Exported manifest = manifest_of(member_spec(spec_of(text_of(file)), 1));
    std::string got;
    for (const LeftOut& one : manifest.left_out) got += fmt::format("# left out: {}; {}\n", one.key, one.why);
    for (const std::string& note : manifest.notes) got += "# " + note + "\n";
    check_expected(file, got + manifest.text);
  }
}

TEST_CASE("a JAXJob has workers alone, which are all alike") {
  const auto job = [](const std::string& roles) {
    return kubeflow_manifest(spec_of("{project: x, train: {framework: jax, image: i, run: a, jax: {distributed: {" + roles + "}}}}"));
  };
  const auto alike = job("worker: 3");
  REQUIRE(alike.ok());
  CHECK(alike->text.find("Worker:") != std::string::npos);
  CHECK(alike->text.find("replicas: 3") != std::string::npos);
  for (const char* master : {"run: b", "resources: {cpus: 3}", "on-failure: restart", "image: j"}) {
    const auto other = job(fmt::format("worker: 3, master: {{{}}}", master));
    CHECK_MESSAGE(!other.ok(), master);
  }
}

TEST_CASE("what Kubernetes has by itself is not written") {
  CHECK(torch_of("run: a, stop-grace: 30s").text.find("terminationGracePeriodSeconds") == std::string::npos);
  CHECK(torch_of("run: a, stop-grace: 31s").text.find("terminationGracePeriodSeconds: 31") != std::string::npos);
}

TEST_CASE("a manifest that was written is read as what it was made of, but for what it leaves out") {
  int exported = 0;
  for (const std::string folder : {"spec/good", "kubeflow/written"}) {
    for (const auto& file : golden_files(folder, ".yml")) {
      CAPTURE(file.filename().string());
      ParseOptions options;
      if (file.filename().string().starts_with("riseml")) options.file_name = "riseml.yml";
      Spec spec = member_spec(spec_of(text_of(file), options), 1);
      if (spec.framework == Framework::Command || spec.framework == Framework::Engine) continue;
      if (spec.image.empty()) spec.image = "registry.example/train:1";
      const Exported manifest = manifest_of(spec);
      Spec again = spec_of(manifest.text);
      // What is run is written in other words, which stay as they are from then on.
      CHECK(difference(text_as_read(spec), text_as_read(again)) == "");
      Spec meant = in_words_of_a_manifest(without(spec, manifest.left_out));
      if (!spec.data.empty()) meant.env["DATA_DIR"] = "/data";   // where a claim of that name is mounted
      drop_runs(meant);
      drop_runs(again);
      if (says(manifest, "the job is called " + again.project)) meant.project = again.project;
      CHECK(difference(to_yaml(meant), to_yaml(again)) == "");
      ++exported;
    }
  }
  CHECK(exported >= 15);
}

TEST_CASE("a manifest that was read is written as it was") {
  for (const auto& file : golden_files("kubeflow/good", ".yaml")) {
    CAPTURE(file.filename().string());
    const bool had_image = !spec_of(text_of(file)).image.empty();
    ParseOptions options;
    if (!had_image) options.set = {{"train.image", "registry.example/train:1"}};
    const Spec spec = spec_of(text_of(file), options);
    const Exported manifest = manifest_of(spec);
    Spec meant = in_words_of_a_manifest(without(spec, manifest.left_out)), again = spec_of(manifest.text);
    CHECK(difference(manifest.text, manifest_of(again).text) == "");
    // What refers to variables of ours is left to a shell.
    if (says(manifest, "not set in a cluster")) {
      drop_runs(meant);
      drop_runs(again);
    }
    CHECK(difference(to_yaml(meant), to_yaml(again)) == "");
  }
}

TEST_CASE("keys of processes and of a rendezvous are written as they were read") {
  const auto job = [](const std::string& keys) {
    const std::string pod = "{replicas: 2, restartPolicy: OnFailure, template: {spec: {containers: [{name: pytorch, image: i, command: [torchrun, t.py, $(PET_RDZV_ID)]}]}}}";
    return "{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {name: x}, spec: {" + keys + ", pytorchReplicaSpecs: {Worker: " + pod + "}}}";
  };
  for (const char* keys : {"elasticPolicy: {minReplicas: 2, maxReplicas: 2, rdzvBackend: etcd-v2, rdzvHost: etcd.example, rdzvPort: 2379, rdzvId: it's $1, maxRestarts: 5}",
                           "nprocPerNode: cpu, elasticPolicy: {minReplicas: 1, rdzvHost: '::1'}",
                           "elasticPolicy: {minReplicas: 1, rdzvConf: [{key: timeout, value: '600'}, {key: read_timeout, value: a b}], standalone: true}", "elasticPolicy: {minReplicas: 1, nProcPerNode: 3}"}) {
    CAPTURE(keys);
    const Spec spec = spec_of(job(keys));
    CHECK(difference(to_yaml(spec), to_yaml(spec_of(manifest_of(spec).text))) == "");
  }
  const Exported manifest = manifest_of(spec_of(job("elasticPolicy: {minReplicas: 1, rdzvConf: [{key: a, value: b=c}]}")));
  CHECK(has(manifest, "- key: a\n        value: b=c\n"));
}

TEST_CASE("a gang is elastic where its keys say so, or all of the lines that such keys are read as") {
  const std::string rendezvous = "'export PET_RDZV_BACKEND=c10d', 'export PET_RDZV_ENDPOINT=\"${MASTER_ADDR}\":\"${MASTER_PORT}\"', "
                                 "'export PET_RDZV_ID=\"${DTRAIN_SUBMISSION}\"'";
  CHECK(has(torch_of("run: [" + rendezvous + ", torchrun t.py]"), "elasticPolicy:"));
  for (const char* line : {"export PET_MAX_RESTARTS=3", "export PET_RDZV_BACKEND=c10d", "export PET_RDZV_ID=7"}) {
    const Exported manifest = torch_of(fmt::format("run: [{}, torchrun t.py]", line));
    CHECK_MESSAGE(!has(manifest, "elasticPolicy:"), line);
    CHECK_MESSAGE(has(manifest, "    Master:\n"), line);
  }
  // Of one role alone.
  const Exported one = torch_of("pytorch: {distributed: {worker: 2, master: {run: [" + rendezvous + ", torchrun t.py]}}}, run: torchrun t.py");
  CHECK(!has(one, "elasticPolicy:"));
  CHECK(has(one, "eval 'export PET_RDZV_ENDPOINT=\"${MASTER_ADDR}\":\"${MASTER_PORT}\"'\n"));
}

TEST_CASE("how many processes each has is said where all roles agree") {
  const auto job = [](const std::string& master, const std::string& worker) {
    return torch_of("pytorch: {distributed: {worker: 2, master: {run: [" + master + "torchrun t.py]}}}, run: [" + worker + "torchrun t.py]");
  };
  const std::string cpu = "export PET_NPROC_PER_NODE=cpu, ";
  CHECK(has(job(cpu, cpu), "nprocPerNode: cpu\n"));
  const Exported differ = job(cpu, "");
  CHECK(has(differ, "nprocPerNode: \"1\"\n"));
  CHECK(has(differ, "eval 'export PET_NPROC_PER_NODE=cpu'\n"));
  CHECK(has(torch_of("run: [export PET_NPROC_PER_NODE=4, torchrun t.py]"), "nprocPerNode: \"1\"\n"));
}

TEST_CASE("an elastic gang beside a master of its own has one worker at least") {
  const auto job = [](const std::string& min) {
    return spec_of("{project: x, train: {framework: pytorch, image: i, run: b, pytorch: {distributed: {worker: 4, elastic: {min: " + min + "}, master: {run: a}}}}}");
  };
  const Exported two = manifest_of(job("3")), none = manifest_of(job("1"));
  CHECK(has(two, "    minReplicas: 2\n    maxReplicas: 3\n"));
  CHECK(two.left_out.empty());
  CHECK(has(none, "    minReplicas: 1\n    maxReplicas: 3\n"));
  REQUIRE(none.left_out.size() == 1);
  CHECK(none.left_out[0].key == "elastic.min");
  Spec meant = without(job("1"), none.left_out), again = spec_of(none.text);
  drop_runs(meant);
  drop_runs(again);
  CHECK(difference(to_yaml(meant), to_yaml(again)) == "");
}

TEST_CASE("lines are run in a container as dtrain runs them") {
  using Lines = std::vector<std::string>;
  for (const Lines& run : {Lines{"cd /", "false; echo go"}, Lines{"false\necho on\n", "echo $$(date)"}, Lines{"echo a \\", "echo b"}, Lines{"cd src", "torchrun \"$A\" \r\n"},
                           Lines{"torchrun \"$A\""}, Lines{"echo \"", "true"}, Lines{"export A=1"}}) {
    CAPTURE(run.front());
    const bool is_taken = run.front() == "export A=1";
    CHECK(container_command(run, {}).command == Lines{"/bin/sh", "-c", kubernetes_text(run_script(is_taken ? Lines() : run))});
  }
  CHECK(container_command({"torchrun \"$A\""}, {}).command.back() == "exec torchrun \"$A\"");
}

TEST_CASE("a line becomes a variable of the container where that is the same") {
  ContainerSide side{{"mnist", "worker", "$((${DTRAIN_REPLICA##*.} - 1))"}, Framework::Pytorch, {"A", "B"}, {"RANK"}};
  const auto made = [&](std::vector<std::string> run) {
    run.push_back("x");
    std::string text;
    const ContainerCommand command = container_command(run, side);
    for (const ContainerEnv& one : command.env) text += fmt::format("{}={}{} ", one.name, one.value, one.field);
    for (const std::string& name : command.unset) text += fmt::format("-{} ", name);
    return text + fmt::format("{}", fmt::join(command.command, " "));
  };
  const auto left = [](const std::string& before, const std::vector<std::string>& lines) { return before + "/bin/sh -c " + kubernetes_text(run_script(lines)); };
  CHECK(made({"export C=1", "export D=\"${C}${A}\"", "export A=2"}) == left("C=1 D=$(C)$(A) ", {"export A=2", "x"}));
  CHECK(made({"export A=\"${A}:two\"", "export C=1"}) == left("", {"export A=\"${A}:two\"", "export C=1", "x"}));
  CHECK(made({"export A=2"}) == "A=2 x");
  CHECK(made({"export C=\"${RANK}\""}) == left("", {"export C=\"${RANK}\"", "x"}));
  CHECK(made({"export C=\"${RANK}\"", "mkdir -p /q", "cd \"${DTRAIN_IMAGE_DIR}\""}) == left("", {"export C=\"${RANK}\"", "mkdir -p /q", "x"}));
  CHECK(made({"export C=\"${RANK}\"", "cd /", "cd \"${DTRAIN_IMAGE_DIR}\""}) ==
        left("", {"export C=\"${RANK}\"", "cd /", "cd \"${DTRAIN_IMAGE_DIR}\"", "x"}));
  CHECK(made({"export C=1", "export C=2"}) == left("C=1 ", {"export C=2", "x"}));
  CHECK(made({"unset A", "export B=1"}) == "B=1 -A x");
  CHECK(made({"unset C"}) == left("", {"unset C", "x"}));
  CHECK(made({"unset RANK"}) == left("", {"unset RANK", "x"}));
  CHECK(made({"export C=1", "unset C"}) == left("C=1 ", {"unset C", "x"}));
  CHECK(made({"export C=\"${A}\"", "unset A"}) == left("C=$(A) ", {"unset A", "x"}));
  // Fields of a pod are what a reader makes of them, and no words that look like theirs.
  CHECK(made({"export C=\"mnist-worker-$((${DTRAIN_REPLICA##*.} - 1))\""}) == "C=metadata.name x");
  CHECK(made({"export C=\"mnist\"", "export D=\"worker\""}) == "C=mnist D=worker x");
}

TEST_CASE("variables that a cluster doesn't set are named where something refers to them still") {
  const auto missed = [](const std::string& keys) {
    for (const std::string& note : torch_of(keys).notes) {
      if (note.starts_with("not set in a cluster")) return note.substr(note.rfind(": ") + 2);
    }
    return std::string();
  };
  CHECK(missed("run: 'a $LOCAL_RANK $OMP_NUM_THREADS $RESUME_DIR $LOCAL_WORLD_SIZE $NODE_RANK $GROUP_RANK $RANK $WORLD_SIZE'") ==
        "GROUP_RANK, LOCAL_RANK, LOCAL_WORLD_SIZE, NODE_RANK, OMP_NUM_THREADS, RESUME_DIR");
  CHECK(missed("run: ['export POD=\"$(uname -n)\"', 'export ID=\"${DTRAIN_SUBMISSION}\"', a]") == "");
  CHECK(missed("env: {OMP_NUM_THREADS: 2, RESUME_DIR: /x}, run: 'a $OMP_NUM_THREADS $RESUME_DIR'") == "");
  CHECK(missed("run: ['export LOCAL_RANK=0', 'a $LOCAL_RANK']") == "");
  CHECK(says(torch_of("run: a"), "OUTPUT_DIR is not set"));
  CHECK(!says(torch_of("run: ['export OUTPUT_DIR=/mnt/x', a]"), "OUTPUT_DIR is not set"));
}

TEST_CASE("names, places and paths are such as Kubernetes takes") {
  const std::string digits = "{project: 1" + std::string(98, 'x') + ", train: {framework: pytorch, image: i, run: a, pytorch: {distributed: {worker: 200, master: {run: b}}}}}";
  const Exported long_name = manifest_of(spec_of(digits));
  const size_t at = long_name.text.find("  name: ") + 8;
  CHECK(long_name.text.substr(at, long_name.text.find('\n', at) - at).size() == 63 - std::string("-worker-198").size());
  const Exported mounts = torch_of("run: [mkdir -p /q, 'mkdir -p /src && cd /src', a], data: {a: /x/y/../z//}, mounts: ['/q:/data/a', '/one:/m', '/two:/m:ro', /q]");
  CHECK(has(mounts, "                path: /x/z\n"));
  CHECK(has(mounts, "                path: /two\n"));
  for (const char* path : {"/data/a", "/m", "/q"}) {
    const std::string entry = fmt::format("                  mountPath: {}\n", path);
    CHECK_MESSAGE(mounts.text.find(entry) != std::string::npos, path);
    CHECK_MESSAGE(mounts.text.find(entry) == mounts.text.rfind(entry), path);
  }
  CHECK(says(mounts, "not mounted, as data or a later mount is at that place here too: /one:/m, /q:/data/a"));
  Spec named = spec_of("{project: x, name: a, note: b, train: {framework: pytorch, image: i, run: a}}");
  CHECK(manifest_of(named).left_out.size() == 2);
}

TEST_CASE("what a manifest can't be made of is said, with what to type") {
  const auto refused = [](const std::string& yaml, const std::string& image = "") {
    Spec spec = spec_of(yaml);
    if (!image.empty()) spec.image = image;
    const auto manifest = kubeflow_manifest(spec);
    return manifest.ok() ? "accepted" : manifest.error().message + "; " + manifest.error().hint;
  };
  const std::string torch = "{project: x, train: {framework: pytorch, run: a}}";
  CHECK(refused(torch, "torch:2") == "accepted");
  CHECK(refused(torch) == "a cluster runs images, and there is no 'image' here; --image NAME: one that holds the project and what it needs");
  for (const char* local : {"/images/torch", "docker-archive:/images/torch.tar"}) {
    CHECK(refused(torch, local).starts_with(fmt::format("'{}' is an image of this machine", local)));
  }
  for (const char* other : {"docker-archive:x.tar", "oci:x", "Torch:2", "torch@sha256:abc"}) {
    CHECK(refused(torch, other).starts_with(fmt::format("'{}' is no name of an image in a registry", other)));
  }
  CHECK(refused("{project: x, train: {run: a}}", "i").ends_with("--set train.framework=pytorch makes a PyTorchJob of its one process"));
}

TEST_CASE("a line is the words of a program where a shell does no more with it") {
  using Words = std::vector<std::string>;
  const std::set<std::string, std::less<>> known{"RATE"};
  const auto words = [&](const char* line) { return kubernetes_words(line, known); };
  CHECK(words("python train.py --rate=0.1") == Words{"python", "train.py", "--rate=0.1"});
  CHECK(words("  a\t'b c'\\''d'  \"e f\" '' ü") == Words{"a", "b c'd", "e f", "", "ü"});
  CHECK(words("a x\"${RATE}\"'$(RATE)' '$$' '$x'") == Words{"a", "x$(RATE)$$(RATE)", "$$$", "$x"});
  CHECK(words("a '$'\"${RATE}\" '$$'\"${RATE}\"") == Words{"a", "$$$(RATE)", "$$$$$(RATE)"});
  CHECK(words("exec FOO=1 a") == Words{"FOO=1", "a"});
  for (const char* line : {"", "  ", "cd x", "A=1 b", "a; b", "a && b", "a > b", "a $RATE", "a \"$RATE\"", "a \"${OTHER}\"", "a *", "a ~", "a # b",
                           "a 'b", "a \"b", "a \\", "a `b`", "a {b,c}", "a \"\\n\"", "a\nb", "exec a", "a b=$(c)"}) {
    CAPTURE(line);
    CHECK(words(line).empty());
  }
}

TEST_CASE("texts of a manifest are texts whatever they look like") {
  const auto text = [](const std::string& value) {
    YamlNode map = yaml_map();
    yaml_put(map, "a", yaml_text(value));
    return manifest_text(map);
  };
  CHECK(text("/bin/sh -c") == "a: \"/bin/sh -c\"\n");
  CHECK(text("-c") == "a: -c\n");
  CHECK(text("../pi") == "a: ../pi\n");
  CHECK(text("say \"it\"") == "a: 'say \"it\"'\n");
  CHECK(text("a\nb\n") == "a: |\n  a\n  b\n");
  CHECK(text("a\n\n b") == "a: |-\n  a\n\n   b\n");
  for (const char* value : {"1", "-1", "1e3", "yes", "No", "NULL", "~", "", "-", "-y", "a: b", "a:", "a #b", "\xE2\x80\xA8\n", " a\nb", "a\n\n", "a\rb\n", "\n"}) {
    CAPTURE(value);
    CHECK(text(value) == fmt::format("a: {}\n", yaml_quoted(value)));
  }
}

TEST_CASE("no letter is the end of a line to one reader and none to another") {
  CHECK(yaml_quoted("a\xC2\x85\xE2\x80\xA8\xE2\x80\xA9\xEF\xBB\xBFü") == "\"a\\u0085\\u2028\\u2029\\uFEFFü\"");
  Spec spec = spec_of("{project: x, train: {framework: pytorch, image: i, run: a}}");
  spec.env["A"] = "a\xC2\x85 \xE2\x80\xA8 \xE2\x80\xA9 \xEF\xBB\xBF b";
  CHECK(spec_of(to_yaml(spec)) == spec);
  CHECK(spec_of(manifest_of(spec).text).env == spec.env);
}
