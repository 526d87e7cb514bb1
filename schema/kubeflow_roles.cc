#include "schema/kubeflow_roles.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "schema/cluster_env.h"
#include "schema/quote.h"
#include "schema/spec_check.h"
#include "schema/spec_read.h"

namespace dtrain {

namespace {

using Source = ContainerVariable::Source;

class Reader {
 public:
  Reader(const YamlNode& manifest, ManifestKind kind, const std::string& job, const GivenBeside& given, Problems& problems,
         std::vector<std::string>& notes)
      : spec_(*manifest.find("spec")), kind_(kind), second_version_(manifest.find("apiVersion")->text.ends_with("beta1")), job_(job),
        given_(given), problems_(problems), notes_(notes) {}

  std::vector<PodRole> roles() {
    const YamlNode* const replicas = spec_.find(replicas_key(kind_));
    std::vector<PodRole> all;
    for (const std::string_view word : role_words(kind_)) {
      const YamlNode* const node = replicas->find(word);
      if (node == nullptr) continue;
      PodRole role{std::string(word), node->place, 1, usual_policy(word)};
      if (const YamlNode* const count = node->find("replicas")) role.count = static_cast<int>(as_integer(*count).value_or(1));
      if (role.count == 0) continue;
      if (const YamlNode* const policy = node->find("restartPolicy")) role.policy = policy->text;
      read_pod(*node->find("template")->find("spec"), role);
      if (role.container != nullptr) all.push_back(std::move(role));
    }
    return all;
  }

  void check(const std::vector<PodRole>& roles) {
    if (roles.empty()) {
      if (problems_.empty()) problems_.add(spec_.place, "spec", fmt::format("there are no roles in {}", replicas_key(kind_)));
      return;
    }
    const PodRole* const master = find_role(roles, "Master");
    if (kind_ == ManifestKind::TfJob && master != nullptr && find_role(roles, "Chief") != nullptr) {
      complain(*master, "is another word for Chief; write one of the two");
    }
    if (kind_ == ManifestKind::MpiJob && find_role(roles, "Launcher") == nullptr) {
      complain(roles.front(), "there is no Launcher, which is who calls mpirun");
    }
    for (const PodRole& role : roles) {
      const bool alone = role.word == "Chief" || role.word == "Master" || role.word == "Launcher";
      if (alone && role.count != 1) complain(role, fmt::format("got {} replicas, expected 1", role.count));
      if (role.run.empty() && runs(role, kind_)) complain_of_command(role);
      if (role.image.empty() != roles.front().image.empty()) complain_of_images(role, roles.front());
    }
  }

 private:
  std::string usual_policy(std::string_view word) const {
    const bool restarts = kind_ == ManifestKind::PytorchJob || (second_version_ && word == "Launcher");
    return restarts ? "OnFailure" : "Never";
  }

  void read_pod(const YamlNode& pod, PodRole& role) {
    role.grace = pod.find("terminationGracePeriodSeconds");
    role.container = choose_container(*pod.find("containers"), role.word);
    if (role.container == nullptr) return;
    const TextReading reading{[this](std::string_view name) { return is_told(name); },
                              [this](std::string_view name) { return std::ranges::find(given_.parameters, name) != given_.parameters.end(); },
                              [this](const std::string& name) { return given_.is_in_shell && given_.is_in_shell(name); }};
    role.resources = container_resources(*role.container);
    role.image = image_of(*role.container);
    std::vector<std::string> left_out;
    role.variables = container_variables(*role.container, names_of(role.word), reading, left_out);
    for (const std::string& name : left_out) {
      if (told_.insert(name).second) notes_.push_back(fmt::format("{} is optional, and left out: your shell does not have it", name));
    }
    std::string line = container_line(*role.container, role.variables, given_.run, reading);
    // After what refers to them was expanded.
    std::erase_if(role.variables, [&](const ContainerVariable& variable) {
      if (!is_set_by_us(variable.name, framework_of(kind_), nullptr)) return false;
      if (told_.insert(variable.name).second) {
        notes_.push_back(fmt::format("{} is what dtrain sets, not that of {} (line {})", variable.name, role.word, variable.place.line));
      }
      return true;
    });
    if (role.image.empty() && line.find("/etc/mpi/hostfile") != std::string::npos) {
      notes_.push_back("without an image there is no /etc/mpi/hostfile: leave --hostfile out, for mpirun finds its hosts by itself");
    }
    if (!role.image.empty()) {
      add_volumes(role);
      add_for_image(reading, line, role);
    } else {
      tell_of_volumes(role);
    }
    if (const YamlNode* const there = role.container->find("workingDir"); role.image.empty() && there != nullptr) {
      notes_.push_back(fmt::format("workingDir (line {}) is of the image; the project's directory is what commands begin in", there->place.line));
    }
    if (!line.empty()) role.run.push_back(std::move(line));
  }

