// Roles: from "worker: 3, ps: 2" to {master x1, worker x2, ps x2}.
#include <algorithm>
#include <cstdio>

#include "schema/engine_read.h"
#include "schema/image_name.h"
#include "schema/spec_check.h"
#include "schema/spec_read.h"
#include "schema/tensorboard.h"

namespace dtrain {

namespace {

constexpr int kMaxReplicas = 10'000;

// One role as it is written, before the master is told apart from the workers.
struct WrittenRole {
  const YamlNode* node = nullptr;  // null: not written
  std::string path = {};
  int count = 0;
  std::optional<Resources> resources = {};
  std::optional<std::vector<std::string>> run = {};
  std::optional<OnFailure> on_failure = {};
  std::string image = {};   // empty: that of train
  int per_host = 0;
};

// Where `distributed` stands.
struct RolesPlace {
  const YamlNode* node = nullptr;  // null: not written
  std::string path;
};

RolesPlace find_roles(const YamlNode& train, Framework framework) {
  const char* section = roles_section(framework);
  return {value_of(value_of(&train, section), "distributed"),
          fmt::format("train.{}.distributed", section)};
}

WrittenRole read_role(const RolesPlace& roles, std::string_view name, int left_out,
                      SpecReading& reading) {
  WrittenRole role;
  role.node = value_of(roles.node, name);
  role.path = join_path(roles.path, name);
  role.count = left_out;
  if (!role.node) return role;
  if (role.node->kind == YamlNode::Kind::Scalar) {
    role.count = static_cast<int>(as_integer(*role.node).value_or(1));
    return role;
  }
  const YamlNode* count = value_of(role.node, "count");
  role.count = count ? static_cast<int>(as_integer(*count).value_or(1)) : std::max(left_out, 1);
  if (const YamlNode* node = value_of(role.node, "per-host")) role.per_host = static_cast<int>(as_integer(*node).value_or(0));
  if (const YamlNode* node = value_of(role.node, "resources")) {
    role.resources = read_resources(*node, join_path(role.path, "resources"), reading);
  }
  if (const YamlNode* node = value_of(role.node, "run")) role.run = read_lines(*node);
  role.image = scalar_text(value_of(role.node, "image"));
  if (const YamlNode* node = value_of(role.node, "on-failure")) {
    role.on_failure = node->text == "restart"             ? OnFailure::Restart
                      : node->text == "restart-on-signal" ? OnFailure::RestartOnSignal
                      : node->text == "ignore"            ? OnFailure::Ignore
                                                          : OnFailure::Fail;
  }
  return role;
}

struct WrittenRoles {
  WrittenRole worker, ps, master, chief, evaluator;
};

// It does little more than wait for mpirun.
constexpr Resources kLauncherResources{0.1, uint64_t{512} << 20, 0};

void complain(const WrittenRole& role, std::string_view key, std::string text,
              SpecReading& reading) {
  const YamlNode* at = value_of(role.node, key);
  reading.problems.add(at ? at->place : role.node->place,
                       key.empty() || !at ? role.path : join_path(role.path, key), std::move(text));
}

// The rules between roles.
void check_roles(const WrittenRoles& roles, Framework framework, SpecReading& reading) {
  const bool has_chief = roles.chief.count > 0;
  if (has_chief && roles.master.node) {
    complain(roles.master, "",
             "with a chief no worker is the master; write one of the two", reading);
  }
  if (roles.master.node && roles.master.count != 1) {
    complain(roles.master, "count", "there is always exactly one master", reading);
  }
  if (!has_chief && roles.worker.count == 0) {
    complain(roles.worker, "count",
             fmt::format("at least one worker is needed: {}the first one is the master",
                         framework == Framework::Tensorflow ? "without a chief " : ""),
             reading);
  }
  const WrittenRole& decider = has_chief                 ? roles.chief
                               : roles.master.on_failure ? roles.master
                                                         : roles.worker;
  const bool decides_alone = has_chief || roles.master.on_failure || roles.worker.count == 1;
  if (decider.on_failure == OnFailure::Ignore && decides_alone) {
    complain(decider, "on-failure",
             "its exit decides the experiment and can't be ignored", reading);
  }
}

void check_launcher(const WrittenRoles& roles, SpecReading& reading) {
  if (roles.master.node && roles.master.count != 1) {
    complain(roles.master, "count", "there is always exactly one launcher", reading);
  }
  if (roles.worker.count == 0) complain(roles.worker, "count", "at least one worker is needed", reading);
  if (roles.master.on_failure == OnFailure::Ignore) {
    complain(roles.master, "on-failure", "its exit decides the experiment and can't be ignored", reading);
  }
}

class RoleBuilder {
 public:
  RoleBuilder(Resources resources, std::vector<std::string> run, const Spec& spec)
      : resources_(resources), run_(std::move(run)), spec_(spec) {}

