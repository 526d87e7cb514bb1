#include "schema/kubeflow_write.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <map>
#include <ranges>
#include <set>

#include "schema/cluster_env.h"
#include "schema/expand.h"
#include "schema/image_name.h"
#include "schema/kubeflow_command.h"
#include "schema/kubeflow_elastic.h"
#include "schema/kubeflow_keys.h"
#include "schema/kubeflow_yaml.h"
#include "schema/quote.h"

namespace dtrain {

namespace {

constexpr std::string_view kDataInImage = "/data";

ManifestKind kind_of(Framework framework) {
  return framework == Framework::Pytorch ? ManifestKind::PytorchJob
         : framework == Framework::Jax   ? ManifestKind::JaxJob
         : framework == Framework::Mpi   ? ManifestKind::MpiJob
                                         : ManifestKind::TfJob;
}

std::string policy_of(OnFailure rule) {
  return rule == OnFailure::Restart ? "OnFailure" : rule == OnFailure::RestartOnSignal ? "ExitCode" : "Never";
}

// The master is one of the workers where it is like them.
bool is_like(const RoleSpec& master, const RoleSpec* worker) {
  return worker == nullptr || (master.resources == worker->resources && master.run == worker->run && master.image == worker->image &&
                               policy_of(master.on_failure) == policy_of(worker->on_failure));
}

int64_t whole_seconds(int64_t ms) { return (ms + 999) / 1000; }

// To a thousandth, which is as fine as they are counted there.
std::string cpu_amount(double cpus) { return fmt::format("{}", std::max(1.0, std::ceil(cpus * 1000 - 1e-6)) / 1000); }

std::string memory_amount(uint64_t bytes) {
  for (const auto& [unit, shift] : {std::pair{"Gi", 30}, {"Mi", 20}, {"Ki", 10}}) {
    if (bytes % (uint64_t{1} << shift) == 0) return fmt::format("{}{}", bytes >> shift, unit);
  }
  return fmt::format("{}", bytes);
}

// A role of the manifest, of one of the Spec or of a master and those who are like it.
struct JobRole {
  std::string word;
  const RoleSpec* role;
  int count;
};

// As Kubernetes takes one for a job: it is a part of the names of its pods, which are labels of DNS too.
std::string job_name(std::string_view project, const std::vector<JobRole>& roles) {
  constexpr size_t kMostLetters = 63;
  std::string name = project.front() >= '0' && project.front() <= '9' ? "job-" : "";
  for (const char c : project) name += c == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  size_t longest = 0;
  for (const JobRole& one : roles) longest = std::max(longest, fmt::format("-{}-{}", one.word, one.count - 1).size());
  name = name.substr(0, kMostLetters - longest);
  return name.substr(0, name.find_last_not_of('-') + 1);
}

// Kubernetes takes no path with `..` in it.
std::string plain_path(const std::string& path) {
  std::string plain = std::filesystem::path(path).lexically_normal().string();
  if (plain.size() > 1 && plain.ends_with('/')) plain.pop_back();
  return plain;
}

class Job {
 public:
  explicit Job(const Spec& spec) : spec_(spec), kind_(kind_of(spec.framework)) {}

  Exported manifest() {
    if (kind_ == ManifestKind::PytorchJob) elastic_ = take_elastic_lines(spec_);
    choose_roles();
    name_ = job_name(spec_.project, roles_);
    leave_out();
    YamlNode metadata = yaml_map();
    yaml_put(metadata, "name", yaml_text(name_));
    if (name_ != spec_.project) {
      out_.notes.push_back(fmt::format("the job is called {}: {} is no name for one in Kubernetes", name_, in_quotes(spec_.project)));
    }
    YamlNode root = yaml_map();
    yaml_put(root, "apiVersion", yaml_text("kubeflow.org/v1"));
    yaml_put(root, "kind", yaml_text(std::string(word_of_kind(kind_))));
    yaml_put(root, "metadata", std::move(metadata));
    yaml_put(root, "spec", job());
    note_surroundings();
    out_.text = manifest_text(root);
    return std::move(out_);
  }