  std::string image_of(const YamlNode& container) const {
    const YamlNode* const said = container.find("image");
    if (given_.image) return *given_.image;
    return said == nullptr ? "" : said->text;
  }
  void add_volumes(PodRole& role) {
    const YamlNode* const mounts = role.container->find("volumeMounts");
    if (mounts == nullptr) return;
    for (const YamlNode& one : mounts->items) {
      if (one.text.find(':') == std::string::npos && !runs(role, kind_)) {
        const YamlNode* const path = one.find("path");
        notes_.push_back(fmt::format("{} (line {}) is not there for {}: only what the Launcher runs can make it", path == nullptr ? one.text : path->text, one.place.line, role.word));
      }
      if (const YamlNode* const writes = one.find("run")) {
        role.run.push_back(writes->text);
      } else if (one.text.find(':') == std::string::npos) {
        role.run.push_back("mkdir -p " + quoted_for_shell(one.text));
      } else if (const auto mount = parse_mount(one.text)) {
        role.mounts.push_back(*mount);
      }
    }
  }
  // Without an image nothing is mounted, and its program finds what it wants elsewhere.
  void tell_of_volumes(const PodRole& role) {
    const YamlNode* const mounts = role.container->find("volumeMounts");
    if (mounts == nullptr) return;
    for (const YamlNode& one : mounts->items) {
      const YamlNode* const written = one.find("path");
      const auto mount = parse_mount(one.text);
      const bool is_of_hosts = mount && one.text.find(':') != std::string::npos;
      const std::string path = written != nullptr ? written->text : is_of_hosts ? mount->path : one.text;
      if (!told_.insert(path).second) continue;
      notes_.push_back(fmt::format("{} (line {}) is there in an image alone{}", path, one.place.line, is_of_hosts ? "; on the hosts it is " + mount->source : ""));
    }
  }
  // It begins where the image or workingDir says, and what the image runs by itself need not be said.
  void add_for_image(const TextReading& reading, std::string& line, PodRole& role) {
    const YamlNode& container = *role.container;
    const YamlNode* const there = container.find("workingDir");
    role.run.push_back(there == nullptr ? kIntoImageDirectory : fmt::format("mkdir -p {0} && cd {0}", quoted_for_shell(there->text)));
    if (!line.empty()) return;
    const YamlNode* const arguments = container.find("args");
    const bool has_arguments = arguments != nullptr && !arguments->items.empty();
    line = has_arguments ? container_line(container, role.variables, kImageEntrypoint, reading) : kImageCommand;
  }

  // What a process is told by its framework's contract.
  bool is_told(std::string_view name) const {
    if (kind_ == ManifestKind::TfJob) return name == "TF_CONFIG";
    const bool is_elastic = spec_.find("elasticPolicy") != nullptr && name.starts_with("PET_RDZV_");
    if (kind_ == ManifestKind::JaxJob) return is_jax_variable(name);
    return kind_ == ManifestKind::PytorchJob && (is_elastic || is_pytorch_variable(name));
  }

  // Kubeflow counts the replicas of a role from 0; dtrain's first worker is the master where nobody else is.
  PodNames names_of(std::string_view word) const {
    PodNames names{job_, in_small_letters(word), "0"};
    names.controller = in_small_letters(word_of_kind(kind_)) + "-controller";
    if (word == "Chief" || word == "Master") names.job_role = "master";
    if (word == "Chief" || word == "Master" || word == "Launcher") return names;
    const YamlNode* const roles = spec_.find(replicas_key(kind_));
    const auto is_there = [&](std::string_view role) {
      const YamlNode* const replicas = value_of(roles->find(role), "replicas");
      return roles->find(role) != nullptr && (replicas == nullptr || replicas->text != "0");
    };
    const bool from_master = kind_ != ManifestKind::MpiJob && word == "Worker" && !is_there("Chief") && !is_there("Master");
    // Of workers alone the first has the label, but for PyTorch's.
    if (from_master && kind_ != ManifestKind::PytorchJob) names.job_role = "$([ $((${DTRAIN_REPLICA##*.})) -ne 0 ] || echo master)";
    names.index = from_master ? "$((${DTRAIN_REPLICA##*.}))" : "$((${DTRAIN_REPLICA##*.} - 1))";
    return names;
  }

  const YamlNode* choose_container(const YamlNode& containers, std::string_view word) {
    const YamlNode* const said = spec_.find("mainContainer");
    const std::string_view wanted = said != nullptr ? std::string_view(said->text) : to_string(framework_of(kind_));
    const bool any = containers.items.size() == 1 || kind_ == ManifestKind::MpiJob;
    const YamlNode* chosen = any ? &containers.items.front() : nullptr;
    for (const YamlNode& container : containers.items) {
      if (container.find("name")->text == wanted) chosen = &container;
    }
    if (chosen == nullptr) {
      problems_.add(containers.place, path_of(word) + ".template.spec.containers",
                    fmt::format("of several containers one is named {}: that which trains", wanted));
      return nullptr;
    }
    for (const YamlNode& container : containers.items) {
      if (&container == chosen) continue;
      notes_.push_back(fmt::format("the container {} of {} is not started (line {})", in_quotes(container.find("name")->text),
                                   word, container.place.line));
    }
    return chosen;
  }

