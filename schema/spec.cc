#include "schema/spec.h"

#include <algorithm>

#include "schema/combinations.h"
#include "schema/engine_read.h"
#include "schema/expand.h"
#include "schema/image_name.h"
#include "schema/kubeflow.h"
#include "schema/kubeflow_documents.h"
#include "schema/problems.h"
#include "schema/quote.h"
#include "schema/spec_keys.h"
#include "schema/spec_overrides.h"
#include "schema/spec_read.h"
#include "schema/variation.h"
#include "schema/yaml_tree.h"

namespace dtrain {

namespace {

constexpr size_t kSpecMaxBytes = 512 << 10;

// As RiseML told its files from those of a project.
bool is_riseml_file(std::string_view file_name) {
  const size_t slash = file_name.rfind('/');
  const std::string_view name = file_name.substr(slash == std::string_view::npos ? 0 : slash + 1);
  return name.starts_with("riseml") && name.ends_with(".yml");
}

// What RiseML did, and is not done here.
std::string note_of_tensorboard(const YamlNode& root, const Spec& spec) {
  const YamlNode* const train = value_of(&root, "train");
  const bool is_said = value_of(value_of(train, "tensorflow"), "tensorboard") != nullptr;
  if (spec.framework != Framework::Tensorflow || is_said) return "";
  return "RiseML started a TensorBoard where nothing is said of one; here --set train.tensorflow.tensorboard=true does";
}

// What ran models for others, once they were trained.
void drop_deployment(YamlNode& root, const ParseOptions& options) {
  const auto dropped = std::erase_if(root.entries, [](const YamlEntry& entry) { return entry.key == "deploy"; });
  if (dropped > 0 && options.notes != nullptr) options.notes->push_back("left out: deploy; models are trained here, and deployed elsewhere");
}

std::string ask_for(const std::vector<std::string>& undeclared) {
  if (undeclared.empty()) return "";
  std::string line = "give the parameters their values: dtrain train";
  for (const std::string& name : undeclared) line += fmt::format(" -p {}=VALUE", name);
  return line;
}

// Lists in place of values, of which a riseml.yml knows nothing.
std::string lists_instead_of_values(const YamlNode& root) {
  Problems said_already("", false);
  if (find_variations(root, spec_shape(), said_already).empty()) return "";
  return "in a dtrain.yml such lists make a set; in a riseml.yml those of 'parameters' do";
}

// `-p rate=0.1,0.2` is meant for a list, where it was refused as no number.
std::string list_instead_of(const ParseOptions& options, const std::vector<Mistake>& mistakes) {
  const auto is_no_number = [&](const std::string& value) {
    const std::string got = fmt::format("got {}, expected ", in_quotes(value));
    return value.find(',') != std::string::npos && std::ranges::any_of(mistakes, [&](const Mistake& mistake) {
      const size_t at = mistake.message.find(got);
      return at != std::string::npos && mistake.message.find("number", at + got.size()) != std::string::npos;
    });
  };
  const auto written = [](std::string_view option, const std::string& name, const std::string& value) {
    return fmt::format("a list of values is written {} '{}=[{}]'", option, name, value);
  };
  for (const auto& [name, value] : options.parameters) {
    if (is_no_number(value)) return written("-p", name, value);
  }
  for (const auto& [key, value] : options.set) {
    if (is_no_number(value)) return written("--set", key, value);
  }
  return "";
}

}  // namespace

const RoleSpec* Spec::role(Role wanted) const {
  for (const RoleSpec& candidate : roles) {
    if (candidate.role == wanted) return &candidate;
  }
  return nullptr;
}

const RoleSpec& Spec::decider() const {
  INVARIANT(!roles.empty(), "a Spec has roles, the decider first");
  return roles.front();
}

bool Spec::is_distributed() const {
  return replica_count() > (role(Role::Tensorboard) == nullptr ? 1 : 2);
}

int Spec::replica_count() const {
  int count = 0;
  for (const RoleSpec& one : roles) count += one.count;
  return count;
}

int Spec::most_workers() const {
  const RoleSpec* const workers = role(Role::Worker);
  return (role(Role::Master) == nullptr ? 0 : role(Role::Master)->count) + (workers == nullptr ? 0 : workers->count);
}

int Spec::least_workers() const {
  const RoleSpec* const workers = role(Role::Worker);
  if (!elastic || workers == nullptr) return most_workers();
  return most_workers() - workers->count + elastic->least_of_role;
}

uint64_t Spec::member_count() const {
  return combination_count(parameters, combine);
}

bool Spec::has_build() const {
  return !install.empty() || !tensorflow.version.empty() ||
         std::ranges::any_of(images(), [](const std::string& one) { return !is_image_directory(one); });
}

const std::string& Spec::image_of(const RoleSpec& role) const {
  return role.image.empty() ? image : role.image;
}

std::vector<std::string> Spec::images() const {
  std::vector<std::string> names;
  if (image.empty()) return names;
  for (const RoleSpec& role : roles) {
    if (std::ranges::find(names, image_of(role)) == names.end()) names.push_back(image_of(role));
  }
  return names;
}

OnFailure Spec::usual_on_failure(Role role) const {
  // The others go on without it, and would stop while it is brought back on another host.
  const bool may_be_lost =
      framework == Framework::Engine && role == Role::Worker && !engine.in_step;
  return may_be_lost ? OnFailure::Ignore : restart.usual();
}

std::string_view to_string(Framework framework) {
  switch (framework) {
    case Framework::Command:
      return "command";
    case Framework::Tensorflow:
      return "tensorflow";
    case Framework::Pytorch:
      return "pytorch";
    case Framework::Jax:
      return "jax";
    case Framework::Mpi:
      return "mpi";
    case Framework::Engine:
      return "engine";
  }
  return "command";
}

namespace {

// It travels in one message and is parsed again at every stop; aliases may have blown it up.
void check_size(const Spec& spec, Problems& problems) {
  if (spec.source.size() <= kSpecMaxBytes && to_yaml(spec).size() <= kSpecMaxBytes) return;
  problems.add({}, "",
               fmt::format("spelt out this is more than {} bytes; put long commands into a script, and take fewer values",
                           kSpecMaxBytes));
}

// `-p worker=2` where the file has `worker: [1, 2]` is meant for that list. It stays one, so that
// {{ worker }} still has its value.
ParseOptions with_lists_set(const YamlNode& root, const ParseOptions& options) {
  Problems of_the_file("", false);
  const auto lists = find_variations(root, spec_shape(), of_the_file);
  ParseOptions changed = options;
  changed.parameters.clear();
  for (const auto& [name, value] : options.parameters) {
    const auto list = std::ranges::find(lists, name, &Parameter::name);
    if (list == lists.end()) {
      changed.parameters.emplace_back(name, value);
    } else {
      const bool is_text = !is_list_or_map(value);
      const std::string one = is_text ? yaml_scalar(value) : value;
      changed.set.emplace_back(list->path, !is_text && value.starts_with('[') ? value : "[" + one + "]");
    }
  }
  return changed;
}

Spec read_tree(YamlNode& root, const std::vector<AddedParameter>& added, SpecReading& reading) {
  check_spec_tree(root, reading.problems);
  return read_spec(root, added, reading);
}

// Each combination is read, and what is wrong with the first that has something wrong is told.
Spec read_varied(YamlNode& root, const std::vector<Parameter>& variations,
                 const std::vector<AddedParameter>& added, SpecReading& reading) {
  // After a mistake in the lists themselves only the first combination is read.
  const Combine combine = combine_of(*root.find("train"));
  reading.kinds = reading.problems.empty() ? combination_count(variations, combine) : 1;
  Spec spec;
  for (uint64_t kind = 0; kind < reading.kinds; ++kind) {
    YamlNode tree = choose_variation(root, variations, combine, kind);
    reading.varied = chosen_values(variations, combine, kind);
    reading.kind = kind;
    Spec one = read_tree(tree, added, reading);
    if (!reading.problems.empty()) return one;
    if (kind == 0) spec = std::move(one);
  }
  spec.parameters.insert(spec.parameters.end(), variations.begin(), variations.end());
  std::sort(spec.parameters.begin(), spec.parameters.end(),
            [](const Parameter& a, const Parameter& b) { return a.name < b.name; });
  if (const uint64_t count = spec.member_count(); count > kMaxMembers) {
    reading.problems.add(root.find("train")->place, variations.front().path,
                         fmt::format("with this list the set has {} members, expected at most {}",
                                     count, kMaxMembers));
  }
  drop_own_keys(root);
  spec.source = emit_yaml(root);
  return spec;
}

// The Spec, or problems; the hint is for all of them together.
Spec read_root(YamlNode root, const ParseOptions& options, Problems& problems, std::string& hint) {
  const bool riseml = is_riseml_file(options.file_name);
  const std::vector<AddedParameter> added = apply_overrides(
      root, riseml ? options : with_lists_set(root, options), problems);
  if (riseml) drop_deployment(root, options);
  SpecReading reading{problems, riseml};
  if (riseml) reading.notes = options.notes;
  std::string about_lists = riseml ? lists_instead_of_values(root) : "";
  const std::vector<Parameter> variations =
      reading.riseml ? std::vector<Parameter>() : find_variations(root, spec_shape(), problems);
  Spec spec = variations.empty() ? read_tree(root, added, reading)
                                 : read_varied(root, variations, added, reading);
  if (problems.empty()) check_members(root, spec, problems);
  if (problems.empty()) check_size(spec, problems);
  if (reading.notes != nullptr) {
    if (std::string note = note_of_tensorboard(root, spec); !note.empty()) reading.notes->push_back(std::move(note));
  }
  const bool only_values_missing = problems.size() == reading.undeclared.size();
  if (!problems.empty() && only_values_missing) hint = ask_for(reading.undeclared);
  if (!problems.empty() && hint.empty()) hint = std::move(about_lists);
  return spec;
}

// --set train.run is what the containers run, --set train.image in which image; other settings are about the dtrain.yml that the manifest comes to.
Spec read_as_manifest(YamlNode root, const ParseOptions& options, std::vector<std::string> notes, std::map<std::string, std::string> secrets,
                      Problems& problems, std::string& hint) {
  GivenBeside given;
  given.secrets = std::move(secrets);
  ParseOptions set = options, unset = options;
  set.file_name = unset.file_name = "dtrain.yml";
  std::erase_if(set.set, [&](const auto& one) {
    if (one.first == "train.image" && !one.second.starts_with('{')) {
      given.image = one.second == "null" ? "" : one.second;
      return true;
    }
    if (one.first != "train.run" || one.second.starts_with('[')) return false;
    given.run = one.second;
    return true;
  });
  if (options.image) given.image = options.image;
  for (const auto& [name, value] : options.parameters) given.parameters.push_back(name);
  given.is_in_shell = options.is_in_shell;
  read_manifest(root, given, problems, notes);
  if (!problems.empty()) return {};
  unset.set.clear();
  Spec spec = read_root(std::move(root), unset, problems, hint);
  if (!problems.empty()) return spec;
  if (options.notes != nullptr) *options.notes = std::move(notes);
  if (options.secrets != nullptr) *options.secrets = std::move(given.secrets);
  if (set.set.empty()) return spec;
  const std::string yaml = to_yaml(spec);
  std::optional<YamlNode> meant = parse_yaml(yaml, problems.add_source("--set"), problems);
  return meant ? read_root(std::move(*meant), set, problems, hint) : Spec();
}

Spec read_text(std::string_view yaml, const ParseOptions& options, Problems& problems,
               std::string& hint) {
  std::optional<std::vector<YamlNode>> documents = parse_yaml_documents(yaml, 0, problems);
  if (!documents) return {};
  std::vector<std::string> notes;
  std::map<std::string, std::string> secrets;
  std::optional<YamlNode> root = choose_document(std::move(*documents), problems, notes, secrets);
  if (!root) return {};
  if (root->kind == YamlNode::Kind::Null && options.set.empty()) {
    problems.add({}, "", "the file is empty");
    hint = "dtrain init writes one to start from";
    return {};
  }
  return is_manifest(*root) ? read_as_manifest(std::move(*root), options, std::move(notes), std::move(secrets), problems, hint)
                            : read_root(std::move(*root), options, problems, hint);
}

}  // namespace

Result<Spec> parse_spec(std::string_view yaml, const ParseOptions& options) {
  Problems problems(options.file_name, options.has_lines);
  std::string hint;
  Spec spec = read_text(yaml, options, problems, hint);
  if (problems.empty()) return spec;
  if (hint.empty()) hint = list_instead_of(options, problems.mistakes());
  if (options.mistakes != nullptr) *options.mistakes = problems.mistakes();
  return problems.to_error(std::move(hint));
}

}  // namespace dtrain
