#include "schema/kubeflow_keys.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cmath>

#include "schema/kubeflow_container.h"
#include "schema/kubeflow_volumes.h"
#include "schema/shapes.h"
#include "schema/spec_check.h"
#include "schema/spec_read.h"
#include "schema/suggest.h"

namespace dtrain {

namespace {

using namespace shapes;

using Names = std::vector<std::string_view>;

// Of what Kubernetes' API has for a pod and its containers, all that is not read here. A program may depend on the
// first of each pair; the second is about images and bookkeeping, of which there is nothing here.
const Names kPodMissed{
    "initContainers", "ephemeralContainers", "nodeSelector", "nodeName", "affinity", "tolerations",
    "topologySpreadConstraints", "hostname", "subdomain", "hostAliases", "dnsConfig", "priorityClassName", "securityContext", "runtimeClassName", "resourceClaims", "schedulingGates",
    "activeDeadlineSeconds", "resources", "restartPolicy", "serviceAccountName", "serviceAccount", "imagePullSecrets", "hostNetwork", "schedulerName"};
const Names kPodSilent{
    "automountServiceAccountToken", "hostIPC", "hostPID", "hostUsers", "shareProcessNamespace", "setHostnameAsFQDN", "enableServiceLinks", "readinessGates", "overhead", "os", "hostnameOverride", "dnsPolicy", "priority",
    "preemptionPolicy"};
const Names kContainerMissed{"volumeDevices", "envFrom", "lifecycle", "securityContext", "livenessProbe", "readinessProbe", "startupProbe"};
const Names kContainerSilent{
    "ports", "imagePullPolicy", "terminationMessagePath", "terminationMessagePolicy", "stdin", "stdinOnce", "tty", "resizePolicy", "restartPolicy"};
const Names kPolicyMissed{"ttlSecondsAfterFinished", "schedulingPolicy"};
// Nothing of an experiment is left running, whatever cleanPodPolicy says.
const Names kPolicySilent{"cleanPodPolicy", "managedBy"};
// Its reader says what they are taken for.
const Names kElasticSilent{"metrics"};
const Names kJobMissed{"ttlSecondsAfterFinished"};
const Names kJobSilent{"cleanPodPolicy", "sshAuthMountPath", "mpiImplementation", "launcherCreationPolicy"};

const Names kTrainJobMissed{"initializer", "runtimePatches", "podTemplateOverrides", "podSpecOverrides", "labels", "annotations"};
const Names kTrainJobSilent{"managedBy"};

class Dropper {
 public:
  explicit Dropper(Missed& missed) : missed_(missed) {}

  void drop_resources(YamlNode* amounts) {
    if (amounts == nullptr) return;
    std::erase_if(amounts->entries, [&](const YamlEntry& entry) {
      const std::string& name = entry.key;
      if (name == "cpu" || name == "memory" || is_gpu_resource(name)) return false;
      const bool of_disk = name == "storage" || name == "ephemeral-storage" || name.starts_with("hugepages-");
      return of_disk || miss(entry);
    });
  }

  void drop(YamlNode* map, const Names& missed, const Names& silent) {
    if (map == nullptr) return;
    std::erase_if(map->entries, [&](const YamlEntry& entry) {
      const auto is_key = [&](std::string_view name) { return name == entry.key; };
      if (std::ranges::any_of(missed, is_key)) return miss(entry);
      return std::ranges::any_of(silent, is_key);
    });
  }

