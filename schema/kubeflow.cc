#include "schema/kubeflow.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <optional>

#include "schema/kubeflow_fields.h"
#include "schema/kubeflow_keys.h"
#include "schema/kubeflow_nodes.h"
#include "schema/kubeflow_roles.h"
#include "schema/quote.h"
#include "schema/spec_check.h"
#include "schema/spec_read.h"

namespace dtrain {

namespace {

int count_of(const YamlNode* node, int left_out) {
  return node == nullptr ? left_out : static_cast<int>(as_integer(*node).value_or(left_out));
}

class Translation {
 public:
  Translation(const YamlNode& manifest, ManifestKind kind, bool is_autoscaled, const GivenBeside& given, Problems& problems, std::vector<std::string>& notes)
      : kind_(kind), is_autoscaled_(is_autoscaled), given_(given), manifest_(manifest), spec_(*manifest.find("spec")), problems_(problems), notes_(notes) {}

  std::optional<YamlNode> dtrain_yml() {
    const YamlNode name = project();
    roles_ = read_pod_roles(manifest_, kind_, name.text, given_, problems_, notes_);
    if (!problems_.empty()) return std::nullopt;
    shared_ = share_variables(roles_, kind_, notes_);
    if (kind_ == ManifestKind::PytorchJob) tell_of_processes();
    tell_of_workers();
    train_ = map_at(decider().container->place);
    put_at(train_, "framework", scalar_at(spec_.place, framework()));
    write_runs();
    put_environment();
    put_image();
    put_mounts();
    put_ending();
    put_at(train_, framework(), section());
    YamlNode root = map_at(manifest_.place);
    put_at(root, "project", name);
    put_at(root, "train", std::move(train_));
    return root;
  }

 private:
  std::string framework() const { return std::string(to_string(framework_of(kind_))); }
  PodRole& decider() { return roles_.front(); }
  const PodRole* role(std::string_view word) const { return find_role(roles_, word); }
  const PodRole* chief() const { return role("Chief") != nullptr ? role("Chief") : role("Master"); }

  // ---- what their processes run, and with which variables

  void put_environment() {
    if (shared_.empty()) return;
    const bool some_of_shell = std::ranges::any_of(shared_, [](const ContainerVariable& one) {
      return one.source == ContainerVariable::Source::Submitter;
    });
    std::vector<std::string> of_shell, of_file;
    YamlNode environment = some_of_shell ? list_of(shared_.front().place, {}) : map_at(shared_.front().place);
    for (const ContainerVariable& one : shared_) {
      const bool asked = one.source == ContainerVariable::Source::Submitter;
      if (asked) (given_.secrets.contains(one.name) ? of_file : of_shell).push_back(one.name);
      if (!some_of_shell) {
        put_at(environment, one.name, scalar_at(one.place, one.text, false));
      } else {
        environment.items.push_back(scalar_at(one.place, asked ? one.name : one.name + "=" + one.text, false));
      }
    }
    if (!of_file.empty()) notes_.push_back(fmt::format("taken from the Secrets of this file, and kept secret: {}", fmt::join(of_file, ", ")));
    if (!of_shell.empty()) notes_.push_back(fmt::format("taken from your shell, not from secrets and maps of a cluster: {}", fmt::join(of_shell, ", ")));
    put_at(train_, "env", std::move(environment));
  }

  bool all_run_alike() {
    return std::ranges::all_of(roles_, [&](const PodRole& one) { return one.run == decider().run || !runs(one, kind_); });
  }
  void write_runs() {
    run_is_shared_ = all_run_alike();
    if (run_is_shared_ && !decider().run.empty()) put_at(train_, "run", list_of(decider().container->place, decider().run));
  }

  void put_image() {
    const YamlNode* const said = decider().container->find("image");
    if (!decider().image.empty()) {
      put_at(train_, "image", scalar_at(said == nullptr ? decider().container->place : said->place, decider().image, false));
    }
  }

  // A master takes that of the workers where it says none.
  void put_own_image(YamlNode& map, const PodRole& one) const {
    const bool is_shared = std::ranges::all_of(roles_, [&](const PodRole& other) { return other.image == roles_.front().image; });
    if (!is_shared) put_at(map, "image", scalar_at(one.container->place, one.image, false));
  }

