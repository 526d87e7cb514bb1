#include "schema/kubeflow.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <optional>

#include "schema/kubeflow_keys.h"
#include "schema/kubeflow_roles.h"
#include "schema/quote.h"
#include "schema/spec_check.h"

namespace dtrain {

namespace {

constexpr std::string_view kKinds = "TFJob, PyTorchJob or MPIJob";

YamlNode scalar(Place place, std::string text, bool plain = true) {
  YamlNode node;
  node.kind = YamlNode::Kind::Scalar;
  node.place = place;
  node.plain = plain;
  node.text = std::move(text);
  return node;
}
YamlNode map_at(Place place) {
  YamlNode node;
  node.kind = YamlNode::Kind::Map;
  node.place = place;
  return node;
}
YamlNode list_of(Place place, const std::vector<std::string>& texts) {
  YamlNode node;
  node.kind = YamlNode::Kind::List;
  node.place = place;
  for (const std::string& text : texts) node.items.push_back(scalar(place, text, false));
  return node;
}
void put(YamlNode& map, std::string key, YamlNode value) {
  const Place place = value.place;
  map.entries.push_back({std::move(key), place, std::move(value)});
}

const YamlNode* at(const YamlNode* map, std::string_view key) {
  return map == nullptr ? nullptr : map->find(key);
}
int whole(const YamlNode* node, int left_out) {
  return node == nullptr ? left_out : static_cast<int>(as_integer(*node).value_or(left_out));
}

class Translation {
 public:
  Translation(const YamlNode& manifest, ManifestKind kind, bool has_run, Problems& problems, std::vector<std::string>& notes)
      : kind_(kind), has_run_(has_run), manifest_(manifest), spec_(*manifest.find("spec")), problems_(problems), notes_(notes) {}

  std::optional<YamlNode> dtrain_yml() {
    roles_ = read_pod_roles(spec_, kind_, has_run_, problems_, notes_);
    if (!problems_.empty()) return std::nullopt;
    shared_ = share_variables(roles_, kind_, notes_);
    train_ = map_at(decider().container->place);
    put(train_, "framework", scalar(spec_.place, std::string(framework())));
    write_runs();
    put_environment();
    put_images();
    put_ending();
    put(train_, std::string(framework()), section());
    YamlNode root = map_at(manifest_.place);
    put(root, "project", project());
    put(root, "train", std::move(train_));
    return root;
  }

 private:
  std::string_view framework() const {
    switch (kind_) {
      case ManifestKind::TfJob:
        return "tensorflow";
      case ManifestKind::PytorchJob:
        return "pytorch";
      case ManifestKind::MpiJob:
        break;
    }
    return "mpi";
  }

  PodRole& decider() { return roles_.front(); }
  const PodRole* role(std::string_view word) const { return find_role(roles_, word); }
  const PodRole* chief() const { return role("Chief") != nullptr ? role("Chief") : role("Master"); }

  // ---- what their processes run, and with which variables

  void put_environment() {
    if (shared_.empty()) return;
    const bool some_of_shell = std::ranges::any_of(shared_, [](const ContainerVariable& one) {
      return one.source == ContainerVariable::Source::Submitter;
    });
    std::vector<std::string> of_shell;
    YamlNode environment = some_of_shell ? list_of(shared_.front().place, {}) : map_at(shared_.front().place);
    for (const ContainerVariable& one : shared_) {
      const bool asked = one.source == ContainerVariable::Source::Submitter;
      if (asked) of_shell.push_back(one.name);
      if (!some_of_shell) {
        put(environment, one.name, scalar(one.place, one.text, false));
      } else {
        environment.items.push_back(scalar(one.place, asked ? one.name : one.name + "=" + one.text, false));
      }
    }
    if (some_of_shell) notes_.push_back(fmt::format("taken from your shell, not from secrets and maps of a cluster: {}", fmt::join(of_shell, ", ")));
    put(train_, "env", std::move(environment));
  }

  bool all_run_alike() {
    return std::ranges::all_of(roles_, [&](const PodRole& one) { return one.run == decider().run || !runs(one, kind_); });
  }
  void write_runs() {
    run_is_shared_ = all_run_alike();
    if (run_is_shared_ && !decider().run.empty()) put(train_, "run", list_of(decider().container->place, decider().run));
  }

  void put_images() {
    std::vector<std::string> images;
    Place place;
    for (const PodRole& one : roles_) {
      const YamlNode* const image = one.container->find("image");
      if (image == nullptr || std::ranges::find(images, image->text) != images.end()) continue;
      if (images.empty()) place = image->place;
      images.push_back(image->text);
    }
    if (!images.empty()) put(train_, "image", scalar(place, fmt::format("{}", fmt::join(images, ", ")), false));
  }

  // ---- how it ends