 private:
  bool miss(const YamlEntry& entry) {
    const YamlNode& value = entry.value;
    if (value.kind != YamlNode::Kind::Scalar && value.items.empty() && value.entries.empty()) return true;
    if (value.kind == YamlNode::Kind::Scalar && as_boolean(value) == false) return true;
    if (entry.key == "envFrom") {
      for (const YamlNode& source : value.items) {
        if (!is_optional_source(source)) add(missed_.lacking, source_name(source), source.place.line);
      }
      return true;
    }
    const bool is_of_template = entry.key == "restartPolicy";   // that of the role counts, in Kubeflow too
    const bool is_made_before = entry.key == "initContainers" || entry.key == "initializer";
    add(is_made_before ? missed_.lacking : missed_.idle, is_of_template ? "a template's restartPolicy" : entry.key, entry.place.line);
    return true;
  }
  static void add(std::vector<std::string>& to, const std::string& name, int line) {
    const std::string begins = name + " ";
    if (std::ranges::any_of(to, [&](const std::string& said) { return said.starts_with(begins); })) return;
    to.push_back(fmt::format("{} (line {})", name, line));
  }
  // "secretRef keys", of envFrom.
  static std::string source_name(const YamlNode& source) {
    for (const YamlEntry& entry : source.entries) {
      const YamlNode* const name = value_of(&entry.value, "name");
      if (name != nullptr && name->kind == YamlNode::Kind::Scalar) return entry.key + " " + name->text;
    }
    return "envFrom";
  }