  std::string path_of(std::string_view word) const { return fmt::format("spec.{}.{}", replicas_key(kind_), word); }
  void complain(const PodRole& role, std::string text) { problems_.add(role.place, path_of(role.word), std::move(text)); }
  void complain_of_images(const PodRole& role, const PodRole& first) {
    const auto said = [](const PodRole& one) { return one.image.empty() ? "none" : in_quotes(one.image); };
    const YamlNode* const image = role.container->find("image");
    problems_.add(image == nullptr ? role.container->place : image->place, path_of(role.word) + ".template.spec.containers.image",
                  fmt::format("got {}, and {} has {}: all run in images, or none does; --set train.image=NAME says in which, "
                              "--no-image runs them on the hosts themselves",
                              said(role), first.word, said(first)));
  }
  void complain_of_command(const PodRole& role) {
    const YamlNode* const image = role.container->find("image");
    problems_.add(role.container->place, path_of(role.word) + ".template.spec.containers",
                  fmt::format("the key 'command' is missing: what {} runs by itself is not known here; write it, or give "
                              "--set train.run='python train.py'",
                              image == nullptr ? "its image" : in_quotes(image->text)));
  }

  const YamlNode& spec_;
  const ManifestKind kind_;
  const bool second_version_;  // v2beta1, of MPI
  const std::string& job_;
  const GivenBeside& given_;
  Problems& problems_;
  std::vector<std::string>& notes_;
  std::set<std::string> told_;  // of which variables that they are dtrain's
};

// Whether all have it alike, or, where only one has a command, nobody otherwise.
bool is_common(const ContainerVariable& variable, const std::vector<PodRole>& roles, ManifestKind kind) {
  return std::ranges::all_of(roles, [&](const PodRole& role) {
    const auto same = std::ranges::find(role.variables, variable.name, &ContainerVariable::name);
    return same == role.variables.end() ? kind == ManifestKind::MpiJob : *same == variable;
  });
}

}  // namespace

Framework framework_of(ManifestKind kind) {
  switch (kind) {
    case ManifestKind::TfJob:
      return Framework::Tensorflow;
    case ManifestKind::PytorchJob:
      return Framework::Pytorch;
    case ManifestKind::JaxJob:
      return Framework::Jax;
    case ManifestKind::MpiJob:
      break;
  }
  return Framework::Mpi;
}

std::vector<PodRole> read_pod_roles(const YamlNode& manifest, ManifestKind kind, const std::string& job, const GivenBeside& given,
                                    Problems& problems, std::vector<std::string>& notes) {
  Reader reader(manifest, kind, job, given, problems, notes);
  std::vector<PodRole> roles = reader.roles();
  reader.check(roles);
  return roles;
}

const PodRole* find_role(const std::vector<PodRole>& roles, std::string_view word) {
  const auto found = std::ranges::find(roles, word, &PodRole::word);
  return found == roles.end() ? nullptr : &*found;
}

bool runs(const PodRole& role, ManifestKind kind) {
  return kind != ManifestKind::MpiJob || role.word == "Launcher";
}

std::vector<ContainerVariable> share_variables(std::vector<PodRole>& roles, ManifestKind kind, std::vector<std::string>& notes) {
  std::vector<ContainerVariable> shared;
  for (PodRole& role : roles) {
    std::vector<std::string> exports;
    for (const ContainerVariable& variable : role.variables) {
      const bool is_text = variable.source == Source::Text;
      if (variable.source == Source::Submitter || (is_text && (!runs(role, kind) || is_common(variable, roles, kind)))) {
        const bool fresh = std::ranges::find(shared, variable.name, &ContainerVariable::name) == shared.end();
        if (fresh) shared.push_back(variable);
      } else if (runs(role, kind)) {
        exports.push_back(export_line(variable));
      } else {
        notes.push_back(fmt::format("{} refers to other variables, and is not set in {} (line {})", variable.name, role.word,
                                    variable.place.line));
      }
    }
    if (!role.run.empty()) role.run.insert(role.run.begin(), exports.begin(), exports.end());
  }
  // A secret of one role is none of the others.
  for (PodRole& role : roles) {
    for (const ContainerVariable& variable : shared) {
      const bool has_it = std::ranges::find(role.variables, variable.name, &ContainerVariable::name) != role.variables.end();
      if (variable.source != Source::Submitter || has_it || role.run.empty() || kind == ManifestKind::MpiJob) continue;
      role.run.insert(role.run.begin(), "unset " + variable.name);
    }
  }
  return shared;
}

}  // namespace dtrain