  // One namespace of paths is for all.
  void put_mounts() {
    std::vector<std::string> texts;
    std::map<std::string, HostMount> by_path;
    for (const PodRole& one : roles_) {
      for (const HostMount& mount : one.mounts) {
        const auto [known, is_new] = by_path.emplace(mount.path, mount);
        if (is_new) texts.push_back(to_string(mount));
        if (known->second == mount) continue;
        problems_.add(one.container->find("volumeMounts")->place, fmt::format("spec.{}.{}", replicas_key(kind_), one.word),
                      fmt::format("{} is {} here and {} elsewhere: mounts are for all roles; --set 'train.mounts=[...]' says which",
                                  mount.path, to_string(mount), to_string(known->second)));
      }
    }
    if (!texts.empty()) put_at(train_, "mounts", list_of(decider().container->place, texts));
  }

  // ---- how it ends

  // Of runPolicy, or as older versions had it beside it.
  const YamlNode* policy(std::string_view key) const {
    const YamlNode* const found = value_of(spec_.find("runPolicy"), key);
    return found != nullptr ? found : spec_.find(key);
  }

  // Where Kubernetes goes on for ever; but the launcher of v2beta1 is a Job of its own.
  int usual_restarts() const { return manifest_.find("apiVersion")->text.ends_with("beta1") ? 6 : 3; }
  bool may_restart() const {
    const YamlNode* const limit = policy("backoffLimit");
    return limit == nullptr || count_of(limit, 1) > 0;
  }
  std::string on_failure(const PodRole& one) const {
    if (one.policy == "Never" || !may_restart()) return "fail";
    return one.policy == "ExitCode" ? "restart-on-signal" : "restart";
  }
  // With dynamic workers one that fails is no failure of the job; who restarts in place does not fail.
  bool is_let_go(const PodRole& one) const {
    const YamlNode* const dynamic = spec_.find("enableDynamicWorker");
    const bool is_one_of_several = one.word == "Worker" && (chief() != nullptr || one.count > 1);
    return is_one_of_several && dynamic != nullptr && as_boolean(*dynamic) == true && (one.policy == "Never" || one.policy == "ExitCode");
  }
  // Whether one of them decides, who is not let go.
  bool has_decider(const PodRole& one) const { return one.word == "Worker" && chief() == nullptr; }
  bool restarts(const PodRole& one) const { return on_failure(one) != "fail" && (!is_let_go(one) || has_decider(one)); }

  void tell_of_workers() {
    const PodRole* const worker = role("Worker");
    if (worker == nullptr || !is_let_go(*worker)) return;
    notes_.push_back(fmt::format("enableDynamicWorker: a Worker that fails{} is left out, and the others go on; but there are never more of them "
                                 "than at first, and TF_CONFIG names all, where Kubeflow's names to a Worker itself and the PS",
                                 has_decider(*worker) ? ", but for the first, who decides," : ""));
  }

  void put_ending() {
    constexpr int kMostRestarts = 1000;
    constexpr double kMostSeconds = 31'622'400;   // of what is longer nobody has seen the end
    const YamlNode* const limit = policy("backoffLimit");
    const bool some_restart = std::ranges::any_of(roles_, [&](const PodRole& one) { return restarts(one); });
    const int most_restarts = limit == nullptr ? usual_restarts() : count_of(limit, 0);
    if (some_restart && most_restarts > 0) {
      const Place place = limit == nullptr ? spec_.place : limit->place;
      if (most_restarts > kMostRestarts) notes_.push_back(fmt::format("backoffLimit counts as {}", kMostRestarts));
      YamlNode restart = map_at(place);
      put_at(restart, "limit", scalar_at(place, fmt::format("{}", std::min(most_restarts, kMostRestarts))));
      put_at(train_, "restart", std::move(restart));
    }
    const YamlNode* const most = policy("activeDeadlineSeconds");
    if (most != nullptr && as_number(*most).value_or(0) <= kMostSeconds) put_at(train_, "max-duration", *most);
    if (const YamlNode* const suspend = policy("suspend")) put_at(train_, "suspend", *suspend);
    const PodRole& slowest = *std::ranges::max_element(roles_, {}, [](const PodRole& one) { return count_of(one.grace, kKubernetesGraceSeconds); });
    const Place grace_place = slowest.grace == nullptr ? slowest.place : slowest.grace->place;
    put_at(train_, "stop-grace", scalar_at(grace_place, fmt::format("{}", count_of(slowest.grace, kKubernetesGraceSeconds))));
    // Without somebody who decides PyTorch's and JAX's workers all have to succeed; those of TensorFlow if it is asked for.
    const YamlNode* const success = spec_.find("successPolicy");
    const bool asked = kind_ == ManifestKind::TfJob ? success != nullptr && success->text == "AllWorkers"
                       : kind_ == ManifestKind::JaxJob || (kind_ == ManifestKind::PytorchJob && spec_.find("elasticPolicy") == nullptr);
    if (asked && chief() == nullptr) put_at(train_, "completion", scalar_at(spec_.place, "all-workers"));
  }