 private:
  const RoleSpec* role(Role wanted) const { return spec_.role(wanted); }
  void add(std::string_view word, const RoleSpec* one, int count) {
    if (one != nullptr && count > 0) roles_.push_back({std::string(word), one, count});
  }
  void choose_roles() {
    const RoleSpec& decider = spec_.decider();
    const RoleSpec* const worker = role(Role::Worker);
    const int workers = worker == nullptr ? 0 : worker->count;
    const bool is_worker = decider.role != Role::Chief && is_like(decider, worker);
    switch (kind_) {
      case ManifestKind::TfJob: {
        const bool is_alone = is_worker && workers == 0;
        const std::string_view chief = spec_.tensorflow.chief_task == "master" ? "Master" : "Chief";
        if (!is_worker) add(chief, &decider, 1);
        if (!is_worker && decider.role == Role::Master) {
          out_.notes.push_back("the master is the Chief, which TF_CONFIG then says too: it is not like the workers, and those of a TFJob are all alike");
        }
        add("Worker", is_alone ? &decider : worker, workers + (is_worker ? 1 : 0));
        add("PS", role(Role::Ps), role(Role::Ps) == nullptr ? 0 : role(Role::Ps)->count);
        add("Evaluator", role(Role::Evaluator), role(Role::Evaluator) == nullptr ? 0 : role(Role::Evaluator)->count);
        return;
      }
      case ManifestKind::PytorchJob:
        // Without a Master nobody is told RANK; elastic ones have theirs of a rendezvous.
        if (elastic_.is_given && is_worker) return add("Worker", &decider, workers + 1);
        add("Master", &decider, 1);
        add("Worker", worker, workers);
        return;
      case ManifestKind::JaxJob:
        return add("Worker", &decider, workers + 1);
      case ManifestKind::MpiJob:
        add("Launcher", &decider, 1);
        add("Worker", worker, workers);
        return;
    }
  }
  bool has_dynamic_workers() const {
    const RoleSpec* const worker = role(Role::Worker);
    return kind_ == ManifestKind::TfJob && worker != nullptr && worker->on_failure == OnFailure::Ignore;
  }
  bool has(std::string_view word) const { return std::ranges::find(roles_, word, &JobRole::word) != roles_.end(); }

  // ---- what has no place there

  void lose(bool is_there, std::string key, std::string why) {
    if (is_there) out_.left_out.push_back({std::move(key), std::move(why)});
  }
  void leave_out() {
    const Spec usual;
    lose(!spec_.install.empty(), "install", "the image has to have it");
    lose(!spec_.tensorflow.version.empty(), "version", "the image has to have it");
    lose(spec_.python != usual.python, "python", "commands find that of the image");
    lose(!spec_.outputs.empty(), "outputs", "what is to stay has to be written to a volume");
    const bool is_limited = std::ranges::any_of(spec_.roles, [](const RoleSpec& one) { return one.per_host > 0; });
    lose(is_limited, "per-host", "a podAntiAffinity of the pods says it there");
    lose(!spec_.hosts.empty(), "hosts", "a nodeSelector says there which nodes");
    lose(!spec_.after.empty() || !spec_.after_end.empty(), "after", "who creates the job waits for others");
    lose(!spec_.metrics.empty(), "metrics", "they are in the pods' logs");
    lose(spec_.search.stop_early.has_value(), "stop-early", "a job is one member, and runs to its end");
    lose(role(Role::Tensorboard) != nullptr, "tensorboard", "one is started apart from the job");
    lose(spec_.priority != usual.priority, "priority", "a priorityClassName of the cluster says it there");
    lose(spec_.preemptible, "preemptible", "whoever has a higher priority there takes the place of others");
    lose(!spec_.name.empty(), "name", "the job is called by its project");
    lose(!spec_.note.empty(), "note", "it says nothing to Kubeflow");
    lose(spec_.elastic && kind_ != ManifestKind::PytorchJob, "elastic", "a job of that kind begins with all of its workers");
    const bool has_less = kind_ == ManifestKind::PytorchJob && spec_.elastic && spec_.least_workers() - (has("Master") ? 1 : 0) < 1;
    lose(has_less, "elastic.min", "beside a master there is one worker at least");
    const bool grows_otherwise = spec_.elastic && spec_.elastic->grow_after_ms != Elastic().grow_after_ms;
    lose(grows_otherwise && kind_ == ManifestKind::PytorchJob, "grow-after", "Kubeflow adds workers as soon as it can");
    const bool all_workers = spec_.completion == Completion::AllWorkers;
    const bool can_say_all = (kind_ == ManifestKind::TfJob || kind_ == ManifestKind::JaxJob) && !has("Chief") && !has("Master");
    lose(all_workers && !can_say_all, "completion", kind_ == ManifestKind::TfJob ? "the Chief decides" : "the Master decides, without which nobody has a RANK");
    const int64_t usual_grace = kind_ == ManifestKind::MpiJob ? 0 : usual.finish_grace_ms;
    lose(spec_.finish_grace_ms != usual_grace, "finish-grace", "what still runs when the job is decided ends at once");
    const bool some_restart = std::ranges::any_of(roles_, [](const JobRole& one) { return restarts(one.role->on_failure); });
    lose(some_restart && spec_.restart.backoff_ms != usual.restart.backoff_ms, "backoff", "Kubernetes has its own");
    const bool some_ignored = std::ranges::any_of(spec_.roles, [&](const RoleSpec& one) {
      const bool is_said = one.role == Role::Tensorboard || (one.role == Role::Worker && has_dynamic_workers());
      return one.on_failure == OnFailure::Ignore && !is_said;
    });
    lose(some_ignored, "on-failure: ignore", kind_ == ManifestKind::TfJob ? "but for workers, one that fails ends the job" : "one that fails ends the job");
    lose(!spec_.failure_policy.empty(), "failure-policy", "a restartPolicy knows exit codes alone");
    if (spec_.stop_grace_ms % 1000 != 0 || spec_.max_duration_ms % 1000 != 0) {
      out_.notes.push_back("durations are whole seconds there, and rounded up");
    }
  }

