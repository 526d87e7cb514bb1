// From a checked tree to a Spec: defaults, roles, and the rules that no single key can break.
#pragma once

#include <vector>

#include "schema/problems.h"
#include "schema/spec.h"
#include "schema/spec_overrides.h"
#include "schema/yaml_tree.h"

namespace dtrain {

// What the values of one tree are read with. Lives for one parse.
struct SpecReading {
  Problems& problems;
  bool riseml = false;  // the file is RiseML's: its defaults
  std::vector<Parameter> varied = {};  // lists elsewhere, each with its value in this tree
  uint64_t kinds = 1;                  // of trees that these lists make
  uint64_t kind = 0;                   // which of them this is
  bool was_read = false;               // all of it, before: no combination need be tried again
  // Placeholders nobody gave a value, sorted, each once: the hint asks for them.
  std::vector<std::string> undeclared = {};
  std::vector<std::string>* notes = nullptr;   // of what RiseML meant otherwise; null: nobody asks
};

// The tree was checked by check_tree; refused nodes are read as if left out.
Spec read_spec(const YamlNode& root, const std::vector<AddedParameter>& added,
               SpecReading& reading);

// The value of `key` in `map`; null when the map is null, has none, or the value was refused.
const YamlNode* value_of(const YamlNode* map, std::string_view key);

// Of a scalar; empty for anything else, or null.
std::string scalar_text(const YamlNode* node);

// Whether each process finds a variable of that name anyway, of dtrain's or of its framework's contract. `train`
// says whether it has data, and others to come after; null: neither.
bool is_set_by_us(std::string_view name, Framework framework, const YamlNode* train);

// A command or a list of them, with the line breaks of folded text made blanks.
std::vector<std::string> read_lines(const YamlNode& node);

Resources read_resources(const YamlNode& node, const std::string& path, SpecReading& reading);

// The section of `train` that `distributed` stands in.
const char* roles_section(Framework framework);

// Of the map `distributed`: what `worker` says, or elastic.max; 1.
int most_workers_of(const YamlNode* distributed);
// Nothing where all workers are wanted from the beginning.
std::optional<Elastic> read_elastic(const YamlNode& train, Framework framework, SpecReading& reading);

int64_t read_duration_ms(const YamlNode* map, std::string_view map_path, std::string_view key, int64_t otherwise_ms, SpecReading& reading);

// train.failure-policy.
std::vector<FailureRule> read_failure_policy(const YamlNode& train, SpecReading& reading);
// `restart` has said that there are none.
void check_rules_without_restarts(const YamlNode& train, const Spec& spec, SpecReading& reading);

// Whether something is said of it that is no name of any.
bool is_image_refused(const YamlNode& train);
inline constexpr std::string_view kNoInstallIntoDirectory = "nothing is installed into a directory of files; name an image, or leave out 'install'";

// The roles of the experiment, normalised; see Spec. `train` is the map of that name.
std::vector<RoleSpec> read_roles(const YamlNode& train, const Spec& spec, bool restart_limit_given,
                                 SpecReading& reading);

// train.parameters, sorted by name: values that are drawn are drawn here, and then go together.
std::vector<Parameter> read_parameters(const YamlNode& train, SpecReading& reading);

// train.search, of a Spec that has its metrics.
Search read_search(const YamlNode& train, const Spec& spec, SpecReading& reading);
// What is drawn goes together, too.
Combine combine_of(const YamlNode& train);
// Members are drawn: so many, where the number of them was not refused; 0 where it was.
std::optional<uint64_t> members_to_draw(const YamlNode& train);
uint64_t seed_of(const YamlNode& train);
// Lists that go together are as long as each other.
void check_members(const YamlNode& root, const Spec& spec, Problems& problems);

// Every {{ name }} of every command has a value, and every parameter that only the command line
// gives has a place.
void check_placeholders(const YamlNode& train, const Spec& spec,
                        const std::vector<AddedParameter>& added, SpecReading& reading);

}  // namespace dtrain