  // ---- the section of the framework

  YamlNode role_map(const PodRole& one, int count) {
    YamlNode map = map_at(one.place);
    put_at(map, "count", scalar_at(one.place, fmt::format("{}", count)));
    put_rest(map, one);
    return map;
  }
  void put_rest(YamlNode& map, const PodRole& one) {
    if (one.resources.kind == YamlNode::Kind::Map) put_at(map, "resources", one.resources);
    if (!run_is_shared_ && !one.run.empty()) put_at(map, "run", list_of(one.container->place, one.run));
    put_own_image(map, one);
    put_at(map, "on-failure", scalar_at(one.place, is_let_go(one) ? "ignore" : on_failure(one)));
  }

  YamlNode section() {
    YamlNode out = map_at(spec_.place);
    YamlNode distributed = map_at(spec_.place);
    switch (kind_) {
      case ManifestKind::TfJob:
        put_tensorflow(distributed);
        if (role("Master") != nullptr) put_at(out, "chief-task", scalar_at(role("Master")->place, "master"));
        break;
      case ManifestKind::PytorchJob:
        put_pytorch(distributed);
        put_processes(out);
        break;
      case ManifestKind::JaxJob:
        put_at(distributed, "worker", role_map(*role("Worker"), role("Worker")->count));
        break;
      case ManifestKind::MpiJob:
        put_mpi(distributed);
        if (const YamlNode* const slots = spec_.find("slotsPerWorker")) put_at(out, "slots", *slots);
        break;
    }
    put_at(out, "distributed", std::move(distributed));
    return out;
  }

  void put_tensorflow(YamlNode& roles) {
    if (chief() != nullptr) put_at(roles, "chief", role_map(*chief(), 1));
    const PodRole* const worker = role("Worker");
    if (worker != nullptr) put_at(roles, "worker", role_map(*worker, worker->count));
    if (worker == nullptr) put_at(roles, "worker", scalar_at(spec_.place, "0"));
    if (worker != nullptr && is_let_go(*worker) && has_decider(*worker)) {
      YamlNode first = map_at(worker->place);
      put_at(first, "on-failure", scalar_at(worker->place, on_failure(*worker)));
      put_at(roles, "master", std::move(first));
    }
    if (const PodRole* const ps = role("PS")) put_at(roles, "ps", role_map(*ps, ps->count));
    if (const PodRole* const evaluator = role("Evaluator")) put_at(roles, "evaluator", role_map(*evaluator, evaluator->count));
  }

  // The least and the most of them, beside a master. There are as many as `replicas` says, but where an autoscaler may
  // raise their number to maxReplicas.
  std::pair<int, int> worker_counts(const PodRole* worker) {
    const YamlNode* const elastic = spec_.find("elasticPolicy");
    const YamlNode* const min = value_of(elastic, "minReplicas");
    const YamlNode* const max = value_of(elastic, "maxReplicas");
    if (worker == nullptr) {
      if (min != nullptr || max != nullptr) notes_.push_back("elasticPolicy is about workers, and there are none");
      return {0, 0};
    }
    const int said_most = count_of(max, std::max(worker->count, count_of(min, 0)));
    const int least = count_of(min, count_of(max, worker->count));
    if (least > said_most) problems_.add(min->place, "spec.elasticPolicy.minReplicas", fmt::format("got {}, and maxReplicas is {}", least, said_most));
    const int most = is_autoscaled_ ? said_most : std::clamp(worker->count, std::min(least, said_most), said_most);
    if (max != nullptr && most < said_most) {
      notes_.push_back(fmt::format("maxReplicas is for an autoscaler: there are at most {} workers, as {} says", most, most > worker->count ? "minReplicas" : "replicas"));
    }
    if (is_autoscaled_) {
      const std::string workers = least < most ? fmt::format("are from {} to {} workers, as many as there is room for", least, most)
                                               : fmt::format("{} {} worker{}", most == 1 ? "is" : "are", most, most == 1 ? "" : "s");
      notes_.push_back("the metrics of elasticPolicy don't say how many workers there are: there " + workers);
    }
    return {std::min(least, most), most};
  }

