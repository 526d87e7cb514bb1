#include "schema/kubeflow.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "schema/kubeflow_keys.h"
#include "schema/spec.h"
#include "tests/support/golden.h"

using namespace dtrain;
using namespace dtrain::tests;

TEST_CASE("a manifest is the dtrain.yml that means the same, and says what it leaves out") {
  for (const auto& file : golden_files("kubeflow/good", ".yaml")) {
    CAPTURE(file.filename().string());
    std::vector<std::string> notes;
    ParseOptions options;
    options.file_name = file.filename();
    options.notes = &notes;
    const auto spec = parse_spec(text_of(file), options);
    if (!spec.ok()) FAIL(spec.error().message);
    std::string got;
    for (const std::string& note : notes) got += "# " + note + "\n";
    check_expected(file, got + to_yaml(*spec));
    const auto again = parse_spec(to_yaml(*spec), {});
    REQUIRE(again.ok());
    CHECK(*again == *spec);
  }
}

TEST_CASE("what is wrong with a manifest is said where it stands in it") {
  for (const auto& file : golden_files("kubeflow/bad", ".yaml")) {
    CAPTURE(file.filename().string());
    ParseOptions options;
    options.file_name = file.filename();
    const auto spec = parse_spec(text_of(file), options);
    REQUIRE(!spec.ok());
    check_expected(file, spec.error().message + "\n");
  }
}

TEST_CASE("a file is for Kubernetes wherever in it the job stands") {
  CHECK(is_manifest_text(text_of(TESTDATA "/kubeflow/good/with-others.yaml")));
  CHECK(!is_manifest_text("---\nproject: x\n---\n"));
}

// A job of one or two roles, each with what its container has besides its name.
std::string torch_job(const std::string& master, const std::string& worker = "") {
  const auto role = [](const std::string& container) {
    return "{template: {spec: {containers: [{name: pytorch, " + container + "}]}}}";
  };
  return "{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {name: x}, spec: {pytorchReplicaSpecs: {Master: " + role(master) +
         (worker.empty() ? "" : ", Worker: " + role(worker)) + "}}}";
}

Spec spec_with(const std::string& manifest, const std::vector<std::pair<std::string, std::string>>& set) {
  ParseOptions options;
  options.set = set;
  auto spec = parse_spec(manifest, options);
  if (!spec.ok()) FAIL(spec.error().message);
  return std::move(spec).value();
}

TEST_CASE("settings are about the dtrain.yml that a manifest comes to") {
  const Spec changed = spec_with(text_of(TESTDATA "/kubeflow/good/tfjob.yaml"), {{"train.resources.gpus", "0"}, {"project", "other"}});
  CHECK(changed.project == "other");
  CHECK(changed.role(Role::Worker)->resources.gpus == 0);
  CHECK(changed.role(Role::Ps)->resources.cpus == 0.5);
  ParseOptions wrong;
  wrong.set = {{"train.resources.gpu", "0"}};
  const auto refused = parse_spec(torch_job("command: [a]"), wrong);
  REQUIRE(!refused.ok());
  CHECK(refused.error().message.starts_with("--set train.resources.gpu=0: "));
}

TEST_CASE("a command that is given is that of all containers, with the arguments and variables of images") {
  using Lines = std::vector<std::string>;
  const std::string of_image = torch_job("args: [--rate, '0.1 x'], env: [{name: A, value: $(RANK)}]");
  CHECK(!parse_spec(of_image, {}).ok());
  CHECK(spec_with(of_image, {{"train.run", "python3 t.py"}}).decider().run ==
        Lines{"export A=\"${RANK}\"", "python3 t.py --rate '0.1 x'"});
  const Spec two = spec_with(torch_job("command: [a], args: [b]", "command: [c], env: [{name: N, value: w}]"), {{"train.run", "d e"}});
  CHECK(two.decider().run == Lines{"d e"});
  CHECK(two.role(Role::Worker)->run == Lines{"export N=w", "d e"});
}

