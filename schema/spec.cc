#include "schema/spec.h"

#include <algorithm>

#include "schema/problems.h"
#include "schema/spec_check.h"
#include "schema/spec_keys.h"
#include "schema/spec_overrides.h"
#include "schema/spec_read.h"
#include "schema/yaml_tree.h"

namespace dtrain {

namespace {

constexpr size_t kSpecMaxBytes = 512 << 10;

bool is_riseml_file(std::string_view file_name) {
  const size_t slash = file_name.rfind('/');
  return file_name.substr(slash == std::string_view::npos ? 0 : slash + 1) == "riseml.yml";
}

std::string ask_for(const std::vector<std::string>& undeclared) {
  if (undeclared.empty()) return "";
  std::string line = "give the parameters their values: dtrain train";
  for (const std::string& name : undeclared) line += fmt::format(" -p {}=VALUE", name);
  return line;
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
  return replica_count() > 1;
}

int Spec::replica_count() const {
  int count = 0;
  for (const RoleSpec& one : roles) count += one.count;
  return count;
}

uint64_t Spec::member_count() const {
  uint64_t count = 1;
  for (const Parameter& parameter : parameters) {
    if (__builtin_mul_overflow(count, uint64_t{parameter.values.size()}, &count)) return UINT64_MAX;
  }
  return count;
}

bool Spec::has_build() const {
  return !install.empty() || !tensorflow.version.empty();
}

std::string_view to_string(Framework framework) {
  switch (framework) {
    case Framework::Command:
      return "command";
    case Framework::Tensorflow:
      return "tensorflow";
    case Framework::Pytorch:
      return "pytorch";
    case Framework::Mpi:
      return "mpi";
    case Framework::Engine:
      return "engine";
  }
  return "command";
}

namespace {

// The Spec, or problems; the hint is for all of them together.
Spec read_text(std::string_view yaml, const ParseOptions& options, Problems& problems,
               std::string& hint) {
  std::optional<YamlNode> root = parse_yaml(yaml, 0, problems);
  if (!root) return {};
  if (root->kind == YamlNode::Kind::Null && options.set.empty()) {
    problems.add({}, "", "the file is empty");
    hint = "dtrain init writes one to start from";
    return {};
  }
  const std::vector<AddedParameter> added = apply_overrides(*root, options, problems);
  check_tree(*root, spec_shape(), problems);
  SpecReading reading{problems, is_riseml_file(options.file_name)};
  Spec spec = read_spec(*root, added, reading);
  // It travels in one message and is parsed again at every stop; aliases may have blown it up.
  if (problems.empty() && to_yaml(spec).size() > kSpecMaxBytes) {
    problems.add(
        {}, "",
        fmt::format("spelt out this is more than {} bytes; put long commands into a script",
                    kSpecMaxBytes));
  }
  const bool only_values_missing = problems.size() == reading.undeclared.size();
  if (!problems.empty() && only_values_missing) hint = ask_for(reading.undeclared);
  return spec;
}

}  // namespace

Result<Spec> parse_spec(std::string_view yaml, const ParseOptions& options) {
  Problems problems(options.file_name, options.has_lines);
  std::string hint;
  Spec spec = read_text(yaml, options, problems, hint);
  if (problems.empty()) return spec;
  if (options.mistakes != nullptr) *options.mistakes = problems.mistakes();
  return problems.to_error(std::move(hint));
}

}  // namespace dtrain