  // The master is the first worker.
  void put_pytorch(YamlNode& roles) {
    const PodRole* const master = role("Master");
    const PodRole* const worker = role("Worker");
    const auto [least, most] = worker_counts(worker);
    const int masters = master == nullptr ? 0 : 1;
    if (master == nullptr && most > 1 && spec_.find("elasticPolicy") != nullptr) {
      notes_.push_back("the first worker decides here: Kubeflow ends an elastic job without a Master well as soon as any one of its workers does");
    }
    put_at(roles, "worker", role_map(worker == nullptr ? *master : *worker, masters + most));
    if (least < most) {
      const YamlNode& policy = *spec_.find("elasticPolicy");
      YamlNode elastic = map_at(policy.place);
      put_at(elastic, "min", scalar_at(policy.place, fmt::format("{}", masters + least)));
      put_at(roles, "elastic", std::move(elastic));
    }
    if (master == nullptr || worker == nullptr) return;
    YamlNode map = map_at(master->place);
    put_rest(map, *master);
    // What it leaves out is not the workers'.
    if (master->resources.kind != YamlNode::Kind::Map) put_at(map, "resources", map_at(master->place));
    put_at(roles, "master", std::move(map));
  }

  const YamlNode* said_processes() const {
    const YamlNode* const said = spec_.find("nprocPerNode");
    return said != nullptr ? said : value_of(spec_.find("elasticPolicy"), "nProcPerNode");
  }
  void put_processes(YamlNode& section) {
    const YamlNode* const said = said_processes();
    const auto count = said == nullptr ? std::nullopt : parse_processes(said->text);
    if (count) put_at(section, "nproc-per-node", scalar_at(said->place, fmt::format("{}", *count)));
  }

  // What Kubeflow tells otherwise: RANK is the node's, however many processes it has; a word instead of their number is
  // for torchrun, and everybody else takes it for 1; elastic ones meet by a rendezvous.
  void tell_of_processes() {
    const YamlNode* const said = said_processes();
    const auto count = said == nullptr ? std::nullopt : parse_processes(said->text);
    for (PodRole& one : roles_) {
      if (one.run.empty()) continue;
      std::vector<std::string> exports;
      const bool has_gpus = one.resources.find("gpus") != nullptr;
      const std::string word = said == nullptr ? "auto" : said->text;
      if (count.value_or(1) > 1) exports.push_back("export RANK=\"${NODE_RANK}\"");
      if (!count && (word != "auto" || has_gpus)) exports.push_back("export PET_NPROC_PER_NODE=" + word);
      if (const YamlNode* const elastic = spec_.find("elasticPolicy")) add_rendezvous(*elastic, exports);
      one.run.insert(one.run.begin(), exports.begin(), exports.end());
    }
  }
  void add_rendezvous(const YamlNode& elastic, std::vector<std::string>& exports) const {
    const auto said = [&](std::string_view key, std::string otherwise) {
      const YamlNode* const node = elastic.find(key);
      return node == nullptr ? otherwise : quoted_for_shell(node->text);
    };
    exports.push_back("export PET_RDZV_BACKEND=" + said("rdzvBackend", "c10d"));
    exports.push_back(fmt::format("export PET_RDZV_ENDPOINT={}:{}", said("rdzvHost", "\"${MASTER_ADDR}\""),
                                  said("rdzvPort", "\"${MASTER_PORT}\"")));
    exports.push_back("export PET_RDZV_ID=" + said("rdzvId", "\"${DTRAIN_SUBMISSION}\""));
    if (const YamlNode* const conf = elastic.find("rdzvConf"); conf != nullptr && !conf->items.empty()) {
      std::vector<std::string> pairs;
      for (const YamlNode& one : conf->items) pairs.push_back(one.find("key")->text + "=" + one.find("value")->text);
      exports.push_back("export PET_RDZV_CONF=" + quoted_for_shell(fmt::format("{}", fmt::join(pairs, ","))));
    }
    if (const YamlNode* const most = elastic.find("maxRestarts")) exports.push_back("export PET_MAX_RESTARTS=" + most->text);
    // Kubeflow sets nothing to it, which torchrun takes for no number, and stops.
    if (const YamlNode* const alone = elastic.find("standalone"); alone != nullptr && as_boolean(*alone) == true) exports.push_back("export PET_STANDALONE=1");
  }