TEST_CASE("containers run in their image, where it or workingDir says, and what it runs by itself") {
  using Lines = std::vector<std::string>;
  const auto job = [](const std::string& container, const std::vector<std::pair<std::string, std::string>>& set = {}) {
    return spec_with(torch_job(container), set);
  };
  const Spec plain = job("image: torch:2, command: [python, t.py]");
  CHECK(plain.image == "torch:2");
  CHECK(plain.decider().run == Lines{"cd \"${DTRAIN_IMAGE_DIR}\"", "python t.py"});
  CHECK(job("image: torch:2, command: [python, t.py], workingDir: '/opt/my work'").decider().run ==
        Lines{"mkdir -p '/opt/my work' && cd '/opt/my work'", "python t.py"});
  CHECK(job("image: torch:2").decider().run.back() == "/.dtrain/command");
  CHECK(job("image: torch:2, args: [--rate, '0.1 x']").decider().run.back() == "/.dtrain/entrypoint --rate '0.1 x'");
  CHECK(job("image: torch:2, command: [a]", {{"train.image", "torch:3"}}).image == "torch:3");

  ParseOptions on_hosts;
  std::vector<std::string> notes;
  on_hosts.image = "";
  on_hosts.notes = &notes;
  const auto without = parse_spec(torch_job("image: torch:2, command: [python, t.py], workingDir: /opt"), on_hosts);
  REQUIRE(without.ok());
  CHECK(without->image.empty());
  CHECK(without->decider().run == Lines{"python t.py"});
  REQUIRE(notes.size() == 1);
  CHECK(notes[0].starts_with("workingDir (line 1) is of the image"));
  CHECK(!parse_spec(torch_job("image: torch:2"), on_hosts).ok());   // what it runs is not known

  const std::string two = torch_job("image: torch:2, command: [a]", "image: torch:3, command: [a]");
  const Spec apart = spec_with(two, {});
  CHECK(apart.images() == std::vector<std::string>{"torch:2", "torch:3"});
  CHECK(apart.image_of(*apart.role(Role::Worker)) == "torch:3");
  CHECK(spec_with(two, {{"train.image", "torch:3"}}).images() == std::vector<std::string>{"torch:3"});
  CHECK(parse_spec(two, on_hosts)->images().empty());
  const auto none = parse_spec(torch_job("image: torch:2, command: [a]", "command: [a]"), {});
  REQUIRE(!none.ok());
  CHECK(none.error().message.find("all run in images, or none does") != std::string::npos);
}

TEST_CASE("volumes that lie on nodes are mounts, empty ones directories, and others are said") {
  const auto job = [](const std::string& mounts, const std::string& volumes) {
    return "{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {name: x}, spec: {pytorchReplicaSpecs: {Master: {template: {spec: "
           "{containers: [{name: pytorch, image: i, command: [a], volumeMounts: " + mounts + "}], volumes: " + volumes + "}}}}}}";
  };
  const std::string volumes = "[{name: sets, hostPath: {path: /nfs/sets, type: Directory}}, {name: tmp, emptyDir: {medium: Memory}}, "
                              "{name: claim, persistentVolumeClaim: {claimName: c}}]";
  std::vector<std::string> notes;
  ParseOptions options;
  options.notes = &notes;
  const auto spec = parse_spec(job("[{name: sets, mountPath: /mnt/sets, readOnly: true, subPath: mnist}, {name: tmp, mountPath: '/tmp/a b'}, "
                                   "{name: claim, mountPath: /c}, {name: none, mountPath: /n}]", volumes), options);
  if (!spec.ok()) FAIL(spec.error().message);
  std::vector<std::string> notes_without;
  ParseOptions without;
  without.notes = &notes_without;
  without.image = "";
  REQUIRE(parse_spec(job("[{name: sets, mountPath: /mnt/sets, readOnly: true}, {name: tmp, mountPath: /scratch}]", volumes), without).ok());
  CHECK(notes_without == std::vector<std::string>{"/mnt/sets (line 1) is there in an image alone; on the hosts it is /nfs/sets",
                                                  "/scratch (line 1) is there in an image alone"});
  CHECK(spec->mounts == std::vector<HostMount>{{"/nfs/sets/mnist", "/mnt/sets", true}});
  CHECK(spec->decider().run == std::vector<std::string>{"mkdir -p '/tmp/a b'", "cd \"${DTRAIN_IMAGE_DIR}\"", "a"});
  CHECK(notes == std::vector<std::string>{"not to be had here, and the program may need it: the volume claim (line 1), of /c, the volume none (line 1), of /n",
                                          "where hosts have such a volume by a path, --set 'train.mounts=[PATH:/c]' says so"});
  const std::string mounted = job("[{name: sets, mountPath: /mnt/sets}]", volumes);
  CHECK(spec_with(mounted, {{"train.mounts", "[/other:/mnt/sets]"}}).mounts == std::vector<HostMount>{{"/other", "/mnt/sets"}});
  CHECK(spec_with(mounted, {{"train.image", "null"}, {"train.mounts", "null"}}).mounts.empty());
}