  Missed& missed_;
};

YamlNode* below(YamlNode* map, std::string_view key) {
  return map == nullptr ? nullptr : map->find(key);
}

// Of policies an empty word is none, too.
void drop_nulls(YamlNode& node) {
  std::erase_if(node.entries, [](const YamlEntry& entry) {
    const YamlNode& value = entry.value;
    const bool is_policy = entry.key == "restartPolicy" || entry.key == "successPolicy";
    return value.kind == YamlNode::Kind::Null || (is_policy && value.kind == YamlNode::Kind::Scalar && value.text.empty());
  });
  for (YamlEntry& entry : node.entries) drop_nulls(entry.value);
  for (YamlNode& item : node.items) drop_nulls(item);
}

// What is null, the status, and all of the metadata but the name.
void drop_bookkeeping(YamlNode& manifest) {
  drop_nulls(manifest);
  std::erase_if(manifest.entries, [](const YamlEntry& entry) { return entry.key == "status"; });
  if (YamlNode* metadata = manifest.find("metadata")) {
    std::erase_if(metadata->entries, [](const YamlEntry& entry) { return entry.key != "name" && entry.key != "generateName"; });
  }
}

// Asked of nobody but the parser: they need no pattern.
const TextFormat kQuantity{"an amount such as 2, 500m or 4Gi", "", [](std::string_view text) { return parse_quantity(text).has_value(); }};
// Of Kubernetes' text: "2" as well as 2.
const TextFormat kProcesses{"a whole number from 1 to 1024, auto, cpu or gpu", "", [](std::string_view text) {
                              return text == "auto" || text == "cpu" || text == "gpu" || parse_processes(text).has_value();
                            }};
const TextFormat kField{"a field that there is here: the pod's name, namespace, uid, addresses or node, or Kubeflow's labels", "",
                        [](std::string_view text) { return !word_of_field(text, {}).empty(); }};
const TextFormat kResourceName{"the name of a resource", "", [](std::string_view text) { return !text.empty(); }};

// With what is dropped before anything is checked: of these, too, a name may be mistyped.
std::vector<Key> with_dropped(std::vector<Key> keys, const Names& missed, const Names& silent) {
  for (const Names* names : {&missed, &silent}) {
    for (const std::string_view name : *names) {
      const bool is_there = std::ranges::any_of(keys, [&](const Key& key) { return key.name == name; });
      if (!is_there) keys.push_back({name, text(kAnyText), "", false, false, true});
    }
  }
  return keys;
}

Shape texts(std::string_view expected) {
  return list(expected, text(kAnyText), 1000, 0);
}

Shape amounts() {
  const std::string_view expected = "a map such as cpu: 2, memory: 4Gi, nvidia.com/gpu: 1";
  return either(expected, {nothing(), dict(expected, kResourceName, text(kQuantity))});
}

Shape environment_entry() {
  const auto reference = map("a map of name and key", {{"name", text(kAnyText)}, {"key", text(kAnyText)}, {"optional", boolean()}});
  const std::string_view sources = "secretKeyRef, configMapKeyRef or fieldRef";
  return map("a map of name and value",
             {{"name", text(kEnvName), "", true},
              {"value", either("a text", {nothing(), text(kAnyText)})},
              {"valueFrom",
               map(sources,
                   {{"secretKeyRef", reference},
                    {"configMapKeyRef", reference},
                    {"fieldRef", map("a map of fieldPath", {{"apiVersion", text(kAnyText)}, {"fieldPath", text(kField), "", true}})},
                    {"resourceFieldRef", refused("the container's resources don't say it; write the value")}})}});
}

Shape container() {
  return map("a container",
             with_dropped({{"name", text(kAnyText), "", true},
              {"image", text(kSomeText)},
              {"workingDir", text(kAbsolutePath)},
              {"volumeMounts", list("a list of name and mountPath", either("a mount", {text(kAnyText), map("files", {{"path", text(kAnyText)}, {"run", text(kAnyText)}})}), 1000, 0)},
              {"command", texts("a list of words")},
              {"args", texts("a list of words")},
              {"env", list("a list of name and value", environment_entry(), 1000, 0)},
              {"resources", map("a map of limits and requests", {{"limits", amounts()}, {"requests", amounts()}, {"claims", refused("devices are asked for as nvidia.com/gpu here")}})}}, kContainerMissed, kContainerSilent));
}

Shape replicas(const Names& policies) {
  const auto pod = map("a pod", with_dropped({{"containers", list("a list of containers", container()), "", true},
                                              {"terminationGracePeriodSeconds", integer(0, 31'622'400)}},
                                             kPodMissed, kPodSilent));
  return map("a map of replicas, restartPolicy and template",
             {{"replicas", integer(0, 10'000)},
              {"restartPolicy", word(policies)},
              {"template", map("a map with spec", {{"spec", pod, "", true}}), "", true}});
}

// What may stand in runPolicy; of older versions beside it.
std::vector<Key> policy_keys() {
  return {{"backoffLimit", integer(0, INT32_MAX)},
          {"activeDeadlineSeconds", integer(1, 1e15)},
          {"suspend", boolean()}};
}

Shape job(ManifestKind kind) {
  const std::string_view expected = "a map of roles";
  std::vector<Key> roles;
  for (const std::string_view role : role_words(kind)) {
    roles.push_back({role, replicas({"Never", "OnFailure", "Always", "ExitCode"})});
  }
  std::vector<Key> keys = policy_keys();
  keys.push_back({replicas_key(kind), map(expected, std::move(roles)), "", true});
  keys.push_back({"runPolicy", either("a map", {nothing(), map("a map", with_dropped(policy_keys(), kPolicyMissed, kPolicySilent))})});
  switch (kind) {
    case ManifestKind::TfJob:
      keys.push_back({"successPolicy", word({"AllWorkers"})});
      keys.push_back({"enableDynamicWorker", boolean()});
      break;
    case ManifestKind::PytorchJob: {
      const Shape count = text(kProcesses);
      keys.push_back({"nprocPerNode", count});
      keys.push_back({"elasticPolicy", map("a map", {{"minReplicas", integer(1, 10'000)},
                                               {"maxReplicas", integer(1, 10'000)},
                                               {"maxRestarts", integer(0, INT32_MAX)},
                                               {"nProcPerNode", count},
                                               {"rdzvBackend", text(kSomeText)},
                                               {"rdzvHost", text(kSomeText)},
                                               {"rdzvPort", integer(1, 65535)},
                                               {"rdzvId", text(kSomeText)},
                                               {"rdzvConf", list("a list of key and value", map("a map of key and value", {{"key", text(kSomeText), "", true}, {"value", text(kAnyText), "", true}}), 1000, 0)},
                                               {"standalone", boolean()}})});
      break;
    }
    case ManifestKind::JaxJob:
      break;
    case ManifestKind::MpiJob:
      keys.push_back({"slotsPerWorker", integer(1, 1024)});
      keys.push_back({"mainContainer", text(kSomeText)});
      keys.push_back({"runLauncherAsWorker", either("false", {only_false(), refused("the launcher runs no ranks here; write one worker more")})});
      break;
  }
  return map("what the job is", with_dropped(std::move(keys), kJobMissed, kJobSilent));
}

Shape whole(ManifestKind kind) {
  return map("a manifest",
             {{"apiVersion", word({"kubeflow.org/v1", "kubeflow.org/v2beta1"}), "", true},
              {"kind", text(kAnyText), "", true},
              {"metadata", map("a map with name", {{"name", text(kSomeText)}, {"generateName", text(kSomeText)}}), "", true},
              {"spec", job(kind), "", true}});
}

Shape train_job() {
  const auto resources = map("a map of limits and requests", {{"limits", amounts()}, {"requests", amounts()}});
  const auto trainer = map("a map such as image, command and numNodes",
                           {{"image", text(kSomeText)},
                            {"command", texts("a list of words")},
                            {"args", texts("a list of words")},
                            {"env", list("a list of name and value", environment_entry(), 1000, 0)},
                            {"numNodes", integer(1, 10'000)},
                            {"numProcPerNode", text(kProcesses)},
                            {"resourcesPerNode", resources}});
  const auto runtime = map("a map with the runtime's name", {{"name", text(kSomeText), "", true},
                                                             {"apiGroup", text(kAnyText)},
                                                             {"apiVersion", text(kAnyText)},
                                                             {"kind", text(kAnyText)}});
  return map("what the job is", with_dropped({{"runtimeRef", runtime, "", true},
                                              {"trainer", trainer},
                                              {"suspend", boolean()},
                                              {"activeDeadlineSeconds", integer(1, 1e15)}},
                                             kTrainJobMissed, kTrainJobSilent));
}

}  // namespace

const Shape& train_job_shape() {
  static const Shape shape = map("a manifest", {{"apiVersion", text(kSomeText), "", true},
                                                {"kind", text(kAnyText), "", true},
                                                {"metadata", map("a map with name", {{"name", text(kSomeText)}, {"generateName", text(kSomeText)}}), "", true},
                                                {"spec", train_job(), "", true}});
  return shape;
}

std::optional<ManifestKind> manifest_kind(std::string_view kind) {
  for (const ManifestKind one : {ManifestKind::TfJob, ManifestKind::PytorchJob, ManifestKind::JaxJob, ManifestKind::MpiJob}) {
    if (kind == word_of_kind(one)) return one;
  }
  return std::nullopt;
}

std::string_view word_of_kind(ManifestKind kind) {
  switch (kind) {
    case ManifestKind::TfJob:
      return "TFJob";
    case ManifestKind::PytorchJob:
      return "PyTorchJob";
    case ManifestKind::JaxJob:
      return "JAXJob";
    case ManifestKind::MpiJob:
      break;
  }
  return "MPIJob";
}

std::string in_small_letters(std::string_view word) {
  std::string small(word);
  for (char& letter : small) letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  return small;
}

std::string advice_about(std::string_view kind) {
  if (kind == "XGBoostJob") {
    return "; 'kind: PyTorchJob' with pytorchReplicaSpecs tells its processes the same MASTER_ADDR, MASTER_PORT, WORLD_SIZE and RANK";
  }
  if (kind == "PaddleJob") {
    return "; with 'framework: pytorch' a dtrain.yml runs "
           "python -m paddle.distributed.launch --master \"$MASTER_ADDR:$MASTER_PORT\" --nnodes \"$WORLD_SIZE\" --rank \"$RANK\" train.py";
  }
  // Letters' case aside, by one letter: RayJob is not JAXJob.
  for (const std::string_view meant : {"TFJob", "PyTorchJob", "JAXJob", "MPIJob", "TrainJob"}) {
    if (kind != meant && edit_distance(kind, meant) <= 1) return fmt::format("; did you mean '{}'?", meant);
  }
  return "";
}

std::string_view replicas_key(ManifestKind kind) {
  switch (kind) {
    case ManifestKind::TfJob:
      return "tfReplicaSpecs";
    case ManifestKind::PytorchJob:
      return "pytorchReplicaSpecs";
    case ManifestKind::JaxJob:
      return "jaxReplicaSpecs";
    case ManifestKind::MpiJob:
      break;
  }
  return "mpiReplicaSpecs";
}

const std::vector<std::string_view>& role_words(ManifestKind kind) {
  static const Names tensorflow{"Chief", "Master", "Worker", "PS", "Evaluator"}, pytorch{"Master", "Worker"}, jax{"Worker"}, mpi{"Launcher", "Worker"};
  switch (kind) {
    case ManifestKind::TfJob:
      return tensorflow;
    case ManifestKind::PytorchJob:
      return pytorch;
    case ManifestKind::JaxJob:
      return jax;
    case ManifestKind::MpiJob:
      break;
  }
  return mpi;
}

const Shape& manifest_shape(ManifestKind kind) {
  static const std::array<Shape, 4> shapes{whole(ManifestKind::TfJob), whole(ManifestKind::PytorchJob), whole(ManifestKind::JaxJob), whole(ManifestKind::MpiJob)};
  return shapes[static_cast<size_t>(kind)];
}

bool is_gpu_resource(std::string_view name) {
  return name.ends_with("/gpu") || name.ends_with("/gpu.shared") || name.find("/mig-") != std::string_view::npos ||
         name.starts_with("gpu.intel.com/");
}

void add_notes(const Missed& missed, std::vector<std::string>& notes) {
  if (!missed.lacking.empty()) notes.push_back(fmt::format("not to be had here, and the program may need it: {}", fmt::join(missed.lacking, ", ")));
  if (!missed.idle.empty()) notes.push_back(fmt::format("without Kubernetes these do nothing: {}", fmt::join(missed.idle, ", ")));
}

void drop_unused_of_train_job(YamlNode& manifest, Missed& missed) {
  drop_bookkeeping(manifest);
  Dropper(missed).drop(manifest.find("spec"), kTrainJobMissed, kTrainJobSilent);
}

void drop_unused(YamlNode& manifest, ManifestKind kind, Missed& missed) {
  drop_bookkeeping(manifest);
  Dropper dropper(missed);
  YamlNode* const spec = manifest.find("spec");
  dropper.drop(spec, kJobMissed, kJobSilent);
  dropper.drop(below(spec, "runPolicy"), kPolicyMissed, kPolicySilent);
  dropper.drop(below(spec, "elasticPolicy"), {}, kElasticSilent);
  YamlNode* const roles = below(spec, replicas_key(kind));
  if (roles == nullptr) return;
  for (YamlEntry& role : roles->entries) {
    YamlNode* const pod_template = role.value.find("template");
    dropper.drop(pod_template, {}, {"metadata"});
    YamlNode* const pod = below(pod_template, "spec");
    if (pod != nullptr) simplify_volumes(*pod, missed.lacking);
    dropper.drop(pod, kPodMissed, kPodSilent);
    YamlNode* const containers = below(pod, "containers");
    if (containers == nullptr) continue;
    for (YamlNode& one : containers->items) {
      dropper.drop(&one, kContainerMissed, kContainerSilent);
      YamlNode* const resources = one.find("resources");
      for (const char* amounts : {"limits", "requests"}) dropper.drop_resources(below(resources, amounts));
    }
  }
}

std::optional<int> parse_processes(std::string_view text) {
  int count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  const bool whole = error == std::errc() && end == text.data() + text.size();
  return whole && count >= 1 && count <= 1024 ? std::optional(count) : std::nullopt;
}

std::optional<double> parse_quantity(std::string_view text) {
  double value = 0;
  if (text.starts_with('+')) text.remove_prefix(1);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || text.empty() || !std::isfinite(value) || value < 0) return std::nullopt;
  struct Unit {
    std::string_view suffix;
    double factor;
  };
  static constexpr std::array kUnits{
      Unit{"", 1}, Unit{"n", 1e-9}, Unit{"u", 1e-6}, Unit{"m", 1e-3}, Unit{"k", 1e3}, Unit{"M", 1e6}, Unit{"G", 1e9},
      Unit{"T", 1e12}, Unit{"P", 1e15}, Unit{"E", 1e18},
      Unit{"Ki", 0x1p10}, Unit{"Mi", 0x1p20}, Unit{"Gi", 0x1p30},
      Unit{"Ti", 0x1p40}, Unit{"Pi", 0x1p50}, Unit{"Ei", 0x1p60}};
  const std::string_view suffix(end, static_cast<size_t>(text.data() + text.size() - end));
  const auto unit = std::ranges::find(kUnits, suffix, &Unit::suffix);
  return unit == kUnits.end() ? std::nullopt : std::optional(value * unit->factor);
}

}  // namespace dtrain