  void add(Role role, int count, const WrittenRole& written) {
    if (count < 1) return;
    RoleSpec spec;
    spec.role = role;
    spec.count = count;
    spec.resources = written.resources.value_or(resources_);
    spec.run = written.run.value_or(run_);
    spec.on_failure = written.on_failure.value_or(spec_.usual_on_failure(role));
    spec.per_host = written.per_host;
    if (written.image != spec_.image) spec.image = written.image;
    roles_.push_back(std::move(spec));
  }

  std::vector<RoleSpec> take() { return std::move(roles_); }

 private:
  Resources resources_;           // of train, for whom has none of its own
  std::vector<std::string> run_;  // of train
  const Spec& spec_;              // as far as it was read
  std::vector<RoleSpec> roles_;
};

void check_images(const WrittenRoles& roles, const std::vector<RoleSpec>& built, const YamlNode& train, const Spec& spec,
                  SpecReading& reading) {
  const bool was_refused = is_image_refused(train);
  const bool have_all = std::ranges::all_of(built, [](const RoleSpec& role) { return !role.image.empty(); });
  for (const WrittenRole* role : {&roles.worker, &roles.ps, &roles.master, &roles.chief, &roles.evaluator}) {
    if (role->image.empty()) continue;
    if (spec.image.empty() && !have_all && !was_refused) {
      complain(*role, "image", "the others would run on the hosts themselves: name an image for them, too, as train.image", reading);
    } else if (is_image_directory(role->image) && !spec.install.empty()) {
      complain(*role, "image", std::string(kNoInstallIntoDirectory), reading);
    }
  }
}

// Worker 0 is the master: a worker in all that `master` does not say otherwise. It is never ignored
// and RiseML gave it the resources of train, whatever the workers had.
WrittenRole merge_master(const WrittenRoles& roles, bool riseml) {
  WrittenRole merged = roles.master;
  if (!merged.resources && !riseml) merged.resources = roles.worker.resources;
  if (!merged.run) merged.run = roles.worker.run;
  if (merged.image.empty()) merged.image = roles.worker.image;
  merged.per_host = roles.worker.per_host;
  if (!merged.on_failure && roles.worker.on_failure != OnFailure::Ignore) {
    merged.on_failure = roles.worker.on_failure;
  }
  return merged;
}

// TensorFlow 2.16 came with Keras 3, which can't train with parameter servers.
void check_ps_version(const YamlNode& tensorflow, const Spec& spec, SpecReading& reading) {
  const std::string& version = spec.tensorflow.version;
  const YamlNode* node = value_of(&tensorflow, "version");
  if (version.empty() || !node) return;
  int major = 0;
  int minor = 0;
  const int parts = std::sscanf(version.c_str(), "%6d.%6d", &major, &minor);
  if (version == "latest" || (parts == 2 && (major > 2 || (major == 2 && minor >= 16)))) {
    reading.problems.add(
        node->place, "train.tensorflow.version",
        fmt::format("TensorFlow {} can't train with parameter servers: 2.16 brought Keras 3, which "
                    "has none; write 'version: 2.15.0' or set ps to 0",
                    version));
  }
}

void check_restarts(const WrittenRoles& roles, const Spec& spec, bool limit_given,
                    SpecReading& reading) {
  if (!limit_given || spec.restart.limit > 0) return;
  for (const WrittenRole* role :
       {&roles.worker, &roles.ps, &roles.master, &roles.chief, &roles.evaluator}) {
    if (role->on_failure && restarts(*role->on_failure)) {
      complain(*role, "on-failure",
               "restarting needs train.restart.limit to be 1 or more, not 0", reading);
    }
  }
}

bool is_distributed(const YamlNode* roles) {
  return roles && roles->kind == YamlNode::Kind::Map && !roles->entries.empty();
}

}  // namespace

const char* roles_section(Framework framework) {
  switch (framework) {
    case Framework::Engine:
      return "engine";
    case Framework::Pytorch:
      return "pytorch";
    case Framework::Jax:
      return "jax";
    case Framework::Mpi:
      return "mpi";
    case Framework::Command:
    case Framework::Tensorflow:
      break;
  }
  return "tensorflow";
}

std::vector<RoleSpec> read_roles(const YamlNode& train, const Spec& spec, bool restart_limit_given,
                                 SpecReading& reading) {
  const bool engine = spec.framework == Framework::Engine;
  const YamlNode* run = value_of(&train, "run");
  const YamlNode* resources = value_of(&train, "resources");
  RoleBuilder builder(
      resources ? read_resources(*resources, "train.resources", reading) : Resources{},
      engine ? std::vector<std::string>{kEngineCommand}
      : run  ? read_lines(*run)
             : std::vector<std::string>{},
      spec);

  const RolesPlace written = find_roles(train, spec.framework);
  WrittenRoles roles;
  if (!is_distributed(written.node)) {
    builder.add(Role::Train, 1, {});
  } else if (spec.framework == Framework::Mpi) {
    roles.worker = read_role(written, "worker", most_workers_of(written.node), reading);
    roles.master = read_role(written, "launcher", 1, reading);
    if (!roles.master.resources) roles.master.resources = kLauncherResources;
    roles.worker.run = {kMpiWorkerCommand};
    check_launcher(roles, reading);
    check_restarts(roles, spec, restart_limit_given, reading);
    builder.add(Role::Launcher, 1, roles.master);
    builder.add(Role::Worker, roles.worker.count, roles.worker);
  } else {
    roles.worker = read_role(written, "worker", most_workers_of(written.node), reading);
    const bool has_riseml_ps = reading.riseml && spec.framework == Framework::Tensorflow;
    roles.ps = read_role(written, "ps", has_riseml_ps ? 1 : 0, reading);
    roles.master = read_role(written, "master", 1, reading);
    roles.chief = read_role(written, "chief", 0, reading);
    roles.evaluator = read_role(written, "evaluator", 0, reading);
    check_roles(roles, spec.framework, reading);
    check_restarts(roles, spec, restart_limit_given, reading);
    const YamlNode* tensorflow = value_of(&train, "tensorflow");
    if (roles.ps.count > 0 && tensorflow) check_ps_version(*tensorflow, spec, reading);
    if (roles.chief.count > 0) {
      builder.add(Role::Chief, 1, roles.chief);
      builder.add(Role::Worker, roles.worker.count, roles.worker);
    } else {
      builder.add(Role::Master, 1, merge_master(roles, reading.riseml));
      builder.add(Role::Worker, roles.worker.count - 1, roles.worker);
    }
    builder.add(Role::Ps, roles.ps.count, roles.ps);
    builder.add(Role::Evaluator, roles.evaluator.count, roles.evaluator);
  }

  std::vector<RoleSpec> built = builder.take();
  check_images(roles, built, train, spec, reading);
  // The image says itself what it runs.
  for (RoleSpec& role : built) {
    const std::string& image = spec.image_of(role);
    if (role.run.empty() && !image.empty() && !is_image_directory(image)) role.run = {kImageCommand};
  }
  int replicas = 0;
  bool lacks_command = false;
  for (const RoleSpec& role : built) {
    replicas += role.count;
    lacks_command = lacks_command || role.run.empty();
  }
  if (spec.tensorflow.tensorboard && !built.empty()) built.push_back(tensorboard_role());
  // A refused or unknown key may have been meant for the command.
  const bool may_be_meant = std::any_of(train.entries.begin(), train.entries.end(),
                                        [](const YamlEntry& entry) { return entry.value.refused; });
  if (lacks_command && !may_be_meant) {
    reading.problems.add(train.place, "train",
                         "the key 'run' is missing, expected a command, or a list of commands");
  }
  if (replicas > kMaxReplicas) {
    reading.problems.add(
        written.node->place, written.path,
        fmt::format("these are {} replicas, expected at most {}", replicas, kMaxReplicas));
  }
  return built;
}

}  // namespace dtrain