TEST_CASE("what is optional and not there is left out, as in Kubernetes") {
  const std::string manifest = torch_job(
      "image: i, command: [a, $(TOKEN)], envFrom: [{secretRef: {name: s, optional: true}}, {configMapRef: {name: c, optional: true}}], volumeMounts: "
      "[{name: v, mountPath: /v}], env: [{name: TOKEN, valueFrom: {secretKeyRef: {name: s, key: t, optional: true}}}, "
      "{name: URL, valueFrom: {configMapKeyRef: {name: c, key: u, optional: true}}}, {name: MUST, valueFrom: {secretKeyRef: {name: s, key: m, optional: false}}}]");
  const auto with_volume = [&](std::string text) { return text.insert(text.find("containers:"), "volumes: [{name: v, secret: {secretName: s, optional: true}}], "); };
  std::vector<std::string> notes;
  ParseOptions options;
  options.notes = &notes;
  options.is_in_shell = [](const std::string& name) { return name == "URL"; };
  const auto spec = parse_spec(with_volume(manifest), options);
  if (!spec.ok()) FAIL(spec.error().message);
  CHECK(spec->env_from_shell == std::vector<std::string>{"URL", "MUST"});
  CHECK(spec->decider().run.back() == "a '$(TOKEN)'");
  CHECK(notes == std::vector<std::string>{"TOKEN is optional, and left out: your shell does not have it",
                                          "taken from your shell, not from secrets and maps of a cluster: URL, MUST"});
}

TEST_CASE("values of the file's own Secrets go beside what is shown") {
  std::map<std::string, std::string> secrets;
  ParseOptions options;
  options.secrets = &secrets;
  options.set = {{"train.run", "b"}};
  const auto spec = parse_spec(text_of(TESTDATA "/kubeflow/good/secrets.yaml"), options);
  if (!spec.ok()) FAIL(spec.error().message);
  CHECK(spec->env_from_shell == std::vector<std::string>{"HF_TOKEN", "WANDB_API_KEY", "WANDB_USER", "OTHER"});
  CHECK(secrets == std::map<std::string, std::string>{{"HF_TOKEN", "hf_1"}, {"WANDB_API_KEY", "s3cret $(A)"}, {"WANDB_USER", "anna"}});
  for (const auto& [name, value] : secrets) CHECK(to_yaml(*spec).find(value) == std::string::npos);
}

TEST_CASE("a volume of a ConfigMap of the same file is its files") {
  const auto file = [](const std::string& volume, const std::string& mounts, const std::string& map = "data: {run.sh: \"echo 'it {{ x }}'\\n\", lr: \"0.1\"}") {
    return "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: m}\n" + map +
           "\n---\n{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {name: x}, spec: {pytorchReplicaSpecs: {Master: {template: {spec: "
           "{containers: [{name: pytorch, image: i, command: [a], volumeMounts: [" + mounts + "]}], volumes: [{name: v, configMap: {name: m" + volume + "}}]}}}}}}";
  };
  const auto first_line = [](const std::string& text) { return spec_with(text, {}).decider().run.front(); };
  CHECK(first_line(file("", "{name: v, mountPath: /etc/a b}")) ==
        "mkdir -p '/etc/a b' && printf %s 0.1 > '/etc/a b/lr' && printf %s 'echo '\\''it {''{ x }}'\\''\n' > '/etc/a b/run.sh'");
  CHECK(first_line(file("", "{name: v, mountPath: /etc/lr.txt, subPath: lr}")) == "mkdir -p /etc && printf %s 0.1 > /etc/lr.txt");
  CHECK(first_line(file(", items: [{key: lr, path: sub/rate}]", "{name: v, mountPath: /c}")) == "mkdir -p /c/sub && printf %s 0.1 > /c/sub/rate");
  for (const char* mode : {"0755", "493", "0o555"}) {
    CHECK(first_line(file(fmt::format(", defaultMode: {}, items: [{{key: lr, path: r}}]", mode), "{name: v, mountPath: /c}")) ==
          "mkdir -p /c && printf %s 0.1 > /c/r && chmod +x /c/r");
  }
  CHECK(first_line(file(", defaultMode: 0400, items: [{key: lr, path: r}]", "{name: v, mountPath: /c}")) == "mkdir -p /c && printf %s 0.1 > /c/r");
  CHECK(first_line(file(", optional: true, items: [{key: none, path: r}]", "{name: v, mountPath: /c}")) == "mkdir -p /c");
  CHECK(first_line(file(", items: [{key: lr, path: lr}]", "{name: v, mountPath: /lr, subPath: lr}")) == "printf %s 0.1 > /lr");
  const auto refused = parse_spec(file(", items: [{key: none, path: r}]", "{name: v, mountPath: /c}"), {});
  REQUIRE(!refused.ok());
  CHECK(refused.error().message.find("the ConfigMap 'm' of this file has no 'none'") != std::string::npos);

  std::vector<std::string> notes;
  ParseOptions options;
  options.notes = &notes;
  REQUIRE(parse_spec(file("", "{name: v, mountPath: /c}", "binaryData: {lr: AAAA}"), options).ok());
  CHECK(notes.at(1) == "not to be had here, and the program may need it: the volume v (line 6), of /c");
  options.image = "";
  options.set = {{"train.run", "a"}};
  REQUIRE(parse_spec(file("", "{name: v, mountPath: /c}"), options).ok());
  CHECK(notes == std::vector<std::string>{"/c (line 6) is there in an image alone"});
  ParseOptions mpi;
  mpi.notes = &notes;
  const std::string role = "{template: {spec: {containers: [{name: mpi, image: i, command: [a], volumeMounts: [{name: e, mountPath: /e}]}], volumes: [{name: e, emptyDir: {}}]}}}";
  REQUIRE(parse_spec("{apiVersion: kubeflow.org/v1, kind: MPIJob, metadata: {name: x}, spec: {mpiReplicaSpecs: {Launcher: " + role + ", Worker: " + role + "}}}", mpi).ok());
  CHECK(notes == std::vector<std::string>{"/e (line 1) is not there for Worker: only what the Launcher runs can make it"});
}