  void put_mpi(YamlNode& roles) {
    const PodRole& launcher = *role("Launcher");
    YamlNode map = map_at(launcher.place);
    if (launcher.resources.kind == YamlNode::Kind::Map) put_at(map, "resources", launcher.resources);
    put_own_image(map, launcher);
    put_at(map, "on-failure", scalar_at(launcher.place, on_failure(launcher)));
    put_at(roles, "launcher", std::move(map));
    const PodRole* const worker = role("Worker");
    YamlNode workers = map_at(worker == nullptr ? spec_.place : worker->place);
    put_at(workers, "count", scalar_at(workers.place, fmt::format("{}", worker == nullptr ? 0 : worker->count)));
    if (worker != nullptr && worker->resources.kind == YamlNode::Kind::Map) put_at(workers, "resources", worker->resources);
    if (worker != nullptr) put_own_image(workers, *worker);
    if (worker != nullptr) put_at(workers, "on-failure", scalar_at(workers.place, on_failure(*worker)));
    put_at(roles, "worker", std::move(workers));
  }

  // A project is what dtrain keeps the experiments of a directory under; its names have no dots.
  YamlNode project() {
    constexpr size_t kMostLetters = 100;
    const YamlNode* const metadata = manifest_.find("metadata");
    const YamlNode* const said = metadata->find("name") != nullptr ? metadata->find("name") : metadata->find("generateName");
    if (said == nullptr) {
      problems_.add(metadata->place, "metadata", "the key 'name' is missing, expected the name of the project");
      return {};
    }
    std::string name = said->text.substr(0, kMostLetters);
    std::ranges::replace(name, '.', '-');
    const size_t last = name.find_last_not_of('-');
    return scalar_at(said->place, name.substr(0, last == std::string::npos ? 0 : last + 1), false);
  }

  const ManifestKind kind_;
  const bool is_autoscaled_;
  const GivenBeside& given_;
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

bool is_manifest_text(std::string_view yaml) {
  Problems unread("", false);
  const auto documents = parse_yaml_documents(yaml, 0, unread);
  return documents && std::ranges::any_of(*documents, is_manifest);
}

void read_manifest(YamlNode& manifest, const GivenBeside& given, Problems& problems, std::vector<std::string>& notes) {
  const YamlNode* const said = manifest.find("kind");
  if (said == nullptr || said->kind != YamlNode::Kind::Scalar) {
    problems.add(said == nullptr ? manifest.place : said->place, "kind", fmt::format("the kind of the manifest is missing, expected {}", kJobKinds));
    return;
  }
  const auto kind = manifest_kind(said->text);
  if (!kind) {
    problems.add(said->place, "kind", fmt::format("got {}, expected {}{}", in_quotes(said->text), kJobKinds, advice_about(said->text)));
    return;
  }
  normalise_roles(manifest, *kind);
  const YamlNode* const spec = value_of(&manifest, "spec");
  const bool is_autoscaled = value_of(value_of(spec, "elasticPolicy"), "metrics") != nullptr;
  put_fields(manifest, *kind);
  Missed missed;
  drop_unused(manifest, *kind, missed);
  add_notes(missed, notes);
  if (const auto volume = std::ranges::find_if(missed.lacking, [](const std::string& what) { return what.starts_with("the volume "); }); volume != missed.lacking.end()) {
    notes.push_back(fmt::format("where hosts have such a volume by a path, --set 'train.mounts=[PATH:{}]' says so", volume->substr(volume->rfind(' ') + 1)));
  }
  if (std::ranges::any_of(missed.idle, [](const std::string& what) { return what.starts_with("livenessProbe "); })) {
    notes.push_back("what hangs is found by its silence: --set 'train.failure-policy=[{silent-for: 30m, action: restart}]'");
  }
  check_tree(manifest, manifest_shape(*kind), problems);
  if (!problems.empty()) return;
  if (auto tree = Translation(manifest, *kind, is_autoscaled, given, problems, notes).dtrain_yml()) manifest = std::move(*tree);
}

}  // namespace dtrain
