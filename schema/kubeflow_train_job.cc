#include "schema/kubeflow_train_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string_view>

#include "schema/kubeflow_keys.h"
#include "schema/kubeflow_nodes.h"
#include "schema/quote.h"
#include "schema/spec_check.h"
#include "schema/spec_read.h"

namespace dtrain {

namespace {

struct Runtime {
  std::string_view word;   // in its name: torch-distributed
  ManifestKind kind;
};
constexpr Runtime kRuntimes[] = {{"torch", ManifestKind::PytorchJob},
                                 {"jax", ManifestKind::JaxJob},
                                 {"deepspeed", ManifestKind::MpiJob},
                                 {"mlx", ManifestKind::MpiJob},
                                 {"mpi", ManifestKind::MpiJob}};

// By the first of its words that begins so: torchtune-llama is of torch.
std::optional<ManifestKind> kind_of_runtime(std::string_view name) {
  while (true) {
    const auto found = std::ranges::find_if(kRuntimes, [&](const Runtime& one) { return name.starts_with(one.word); });
    if (found != std::end(kRuntimes)) return found->kind;
    const size_t dash = name.find('-');
    if (dash == std::string_view::npos) return std::nullopt;
    name.remove_prefix(dash + 1);
  }
}

class Rewriting {
 public:
  Rewriting(const YamlNode& manifest, ManifestKind kind) : kind_(kind), manifest_(manifest), spec_(*manifest.find("spec")), trainer_(spec_.find("trainer")) {}

  YamlNode job() const {
    YamlNode spec = map_at(spec_.place);
    for (const char* key : {"suspend", "activeDeadlineSeconds"}) copy(&spec_, key, spec, key);
    put_at(spec, "backoffLimit", scalar_at(spec_.place, "6"));   // of a Job, where its runtime says nothing
    const char* const processes = kind_ == ManifestKind::PytorchJob ? "nprocPerNode" : "slotsPerWorker";
    if (kind_ != ManifestKind::JaxJob) copy(trainer_, "numProcPerNode", spec, processes);
    YamlNode roles = map_at(spec_.place);
    if (kind_ == ManifestKind::MpiJob) put_at(roles, "Launcher", role("1", launcher()));
    const YamlNode* const nodes = value_of(trainer_, "numNodes");
    put_at(roles, "Worker", role(nodes == nullptr ? "1" : nodes->text, worker()));
    put_at(spec, std::string(replicas_key(kind_)), std::move(roles));
    YamlNode root = map_at(manifest_.place);
    put_at(root, "apiVersion", scalar_at(manifest_.place, "kubeflow.org/v1", false));
    put_at(root, "kind", scalar_at(manifest_.place, std::string(word_of_kind(kind_)), false));
    copy(&manifest_, "metadata", root, "metadata");
    put_at(root, "spec", std::move(spec));
    return root;
  }

 private:
  static void copy(const YamlNode* from, std::string_view key, YamlNode& to, std::string as) {
    if (const YamlNode* const found = value_of(from, key)) put_at(to, std::move(as), *found);
  }
  YamlNode container(std::initializer_list<std::pair<const char*, const char*>> keys) const {
    YamlNode out = map_at(trainer_ == nullptr ? spec_.place : trainer_->place);
    put_at(out, "name", scalar_at(out.place, "trainer", false));
    for (const auto& [key, as] : keys) copy(trainer_, key, out, as);
    return out;
  }
  // The launcher starts ranks in all nodes by mpirun; there it is in the first of them.
  YamlNode launcher() const { return container({{"image", "image"}, {"command", "command"}, {"args", "args"}, {"env", "env"}}); }
  YamlNode worker() const {
    if (kind_ == ManifestKind::MpiJob) return container({{"image", "image"}, {"resourcesPerNode", "resources"}});
    return container({{"image", "image"}, {"command", "command"}, {"args", "args"}, {"env", "env"}, {"resourcesPerNode", "resources"}});
  }
  static YamlNode role(const std::string& replicas, YamlNode container) {
    const Place place = container.place;
    YamlNode containers = list_of(place, {});
    containers.items.push_back(std::move(container));
    YamlNode pod = map_at(place), pod_template = map_at(place), out = map_at(place);
    put_at(pod, "containers", std::move(containers));
    put_at(pod_template, "spec", std::move(pod));
    put_at(out, "replicas", scalar_at(place, replicas));
    put_at(out, "restartPolicy", scalar_at(place, "OnFailure", false));   // of a JobSet's pods, likewise
    put_at(out, "template", std::move(pod_template));
    return out;
  }

  const ManifestKind kind_;
  const YamlNode& manifest_;
  const YamlNode& spec_;
  const YamlNode* trainer_;
};

}  // namespace

bool is_train_job(const YamlNode& document) { return scalar_text(document.find("kind")) == "TrainJob"; }

void rewrite_train_job(YamlNode& manifest, Problems& problems, std::vector<std::string>& notes) {
  Missed missed;
  drop_unused_of_train_job(manifest, missed);
  add_notes(missed, notes);
  const size_t before = problems.size();
  check_tree(manifest, train_job_shape(), problems);
  if (problems.size() > before) return;
  const YamlNode* const spec = manifest.find("spec");
  const YamlNode& name = *spec->find("runtimeRef")->find("name");
  const auto kind = kind_of_runtime(name.text);
  if (!kind) {
    problems.add(name.place, "spec.runtimeRef.name",
                 fmt::format("got {}, expected a name with a word that begins with torch, jax, deepspeed, mlx or mpi; what another runtime does is known to its "
                             "cluster alone: write it as a PyTorchJob, or as a dtrain.yml",
                             in_quotes(name.text)));
    return;
  }
  const YamlNode* const processes = value_of(spec->find("trainer"), "numProcPerNode");
  if (processes != nullptr && *kind == ManifestKind::MpiJob && !parse_processes(processes->text)) {
    problems.add(processes->place, "spec.trainer.numProcPerNode", fmt::format("got {}, expected a whole number from 1 to 1024: ranks of MPI are counted", in_quotes(processes->text)));
    return;
  }
  if (processes != nullptr && *kind == ManifestKind::JaxJob) notes.push_back("numProcPerNode changes nothing: JAX has one process in a node, with all of its GPUs");
  const bool has_image = value_of(spec->find("trainer"), "image") != nullptr;
  notes.push_back(fmt::format("of the runtime {}, which is the cluster's, nothing is known but its name: this runs as {} {} would{}", in_quotes(name.text),
                              *kind == ManifestKind::MpiJob ? "an" : "a", word_of_kind(*kind), has_image ? "" : ", and in no image"));
  manifest = Rewriting(manifest, *kind).job();
}

}  // namespace dtrain
