#include "schema/spec_read.h"

#include <algorithm>

#include "schema/cluster_env.h"
#include "schema/decimal.h"
#include "schema/engine_read.h"
#include "schema/expand.h"
#include "schema/image_name.h"
#include "schema/line_pattern.h"
#include "schema/quote.h"
#include "schema/spec_check.h"
#include "schema/text_formats.h"

namespace dtrain {

namespace {

constexpr uint64_t kMaxMemoryBytes = uint64_t{64} << 40;
constexpr int64_t kMaxDurationMs = int64_t{366} * 86'400'000;
// Fewer MiB than any process needs: whoever writes 4 means gigabytes.
constexpr double kLeastPlainMib = 16;

// What a replica finds in its environment anyway; a variable of the user's would be lost or break
// it.
constexpr std::string_view kOurVariables[] = {"OUTPUT_DIR", "AFTER_DIR", "EXPERIMENT_ID", "TF_CONFIG",
                                              "DATA_DIR", "CUDA_VISIBLE_DEVICES"};
// Without these as they are, most commands don't start.
constexpr std::string_view kVitalVariables[] = {
    "PATH", "HOME", "IFS", "SHELL", "LD_PRELOAD", "LD_LIBRARY_PATH", "PYTHONPATH", "PYTHONHOME"};

// The engine's, for its user to set.
constexpr std::string_view kIsaVariable = "DTRAIN_ISA";

}  // namespace

bool is_set_by_us(std::string_view name, Framework framework, const YamlNode* train) {
  if (name == "DATA_DIR" && value_of(train, "data") == nullptr) return false;
  if (name == "AFTER_DIR" && value_of(train, "after") == nullptr) return false;
  return (name.starts_with("DTRAIN_") && name != kIsaVariable) ||
         (framework == Framework::Pytorch && is_pytorch_variable(name)) ||
         (framework == Framework::Jax && is_jax_variable(name)) ||
         std::find(std::begin(kOurVariables), std::end(kOurVariables), name) !=
             std::end(kOurVariables);
}

namespace {

bool is_vital_variable(std::string_view name) {
  return std::find(std::begin(kVitalVariables), std::end(kVitalVariables), name) !=
         std::end(kVitalVariables);
}

std::string read_text(const YamlNode* map, std::string_view key, std::string_view otherwise = "") {
  const YamlNode* node = value_of(map, key);
  return node ? node->text : std::string(otherwise);
}

int read_integer(const YamlNode* map, std::string_view key, int otherwise) {
  const YamlNode* node = value_of(map, key);
  return node ? static_cast<int>(as_integer(*node).value_or(otherwise)) : otherwise;
}

using TakenVariables = std::map<std::string, std::string>;   // of the environment, and what they are called in YAML

// NAMEs of train.`key` that differ for people but not in the environment.
void check_env_names(const YamlNode& train, const std::string& key, std::string_view suffix, Framework framework,
                     TakenVariables& taken, SpecReading& reading) {
  const YamlNode* const map = value_of(&train, key);
  if (!map) return;
  const std::string path = join_path("train", key);
  for (const YamlEntry& entry : map->entries) {
    const std::string variable = parameter_env_name(entry.key) + std::string(suffix);
    const auto [earlier, fresh] = taken.emplace(variable, entry.key);
    if (!fresh) {
      reading.problems.add(entry.place, join_path(path, entry.key),
                           fmt::format("'{}' and '{}' are both {} in the environment; rename one",
                                       earlier->second, entry.key, variable));
    } else if (is_set_by_us(variable, framework, &train) || is_vital_variable(variable)) {
      reading.problems.add(entry.place, join_path(path, entry.key),
                           fmt::format("this would replace {} in the environment; choose another "
                                       "name",
                                       variable));
    }
  }
}

// What -p gives on the command line is meant to replace what a file has.
void read_environment(const YamlNode& train, const TakenVariables& taken, const std::vector<AddedParameter>& added, Spec& spec,
                      SpecReading& reading) {
  const YamlNode* const node = value_of(&train, "env");
  if (!node) return;
  const auto is_added = [&](const std::string& parameter) {
    return std::ranges::any_of(added, [&](const AddedParameter& one) { return one.name == parameter; });
  };
  auto take = [&](const YamlNode& at, const std::string& path, const std::string& name,
                  std::optional<std::string> value) {
    const bool twice = spec.env.contains(name) ||
                       std::find(spec.env_from_shell.begin(), spec.env_from_shell.end(), name) !=
                           spec.env_from_shell.end();
    if (const auto other = taken.find(name); other != taken.end() && !is_added(other->second)) {
      reading.problems.add(at.place, path, fmt::format("'{}' is {} in the environment, too; rename one", other->second, name));
    } else if (twice || is_set_by_us(name, spec.framework, &train)) {
      reading.problems.add(at.place, path,
                           twice ? fmt::format("{} was given before", name)
                                 : fmt::format("{} is set by dtrain itself; remove it", name));
    } else if (value) {
      spec.env[name] = std::move(*value);
    } else {
      spec.env_from_shell.push_back(name);
    }
  };
  for (const YamlEntry& entry : node->entries) {
    if (entry.value.refused) continue;
    take(entry.value, join_path("train.env", entry.key), entry.key, entry.value.text);
  }
  for (size_t i = 0; i < node->items.size(); ++i) {
    const YamlNode& item = node->items[i];
    if (item.refused) continue;
    const size_t equals = item.text.find('=');
    std::optional<std::string> value;
    if (equals != std::string::npos) value = item.text.substr(equals + 1);
    take(item, join_path("train.env", i), item.text.substr(0, equals), std::move(value));
  }
}

TensorflowOptions read_tensorflow(const YamlNode* node) {
  TensorflowOptions options;
  options.version = read_text(node, "version");
  // The suffixes of RiseML's image tags choose nothing here: the resources say who gets GPUs.
  for (const std::string_view suffix : {"-py3", "-gpu"}) {
    if (options.version.ends_with(suffix)) {
      options.version.resize(options.version.size() - suffix.size());
    }
  }
  if (const YamlNode* flag = value_of(node, "tensorboard")) {
    options.tensorboard = as_boolean(*flag).value_or(false);
  }
  options.chief_task = read_text(node, "chief-task", options.chief_task);
  return options;
}

PytorchOptions read_pytorch(const YamlNode* node) {
  const YamlNode* processes = value_of(node, "nproc-per-node");
  if (!processes) return {};
  if (processes->text == "gpu") return {PytorchOptions::kOnePerGpu};
  return {static_cast<int>(as_integer(*processes).value_or(1))};
}

MpiOptions read_mpi(const YamlNode* node) {
  const YamlNode* slots = value_of(node, "slots");
  if (!slots) return {};
  if (slots->text == "gpu") return {MpiOptions::kOnePerGpu};
  return {static_cast<int>(as_integer(*slots).value_or(1))};
}

Framework read_framework(const YamlNode* train, SpecReading& reading) {
  const YamlNode* section = value_of(train, "tensorflow");
  const YamlNode* word = value_of(train, "framework");
  for (const Framework framework : {Framework::Tensorflow, Framework::Pytorch, Framework::Jax, Framework::Mpi, Framework::Engine}) {
    if (word && word->text == to_string(framework)) return framework;
  }
  if (!section || section->kind == YamlNode::Kind::Null) return Framework::Command;
  if (!word && reading.riseml) return Framework::Tensorflow;
  // A refused framework was reported already.
  if (word || !train->find("framework")) {
    reading.problems.add(section->place, "train.tensorflow",
                         "this section needs 'framework: tensorflow' beside it");
  }
  return Framework::Tensorflow;
}

void check_sections(const YamlNode& train, Framework framework, SpecReading& reading) {
  const YamlNode* word = value_of(&train, "framework");
  const YamlNode* engine = value_of(&train, "engine");
  const YamlNode* tensorflow = value_of(&train, "tensorflow");
  if (framework == Framework::Engine) {
    if (train.find("engine") == nullptr) {
      reading.problems.add(word->place, "train.framework",
                           "the engine needs the section 'engine' beside it: engine: {model: mlp, "
                           "data: {train: PATH}}");
    }
    if (tensorflow && tensorflow->kind != YamlNode::Kind::Null) {
      reading.problems.add(tensorflow->place, "train.tensorflow",
                           "this section needs 'framework: tensorflow'; roles and tensorboard of "
                           "the engine stand below 'engine'");
    }
  } else if (engine && (word || !train.find("framework"))) {
    reading.problems.add(engine->place, "train.engine",
                         "this section needs 'framework: engine' beside it");
  }
  struct Section {
    Framework framework;
    std::string_view name;
  };
  for (const auto& [owner, name] : {Section{Framework::Pytorch, "PyTorch"}, {Framework::Jax, "JAX"}, {Framework::Mpi, "MPI"}}) {
    const YamlNode* section = value_of(&train, to_string(owner));
    if (framework == owner && tensorflow && tensorflow->kind != YamlNode::Kind::Null) {
      reading.problems.add(tensorflow->place, "train.tensorflow",
                           fmt::format("this section needs 'framework: tensorflow'; roles of {} stand below '{}'", name, to_string(owner)));
    }
    if (framework != owner && section && section->kind != YamlNode::Kind::Null && (word || !train.find("framework"))) {
      reading.problems.add(section->place, join_path("train", to_string(owner)),
                           fmt::format("this section needs 'framework: {}' beside it", to_string(owner)));
    }
  }
}

std::vector<std::string> read_install(const YamlNode* train) {
  std::vector<std::string> steps;
  // RiseML's older form names the steps below the image.
  for (const YamlNode* place : {value_of(train, "image"), train}) {
    if (const YamlNode* node = value_of(place, "install")) {
      for (std::string& line : read_lines(*node)) steps.push_back(std::move(line));
    }
  }
  return steps;
}

std::string read_image(const YamlNode* train) {
  const YamlNode* node = value_of(train, "image");
  if (!node) return "";
  return node->kind == YamlNode::Kind::Map ? read_text(node, "name") : node->text;
}

std::vector<ExperimentId> read_experiments(const YamlNode* train, std::string_view key) {
  std::vector<ExperimentId> ids;
  const YamlNode* const node = value_of(train, key);
  if (!node) return ids;
  for (const std::string& text : read_lines(*node)) {
    const auto id = parse_experiment_id(text);
    if (id.ok() && std::find(ids.begin(), ids.end(), *id) == ids.end()) ids.push_back(*id);
  }
  return ids;
}

// Where each role has one and nothing is said of all, that of who decides is for all that say none.
void share_image(Spec& spec) {
  if (spec.roles.empty()) return;
  spec.image = spec.decider().image;
  for (RoleSpec& role : spec.roles) {
    if (role.image == spec.image) role.image.clear();
  }
}

// What an image brings itself, or what is not to be had in one.
void check_image(const YamlNode& train, const Spec& spec, SpecReading& reading) {
  if (const YamlNode* const mounts = value_of(&train, "mounts"); spec.image.empty() && mounts != nullptr && !mounts->items.empty() && !is_image_refused(train)) {
    reading.problems.add(mounts->place, "train.mounts", "they are about an image, and there is none: all of the host is there as it is");
  }
  if (spec.image.empty()) return;
  const auto refuse = [&](const YamlNode* node, const std::string& path, const std::string& text) {
    reading.problems.add(node == nullptr ? train.place : node->place, path, text);
  };
  const YamlNode* const image = value_of(&train, "image");
  if (spec.framework == Framework::Engine) refuse(image, "train.image", "the engine is a program of its own; leave it out");
  if (const YamlNode* const python = value_of(&train, "python")) refuse(python, "train.python", "an image has its own; leave it out");
  if (!spec.tensorflow.version.empty()) {
    refuse(value_of(value_of(&train, "tensorflow"), "version"), "train.tensorflow.version", "an image has its own; leave it out");
  }
  if (is_image_directory(spec.image) && !spec.install.empty()) refuse(image, "train.image", std::string(kNoInstallIntoDirectory));
}

void read_lists(const YamlNode* train, Spec& spec) {
  if (const YamlNode* data = value_of(train, "data")) {
    for (const YamlEntry& entry : data->entries) {
      if (!entry.value.refused) spec.data[entry.key] = entry.value.text;
    }
  }
  if (const YamlNode* mounts = value_of(train, "mounts")) {
    for (const YamlNode& item : mounts->items) {
      if (!item.refused) spec.mounts.push_back(parse_mount(item.text).value_or(HostMount()));
    }
  }
  if (const YamlNode* outputs = value_of(train, "outputs")) {
    for (const YamlNode& item : outputs->items) {
      if (!item.refused) spec.outputs.push_back(item.text);
    }
  }
}

// Whether the pattern can be used; says so where not.
bool check_pattern(const YamlNode& node, const std::string& path, SpecReading& reading) {
  if (node.text.empty()) return true;
  const auto pattern = LinePattern::compile(node.text);
  if (!pattern.ok()) {
    reading.problems.add(node.place, path, pattern.error().message);
    return false;
  }
  if (pattern->groups() <= 1) return true;
  reading.problems.add(node.place, path,
                       fmt::format("{} has {} groups, expected one around the value; (?:...) groups without taking",
                                   in_quotes(node.text), pattern->groups()));
  return false;
}

std::vector<Metric> read_metrics(const YamlNode* train, SpecReading& reading) {
  std::vector<Metric> metrics;
  const YamlNode* node = value_of(train, "metrics");
  if (!node) return metrics;
  for (size_t i = 0; i < node->items.size(); ++i) {
    const YamlNode& item = node->items[i];
    const bool twice = std::any_of(metrics.begin(), metrics.end(), [&](const Metric& earlier) {
      return earlier.name == item.text;
    });
    if (item.refused) continue;
    if (twice) {
      reading.problems.add(item.place, join_path("train.metrics", i),
                           fmt::format("{} was given before", item.text));
    } else {
      metrics.push_back({item.text, ""});
    }
  }
  for (const YamlEntry& entry : node->entries) {
    const std::string path = join_path("train.metrics", entry.key);
    if (entry.value.refused || !check_pattern(entry.value, path, reading)) continue;
    metrics.push_back({entry.key, entry.value.text});
  }
  return metrics;
}

}  // namespace

int64_t read_duration_ms(const YamlNode* map, std::string_view map_path, std::string_view key,
                         int64_t otherwise_ms, SpecReading& reading) {
  const YamlNode* node = value_of(map, key);
  if (!node) return otherwise_ms;
  std::optional<int64_t> read_ms = parse_duration_ms(node->text);
  if (!read_ms) {
    if (const auto seconds = parse_decimal(node->text)) read_ms = multiply(*seconds, 1000);
  }
  if (!read_ms || *read_ms > kMaxDurationMs) {
    reading.problems.add(node->place, join_path(map_path, key),
                         fmt::format("got {}, expected at most 366d", in_quotes(node->text)));
    return otherwise_ms;
  }
  return *read_ms;
}

std::string scalar_text(const YamlNode* node) { return node == nullptr ? "" : node->text; }

const YamlNode* value_of(const YamlNode* map, std::string_view key) {
  if (!map || map->refused) return nullptr;
  const YamlNode* value = map->find(key);
  return value && !value->refused ? value : nullptr;
}

std::vector<std::string> read_lines(const YamlNode& node) {
  std::vector<std::string> lines;
  auto take = [&](const YamlNode& item) {
    if (item.refused || item.kind != YamlNode::Kind::Scalar) return;
    std::string line;
    for (size_t at = 0; at < item.text.size(); ++at) {
      const char c = item.text[at];
      // '>' asks for one long line, but YAML keeps the break before an indented line: a command
      // whose options stand below each other would fall apart.
      const bool indented = at + 1 < item.text.size() && item.text[at + 1] == ' ';
      if (item.folded && c == '\n' && indented) {
        while (at + 1 < item.text.size() && item.text[at + 1] == ' ') ++at;
        line += ' ';
      } else {
        line += c;
      }
    }
    lines.push_back(std::move(line));
  };
  take(node);
  for (const YamlNode& item : node.items) take(item);
  return lines;
}

Resources read_resources(const YamlNode& node, const std::string& path, SpecReading& reading) {
  Resources resources;
  if (const YamlNode* cpus = value_of(&node, "cpus")) {
    resources.cpus = as_number(*cpus).value_or(resources.cpus);
  }
  resources.gpus = read_integer(&node, "gpus", resources.gpus);
  const YamlNode* mem = value_of(&node, "mem");
  if (!mem) return resources;

  const std::string mem_path = join_path(path, "mem");
  if (const auto plain_mib = as_number(*mem)) {
    if (*plain_mib < kLeastPlainMib && !reading.riseml) {
      reading.problems.add(mem->place, mem_path,
                           fmt::format("{0} MiB are too little for any process; a plain number "
                                       "counts MiB, write {0}GiB for gigabytes",
                                       mem->text));
      return resources;
    }
    if (*plain_mib < kLeastPlainMib && reading.notes != nullptr) {
      reading.notes->push_back(fmt::format("{}: {} counts MiB, which are too little for any process; write {}GiB for gigabytes", mem_path, mem->text, mem->text));
    }
    resources.memory_bytes = parse_mib(mem->text).value_or(0);
  } else {
    resources.memory_bytes = parse_memory(mem->text).value_or(0);
  }
  if (resources.memory_bytes == 0 || resources.memory_bytes > kMaxMemoryBytes) {
    reading.problems.add(
        mem->place, mem_path,
        fmt::format("got {}, expected more than nothing and at most 64TiB", in_quotes(mem->text)));
  }
  return resources;
}

bool is_image_refused(const YamlNode& train) {
  const YamlNode* const said = train.find("image");
  return said != nullptr && said->kind != YamlNode::Kind::Null && read_image(&train).empty();
}

Spec read_spec(const YamlNode& root, const std::vector<AddedParameter>& added,
               SpecReading& reading) {
  Spec spec;
  const YamlNode* train = value_of(&root, "train");
  spec.project = read_text(&root, "project");
  spec.name = read_text(&root, "name");
  spec.note = read_text(&root, "note");
  if (!train || train->kind != YamlNode::Kind::Map) return spec;

  spec.framework = read_framework(train, reading);
  check_sections(*train, spec.framework, reading);
  const bool engine = spec.framework == Framework::Engine;
  if (engine) {
    spec.tensorflow.tensorboard = read_engine_tensorboard(*train);
    spec.engine.in_step = read_in_step(*train);
  } else {
    spec.tensorflow = read_tensorflow(value_of(train, "tensorflow"));
    spec.pytorch = read_pytorch(value_of(train, "pytorch"));
    spec.mpi = read_mpi(value_of(train, "mpi"));
  }
  spec.concurrency = read_integer(train, "concurrency", reading.riseml ? 1 : 0);
  spec.priority = read_integer(train, "priority", spec.priority);
  const auto is_true = [&](const char* key) {
    const YamlNode* value = value_of(train, key);
    return value != nullptr && as_boolean(*value).value_or(false);
  };
  spec.preemptible = is_true("preemptible");
  spec.suspend = is_true("suspend");
  spec.after = read_experiments(train, "after");
  spec.after_end = read_experiments(train, "after-end");
  spec.install = read_install(train);
  spec.image = read_image(train);
  if (const YamlNode* hosts = value_of(train, "hosts")) spec.hosts = read_lines(*hosts);
  spec.python = read_text(train, "python", spec.python);
  spec.parameters = read_parameters(*train, reading);
  spec.metrics = read_metrics(train, reading);
  spec.combine = combine_of(*train);
  spec.search = read_search(*train, spec, reading);
  TakenVariables taken;
  check_env_names(*train, "parameters", "", spec.framework, taken, reading);
  check_env_names(*train, "data", "_DIR", spec.framework, taken, reading);
  read_environment(*train, taken, added, spec, reading);
  read_lists(train, spec);

  const YamlNode* restart = value_of(train, "restart");
  spec.failure_policy = read_failure_policy(*train, reading);
  spec.restart.limit = read_integer(restart, "limit", engine ? kEngineRestarts : 0);
  spec.restart.backoff_ms =
      read_duration_ms(restart, "train.restart", "backoff",
                       engine ? kEngineBackoffMs : spec.restart.backoff_ms, reading);
  spec.max_duration_ms = read_duration_ms(train, "train", "max-duration", 0, reading);
  spec.max_away_ms = read_duration_ms(train, "train", "max-away", 0, reading);
  constexpr int64_t kAwayLeastMs = 60'000;   // a daemon may need as long to be there again
  if (spec.max_away_ms > 0 && spec.max_away_ms < kAwayLeastMs) {
    reading.problems.add(value_of(train, "max-away")->place, "train.max-away", "expected at least 1m");
  }
  // MPI's workers never end by themselves.
  if (spec.framework == Framework::Mpi) spec.finish_grace_ms = 0;
  spec.finish_grace_ms =
      read_duration_ms(train, "train", "finish-grace", spec.finish_grace_ms, reading);
  spec.stop_grace_ms = read_duration_ms(train, "train", "stop-grace", spec.stop_grace_ms, reading);
  if (read_text(train, "completion") == "all-workers") {
    spec.completion = Completion::AllWorkers;
    if (spec.framework == Framework::Mpi) {
      reading.problems.add(value_of(train, "completion")->place, "train.completion",
                           "MPI's workers end when the launcher has ended; leave it out");
    }
  }
  spec.hard_cpus = read_text(value_of(train, "limits"), "cpus") == "hard";
  spec.hard_memory = read_text(value_of(train, "limits"), "mem") == "hard";

  const bool limit_given = value_of(restart, "limit") != nullptr;
  spec.elastic = read_elastic(*train, spec.framework, reading);
  if (spec.elastic && !limit_given) spec.restart.limit = Elastic::kRestarts;
  spec.roles = read_roles(*train, spec, limit_given, reading);
  if (spec.image.empty()) share_image(spec);
  check_image(*train, spec, reading);
  // Who asks for replicas to be restarted means it to happen.
  const bool some_restart = std::any_of(spec.roles.begin(), spec.roles.end(), [](const RoleSpec& role) {
    return restarts(role.on_failure);
  });
  if (some_restart && !limit_given) spec.restart.limit = RestartPolicy::kUsualLimit;
  if (limit_given && spec.restart.limit == 0) check_rules_without_restarts(*train, spec, reading);
  if (restart != nullptr && restart->find("limit") == nullptr && spec.restarts_most() == 0) {
    reading.problems.add(restart->place, "train.restart", "nothing is launched again without a limit; write 'limit: 3'");
  }
  if (engine) read_engine(*train, spec, reading);
  check_placeholders(*train, spec, added, reading);
  return spec;
}

}  // namespace dtrain