  // What the pods find, or don't.
  void note_surroundings() {
    out_.notes.push_back("the image has to hold the project's files, in its working directory");
    if (!missed_.empty()) out_.notes.push_back(fmt::format("not set in a cluster, and in what is run: {}", fmt::join(missed_, ", ")));
    const bool is_set = std::ranges::any_of(roles_, [](const JobRole& one) {
      return std::ranges::any_of(one.role->run, [](const std::string& line) { return line.find("OUTPUT_DIR=") != line.npos; });
    });
    if (!is_set && !missed_.contains("OUTPUT_DIR")) {
      out_.notes.push_back("OUTPUT_DIR is not set there: what a program does not write to a volume goes with its pod");
    }
    if (!hidden_.empty()) {
      out_.notes.push_back(fmt::format("not mounted, as data or a later mount is at that place here too: {}", fmt::join(hidden_, ", ")));
    }
    if (!volumes_.empty()) {
      out_.notes.push_back(fmt::format("each node has to have, by these paths: {}", fmt::join(volumes_, ", ")));
    }
    if (!spec_.env_from_shell.empty()) {
      std::string keys;
      for (const std::string& name : spec_.env_from_shell) keys += fmt::format(" --from-literal={0}=\"${0}\"", name);
      out_.notes.push_back(fmt::format("its secrets: kubectl create secret generic {}{}", name_, keys));
    }
    if (has_dynamic_workers()) out_.notes.push_back("enableDynamicWorker: to a Worker TF_CONFIG names itself and the PS alone there");
    if (kind_ == ManifestKind::JaxJob) {
      out_.notes.push_back("a JAXJob tells COORDINATOR_ADDRESS, COORDINATOR_PORT, NUM_PROCESSES and PROCESS_ID, and not their names with JAX_");
    }
    if (kind_ == ManifestKind::JaxJob && spec_.completion != Completion::AllWorkers && spec_.is_distributed()) {
      out_.notes.push_back("there the job ends well when all workers have, not with the first of them");
    }
    const bool is_torch = kind_ == ManifestKind::PytorchJob;
    const bool is_torchrun = std::ranges::any_of(spec_.decider().run, [](const std::string& line) {
      return line.find("torchrun") != line.npos || line.find("torch.distributed") != line.npos;
    });
    if (is_torch && !has("Master") && !is_torchrun) {
      out_.notes.push_back("elastic workers meet by torchrun there: nobody else is told RANK and MASTER_ADDR");
    } else if (is_torch && spec_.pytorch.nproc_per_node != 1 && !elastic_.is_rank_of_node && !is_torchrun) {
      out_.notes.push_back("RANK counts replicas there, whose processes torchrun starts");
    }
  }
  // What dtrain tells a process, and Kubeflow does not.
  bool is_missed(std::string_view name, const ContainerSide& side) const {
    constexpr std::array<std::string_view, 6> kOthers = {"OUTPUT_DIR",    "AFTER_DIR",       "RESUME_DIR",
                                                         "EXPERIMENT_ID", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES"};
    if (side.variables.contains(name) || side.told.contains(name)) return false;
    const bool is_of_torch = kind_ == ManifestKind::PytorchJob && is_pytorch_variable(name);
    const bool is_of_jax = kind_ == ManifestKind::JaxJob && is_jax_variable(name);   // a TrainJob's pods have them
    return is_of_torch || is_of_jax || name.starts_with("DTRAIN_") || std::ranges::find(kOthers, name) != kOthers.end();
  }
  void note_missed(const ContainerCommand& command, const ContainerSide& side) {
    std::vector<std::string> lines = command.command;
    lines.insert(lines.end(), command.arguments.begin(), command.arguments.end());
    for (const ContainerEnv& one : command.env) lines.push_back(one.value);
    missed_.merge(names_in_lines(lines, [&](std::string_view name) { return is_missed(name, side); }));
  }

  // ---- what there is

  YamlNode job() {
    YamlNode out = yaml_map();
    if (kind_ == ManifestKind::PytorchJob) elastic_.put(spec_, has("Master"), out);
    if (kind_ == ManifestKind::MpiJob) yaml_put(out, "slotsPerWorker", yaml_bare(slots()));
    if (kind_ == ManifestKind::TfJob && spec_.completion == Completion::AllWorkers && !has("Chief") && !has("Master")) {
      yaml_put(out, "successPolicy", yaml_text("AllWorkers"));
    }
    if (has_dynamic_workers()) yaml_put(out, "enableDynamicWorker", yaml_bare("true"));
    yaml_put(out, "runPolicy", run_policy());
    YamlNode roles = yaml_map();
    for (const JobRole& one : roles_) yaml_put(roles, one.word, replicas(one));
    yaml_put(out, std::string(replicas_key(kind_)), std::move(roles));
    return out;
  }
  int64_t slots() const {
    const RoleSpec* const worker = role(Role::Worker);
    return spec_.mpi.slots != MpiOptions::kOnePerGpu ? spec_.mpi.slots : std::max(1, worker == nullptr ? 1 : worker->resources.gpus);
  }

  YamlNode run_policy() const {
    YamlNode policy = yaml_map();
    // Left out, parameter servers would go on for ever.
    yaml_put(policy, "cleanPodPolicy", yaml_text("Running"));
    const bool some_restart = std::ranges::any_of(roles_, [](const JobRole& one) { return restarts(one.role->on_failure); });
    if (some_restart) yaml_put(policy, "backoffLimit", yaml_bare(spec_.restart.limit));
    if (spec_.max_duration_ms > 0) yaml_put(policy, "activeDeadlineSeconds", yaml_bare(whole_seconds(spec_.max_duration_ms)));
    if (spec_.suspend) yaml_put(policy, "suspend", yaml_bare("true"));
    return policy;
  }

  YamlNode replicas(const JobRole& one) {
    YamlNode pod = yaml_map();
    const int64_t grace = whole_seconds(spec_.stop_grace_ms);
    if (grace != kKubernetesGraceSeconds) yaml_put(pod, "terminationGracePeriodSeconds", yaml_bare(grace));
    YamlNode volumes = yaml_list();
    YamlNode containers = yaml_list();
    containers.items.push_back(container(one, volumes));
    yaml_put(pod, "containers", std::move(containers));
    if (!volumes.items.empty()) yaml_put(pod, "volumes", std::move(volumes));
    YamlNode pod_template = yaml_map();
    yaml_put(pod_template, "spec", std::move(pod));
    YamlNode out = yaml_map();
    yaml_put(out, "replicas", yaml_bare(one.count));
    yaml_put(out, "restartPolicy", yaml_text(policy_of(one.role->on_failure)));
    yaml_put(out, "template", std::move(pod_template));
    return out;
  }

  YamlNode container(const JobRole& one, YamlNode& volumes) {
    const bool waits = kind_ == ManifestKind::MpiJob && one.word == "Worker";   // for what the launcher starts in it
    std::map<std::string, std::string> texts = environment();
    ContainerCommand command;
    if (!waits) {
      const ContainerSide side = side_of(one, texts);
      command = container_command(one.role->run, side);
      note_missed(command, side);
    }
    YamlNode out = yaml_map();
    yaml_put(out, "name", yaml_text(std::string(to_string(spec_.framework))));
    yaml_put(out, "image", yaml_text(spec_.image_of(*one.role)));
    if (!command.directory.empty()) yaml_put(out, "workingDir", yaml_text(command.directory));
    if (!command.command.empty()) yaml_put(out, "command", yaml_list(command.command));
    if (!command.arguments.empty()) yaml_put(out, "args", yaml_list(command.arguments));
    if (YamlNode env = env_of(std::move(texts), command); !env.items.empty()) yaml_put(out, "env", std::move(env));
    yaml_put(out, "resources", resources_of(one.role->resources));
    if (YamlNode mounts = mounts_of(command, volumes); !mounts.items.empty()) yaml_put(out, "volumeMounts", std::move(mounts));
    return out;
  }

  // What all have: theirs, parameters, and where data sets are.
  std::map<std::string, std::string> environment() const {
    std::map<std::string, std::string> texts = spec_.env;
    for (const Parameter& parameter : spec_.parameters) texts[parameter_env_name(parameter.name)] = parameter.values.front();
    if (!spec_.data.empty()) texts["DATA_DIR"] = kDataInImage;
    for (const auto& [name, path] : spec_.data) texts[parameter_env_name(name) + "_DIR"] = fmt::format("{}/{}", kDataInImage, name);
    return texts;
  }

  ContainerSide side_of(const JobRole& one, const std::map<std::string, std::string>& texts) const {
    ContainerSide side{{spec_.project, in_small_letters(one.word), "0"}, spec_.framework, {}, {}};
    const bool is_numbered = one.word != "Chief" && one.word != "Master" && one.word != "Launcher";
    const bool from_master = one.word == "Worker" && !has("Chief") && !has("Master");
    if (is_numbered) side.names.index = from_master ? "$((${DTRAIN_REPLICA##*.}))" : "$((${DTRAIN_REPLICA##*.} - 1))";
    for (const auto& [name, text] : texts) side.variables.insert(name);
    side.variables.insert(spec_.env_from_shell.begin(), spec_.env_from_shell.end());
    if (kind_ == ManifestKind::TfJob) side.told.insert("TF_CONFIG");
    if (kind_ == ManifestKind::PytorchJob) elastic_.add_variables(has("Master"), side.told);
    if (kind_ == ManifestKind::JaxJob) side.told.insert({"COORDINATOR_ADDRESS", "COORDINATOR_PORT", "NUM_PROCESSES", "PROCESS_ID"});
    return side;
  }

  YamlNode env_of(std::map<std::string, std::string> texts, const ContainerCommand& command) const {
    YamlNode list = yaml_list();
    const auto is_shared = [&](const std::string& name) {
      const bool is_own = std::ranges::find(command.env, name, &ContainerEnv::name) != command.env.end();
      return !is_own && std::ranges::find(command.unset, name) == command.unset.end();
    };
    const auto add_entry = [&](const std::string& name, const char* key, YamlNode value) {
      YamlNode entry = yaml_map();
      yaml_put(entry, "name", yaml_text(name));
      yaml_put(entry, key, std::move(value));
      list.items.push_back(std::move(entry));
    };
    const auto source = [](const char* kind, const std::vector<std::pair<const char*, std::string>>& fields) {
      YamlNode reference = yaml_map();
      for (const auto& [key, text] : fields) yaml_put(reference, key, yaml_text(text));
      YamlNode from = yaml_map();
      yaml_put(from, kind, std::move(reference));
      return from;
    };
    for (const auto& [name, text] : texts) {
      if (is_shared(name)) add_entry(name, "value", yaml_text(kubernetes_text(text)));
    }
    for (const std::string& name : spec_.env_from_shell) {
      if (is_shared(name)) add_entry(name, "valueFrom", source("secretKeyRef", {{"name", name_}, {"key", name}}));
    }
    for (const ContainerEnv& one : command.env) {
      if (one.field.empty()) {
        add_entry(one.name, "value", yaml_text(one.value));
      } else {
        add_entry(one.name, "valueFrom", source("fieldRef", {{"fieldPath", one.field}}));
      }
    }
    return list;
  }

  // What is promised is requested; caps are limits, and so are GPUs, there.
  YamlNode resources_of(const Resources& wanted) const {
    YamlNode requests = yaml_map(), limits = yaml_map();
    const YamlNode cpus = yaml_text(cpu_amount(wanted.cpus)), memory = yaml_text(memory_amount(wanted.memory_bytes));
    yaml_put(requests, "cpu", cpus);
    yaml_put(requests, "memory", memory);
    if (spec_.hard_cpus) yaml_put(limits, "cpu", cpus);
    if (spec_.hard_memory) yaml_put(limits, "memory", memory);
    if (wanted.gpus > 0) yaml_put(limits, "nvidia.com/gpu", yaml_bare(wanted.gpus));
    YamlNode out = yaml_map();
    yaml_put(out, "requests", std::move(requests));
    if (!limits.entries.empty()) yaml_put(out, "limits", std::move(limits));
    return out;
  }

  // What is mounted over something else is what is seen there, and stands alone here.
  std::vector<HostMount> mounts_seen(const ContainerCommand& command) {
    std::vector<HostMount> seen, own;
    std::set<std::string> places;
    for (const auto& [name, path] : spec_.data) {
      seen.push_back({path, fmt::format("{}/{}", kDataInImage, name), true});
      places.insert(seen.back().path);
    }
    for (const HostMount& one : spec_.mounts | std::views::reverse) {
      if (places.insert(one.path).second) {
        own.insert(own.begin(), one);
      } else {
        hidden_.insert(to_string(one));
      }
    }
    seen.insert(seen.end(), own.begin(), own.end());
    for (const std::string& path : command.empty_directories) {
      if (places.insert(path).second) seen.push_back({"", path});
    }
    return seen;
  }

  YamlNode mounts_of(const ContainerCommand& command, YamlNode& volumes) {
    YamlNode list = yaml_list();
    for (const HostMount& one : mounts_seen(command)) {
      const std::string name = fmt::format("volume-{}", volumes.items.size() + 1);
      const std::string source = one.source.empty() ? "" : plain_path(one.source);
      YamlNode volume = yaml_map(), place = yaml_map();
      yaml_put(volume, "name", yaml_text(name));
      if (!source.empty()) yaml_put(place, "path", yaml_text(source));
      yaml_put(volume, source.empty() ? "emptyDir" : "hostPath", std::move(place));
      volumes.items.push_back(std::move(volume));
      if (!source.empty()) volumes_.insert(source);
      YamlNode mount = yaml_map();
      yaml_put(mount, "name", yaml_text(name));
      yaml_put(mount, "mountPath", yaml_text(one.path));
      if (one.read_only) yaml_put(mount, "readOnly", yaml_bare("true"));
      list.items.push_back(std::move(mount));
    }
    return list;
  }

  Spec spec_;
  const ManifestKind kind_;
  std::string name_;
  std::vector<JobRole> roles_;
  ElasticPolicy elastic_;
  std::set<std::string> volumes_;  // paths of the nodes
  std::set<std::string> hidden_;   // mounts under others
  std::set<std::string> missed_;   // variables
  Exported out_;
};

Status check_kind(const Spec& spec) {
  if (spec.framework == Framework::Jax && !is_like(spec.decider(), spec.role(Role::Worker))) {
    return Error{Code::InvalidArgument, "the workers of a JAXJob are all alike, and here the master is another", "leave out 'master', or what it says"};
  }
  if (spec.framework == Framework::Engine) {
    return Error{Code::InvalidArgument, "framework: engine is trained by dtrain-engine, which Kubeflow knows nothing of", "programs of your own can be exported"};
  }
  if (spec.framework == Framework::Command) {
    return Error{Code::InvalidArgument, "framework: command is none of Kubeflow's kinds of jobs, which train with TensorFlow, PyTorch, JAX or MPI",
                 "--set train.framework=pytorch makes a PyTorchJob of its one process"};
  }
  return ok();
}

}  // namespace

Result<Exported> kubeflow_manifest(const Spec& spec) {
  TRY(check_kind(spec));
  if (spec.image.empty()) {
    return Error{Code::InvalidArgument, "a cluster runs images, and there is no 'image' here", "--image NAME: one that holds the project and what it needs"};
  }
  for (const std::string& image : spec.images()) {
    if (is_image_directory(image) || image.find(":/") != std::string::npos) {
      return Error{Code::InvalidArgument, fmt::format("{} is an image of this machine; a cluster takes it from a registry", in_quotes(image)),
                   "--image NAME: one of a registry"};
    }
    if (!is_of_registry(image)) {
      return Error{Code::InvalidArgument, fmt::format("{} is no name of an image in a registry", in_quotes(image)),
                   "--image registry.example/name:tag, the name in lower case; a digest is sha256: and 64 letters"};
    }
  }
  return Job(spec).manifest();
}

}  // namespace dtrain
