// Keys of the YAML that experiments have differently, by `--set` or in another file: what `compare` shows of
// them beside their parameters. Pure.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "schema/spec.h"
#include "schema/yaml_tree.h"

namespace dtrain::cli {

// What an experiment is made of, without what is told elsewhere: its names, parameters, metrics and commands.
struct Settings {
  YamlNode train;                             // one value where the YAML has a list for a set
  std::map<std::string, std::string> varied;  // of such a list its path -> the parameter that it is
};

std::shared_ptr<const Settings> settings_of(const Spec& spec, uint32_t member);

// One key, and what each of them has there; nothing where it is left out.
struct DifferingSetting {
  std::string name;  // the last key that says something, with more of those above it where that is taken
  std::vector<std::optional<std::string>> values;
};

// In the order of the file; none for what is null, of which nothing is known. `taken` are names of other columns.
std::vector<DifferingSetting> differing_settings(const std::vector<std::shared_ptr<const Settings>>& all,
                                                 std::set<std::string> taken);

}  // namespace dtrain::cli