  // Of runPolicy, or as older versions had it beside it.
  const YamlNode* policy(std::string_view key) const {
    const YamlNode* const found = at(spec_.find("runPolicy"), key);
    return found != nullptr ? found : spec_.find(key);
  }

  bool may_restart() const {
    const YamlNode* const limit = policy("backoffLimit");
    return limit == nullptr || whole(limit, 1) > 0;
  }
  std::string on_failure(const PodRole& one) const {
    if (one.policy == "Never" || !may_restart()) return "fail";
    return one.policy == "ExitCode" ? "restart-on-signal" : "restart";
  }

  void put_ending() {
    constexpr int kMostRestarts = 1000;
    const YamlNode* limit = policy("backoffLimit");
    if (limit == nullptr) limit = at(spec_.find("elasticPolicy"), "maxRestarts");
    const bool some_restart = std::ranges::any_of(roles_, [&](const PodRole& one) { return on_failure(one) != "fail"; });
    if (some_restart && limit != nullptr && whole(limit, 0) > 0) {
      YamlNode restart = map_at(limit->place);
      put(restart, "limit", scalar(limit->place, fmt::format("{}", std::min(whole(limit, 0), kMostRestarts))));
      put(train_, "restart", std::move(restart));
    }
    if (const YamlNode* const most = policy("activeDeadlineSeconds")) put(train_, "max-duration", *most);
    const PodRole* slowest = nullptr;
    for (const PodRole& one : roles_) {
      if (one.grace != nullptr && (slowest == nullptr || whole(one.grace, 0) > whole(slowest->grace, 0))) slowest = &one;
    }
    if (slowest != nullptr) put(train_, "stop-grace", *slowest->grace);
    // Without somebody who decides PyTorch's workers all have to succeed; those of TensorFlow if it is asked for.
    const YamlNode* const success = spec_.find("successPolicy");
    const bool asked = kind_ == ManifestKind::TfJob ? success != nullptr && success->text == "AllWorkers"
                                                    : kind_ == ManifestKind::PytorchJob && spec_.find("elasticPolicy") == nullptr;
    if (asked && chief() == nullptr) put(train_, "completion", scalar(spec_.place, "all-workers"));
  }

  // ---- the section of the framework

  YamlNode role_map(const PodRole& one, int count) {
    YamlNode map = map_at(one.place);
    put(map, "count", scalar(one.place, fmt::format("{}", count)));
    put_rest(map, one);
    return map;
  }
  void put_rest(YamlNode& map, const PodRole& one) {
    if (one.resources.kind == YamlNode::Kind::Map) put(map, "resources", one.resources);
    if (!run_is_shared_ && !one.run.empty()) put(map, "run", list_of(one.container->place, one.run));
    put(map, "on-failure", scalar(one.place, on_failure(one)));
  }

  YamlNode section() {
    YamlNode out = map_at(spec_.place);
    YamlNode distributed = map_at(spec_.place);
    switch (kind_) {
      case ManifestKind::TfJob:
        put_tensorflow(distributed);
        if (role("Master") != nullptr) put(out, "chief-task", scalar(role("Master")->place, "master"));
        break;
      case ManifestKind::PytorchJob:
        put_pytorch(distributed);
        put_processes(out);
        break;
      case ManifestKind::MpiJob:
        put_mpi(distributed);
        if (const YamlNode* const slots = spec_.find("slotsPerWorker")) put(out, "slots", *slots);
        break;
    }
    put(out, "distributed", std::move(distributed));
    return out;
  }

  void put_tensorflow(YamlNode& roles) {
    if (chief() != nullptr) put(roles, "chief", role_map(*chief(), 1));
    const PodRole* const worker = role("Worker");
    if (worker != nullptr) put(roles, "worker", role_map(*worker, worker->count));
    if (worker == nullptr) put(roles, "worker", scalar(spec_.place, "0"));
    if (const PodRole* const ps = role("PS")) put(roles, "ps", role_map(*ps, ps->count));
    if (const PodRole* const evaluator = role("Evaluator")) put(roles, "evaluator", role_map(*evaluator, evaluator->count));
  }

  // The master is the first worker.
  void put_pytorch(YamlNode& roles) {
    const PodRole* const master = role("Master");
    const PodRole* const worker = role("Worker");
    const int count = (master == nullptr ? 0 : 1) + (worker == nullptr ? 0 : worker->count);
    put(roles, "worker", role_map(worker == nullptr ? *master : *worker, count));
    if (master == nullptr || worker == nullptr) return;
    YamlNode map = map_at(master->place);
    put_rest(map, *master);
    // What it leaves out is not the workers'.
    if (master->resources.kind != YamlNode::Kind::Map) put(map, "resources", map_at(master->place));
    put(roles, "master", std::move(map));
  }