TEST_CASE("names in braces are parameters where they have a value, and else a text") {
  ParseOptions options;
  options.parameters = {{"rate", "[0.1, 0.2]"}};
  const auto set = parse_spec(torch_job("command: [python3, t.py, '--rate={{ rate }}', '{{ other }}']"), options);
  REQUIRE(set.ok());
  CHECK(set->member_count() == 2);
  CHECK(set->decider().run == std::vector<std::string>{"python3 t.py '--rate={{ rate }}' '{''{ other }}'"});
}

TEST_CASE("pods have as long to end as the slowest of them, who has 30 s where nothing is said") {
  const auto grace_ms = [](const std::string& master, const std::string& worker) {
    const auto role = [](const std::string& of_pod) { return "{template: {spec: {" + of_pod + "containers: [{name: pytorch, command: [a]}]}}}"; };
    return spec_with("{apiVersion: kubeflow.org/v1, kind: PyTorchJob, metadata: {name: x}, spec: {pytorchReplicaSpecs: {Master: " + role(master) +
                         ", Worker: " + role(worker) + "}}}", {}).stop_grace_ms;
  };
  CHECK(grace_ms("", "") == 30'000);
  CHECK(grace_ms("terminationGracePeriodSeconds: 5, ", "") == 30'000);
  CHECK(grace_ms("terminationGracePeriodSeconds: 5, ", "terminationGracePeriodSeconds: 7, ") == 7'000);
  CHECK(grace_ms("", "terminationGracePeriodSeconds: 60, ") == 60'000);
}

TEST_CASE("amounts of Kubernetes") {
  CHECK(parse_quantity("2") == 2);
  CHECK(parse_quantity("0.5") == 0.5);
  CHECK(parse_quantity("500m") == 0.5);
  CHECK(parse_quantity("4Gi") == 4294967296.0);
  CHECK(parse_quantity("512M") == 512e6);
  CHECK(parse_quantity("1e9") == 1e9);
  CHECK(parse_quantity("12k") == 12e3);
  CHECK(parse_quantity("+1") == 1);
  CHECK(parse_quantity("1Ei") == 0x1p60);
  CHECK(parse_quantity("250000u") == 0.25);
  for (const char* text : {"", "Gi", "4 Gi", "4GiB", "-1", "inf", "nan", "1e999", "0x10", "2 cores"}) {
    CAPTURE(text);
    CHECK(!parse_quantity(text));
  }
  CHECK(parse_processes("8") == 8);
  for (const char* text : {"", "0", "-1", "1025", "2x", "auto"}) CHECK(!parse_processes(text));
}