  // `auto` is one for each GPU where torchrun starts them, and else who runs the command is alone.
  void put_processes(YamlNode& section) {
    const YamlNode* said = spec_.find("nprocPerNode");
    if (said == nullptr) said = at(spec_.find("elasticPolicy"), "nProcPerNode");
    if (const auto count = said == nullptr ? std::nullopt : parse_processes(said->text)) {
      return put(section, "nproc-per-node", scalar(said->place, fmt::format("{}", *count)));
    }
    const bool launches = std::ranges::any_of(decider().run, [](const std::string& line) {
      return line.find("torchrun") != std::string::npos || line.find("torch.distributed") != std::string::npos;
    });
    const bool has_gpus = decider().resources.find("gpus") != nullptr;
    const bool one_per_gpu = said != nullptr && said->text == "gpu" ? true : launches && has_gpus && (said == nullptr || said->text == "auto");
    if (one_per_gpu) put(section, "nproc-per-node", scalar(said == nullptr ? spec_.place : said->place, "gpu"));
  }

  void put_mpi(YamlNode& roles) {
    const PodRole& launcher = *role("Launcher");
    YamlNode map = map_at(launcher.place);
    if (launcher.resources.kind == YamlNode::Kind::Map) put(map, "resources", launcher.resources);
    put(map, "on-failure", scalar(launcher.place, on_failure(launcher)));
    put(roles, "launcher", std::move(map));
    const PodRole* const worker = role("Worker");
    YamlNode workers = map_at(worker == nullptr ? spec_.place : worker->place);
    put(workers, "count", scalar(workers.place, fmt::format("{}", worker == nullptr ? 0 : worker->count)));
    if (worker != nullptr && worker->resources.kind == YamlNode::Kind::Map) put(workers, "resources", worker->resources);
    if (worker != nullptr) put(workers, "on-failure", scalar(workers.place, on_failure(*worker)));
    put(roles, "worker", std::move(workers));
  }

  // A project is what dtrain keeps the experiments of a directory under.
  YamlNode project() {
    const YamlNode* const metadata = manifest_.find("metadata");
    if (const YamlNode* const name = metadata->find("name")) return *name;
    const YamlNode* const generated = metadata->find("generateName");
    if (generated == nullptr) {
      problems_.add(metadata->place, "metadata", "the key 'name' is missing, expected the name of the project");
      return {};
    }
    const size_t last = generated->text.find_last_not_of('-');
    return scalar(generated->place, generated->text.substr(0, last == std::string::npos ? 0 : last + 1), false);
  }

  const ManifestKind kind_;
  const bool has_run_;
  const YamlNode& manifest_;
  const YamlNode& spec_;
  Problems& problems_;
  std::vector<std::string>& notes_;
  std::vector<PodRole> roles_;
  std::vector<ContainerVariable> shared_;
  YamlNode train_;
  bool run_is_shared_ = false;
};

// Kubeflow takes "ps" and "PS" for the same.
void normalise_roles(YamlNode& manifest, ManifestKind kind) {
  YamlNode* const spec = manifest.find("spec");
  YamlNode* const roles = spec == nullptr ? nullptr : spec->find(replicas_key(kind));
  if (roles == nullptr) return;
  const auto same_letters = [](char a, char b) { return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b)); };
  for (YamlEntry& entry : roles->entries) {
    for (const std::string_view word : role_words(kind)) {
      if (std::ranges::equal(entry.key, word, same_letters) && roles->find(word) == nullptr) entry.key = word;
    }
  }
}

}  // namespace

bool is_manifest(const YamlNode& root) {
  return root.kind == YamlNode::Kind::Map && root.find("apiVersion") != nullptr;
}

void read_manifest(YamlNode& manifest, bool has_run, Problems& problems, std::vector<std::string>& notes) {
  const YamlNode* const said = manifest.find("kind");
  if (said == nullptr || said->kind != YamlNode::Kind::Scalar) {
    problems.add(said == nullptr ? manifest.place : said->place, "kind", fmt::format("the kind of the manifest is missing, expected {}", kKinds));
    return;
  }
  const auto kind = manifest_kind(said->text);
  if (!kind) {
    problems.add(said->place, "kind", fmt::format("got {}, expected {}", in_quotes(said->text), kKinds));
    return;
  }
  normalise_roles(manifest, *kind);
  std::vector<std::string> missed;
  drop_unused(manifest, *kind, missed);
  if (!missed.empty()) notes.push_back(fmt::format("without Kubernetes these do nothing: {}", fmt::join(missed, ", ")));
  check_tree(manifest, manifest_shape(*kind), problems);
  if (!problems.empty()) return;
  if (auto tree = Translation(manifest, *kind, has_run, problems, notes).dtrain_yml()) manifest = std::move(*tree);
}

}  // namespace dtrain
