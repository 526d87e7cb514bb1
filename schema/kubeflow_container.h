// What a container of a manifest comes to where there are none: a line for a shell, variables, an amount of resources.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "schema/yaml_tree.h"

namespace dtrain {

struct ContainerVariable {
  enum class Source {
    Text,       // `text` is its value
    Shell,      // `text` is a word of a shell: the value refers to other variables
    Submitter,  // of who submits: a secret of the cluster
  };
  std::string name;
  Source source = Source::Text;
  std::string text = {};
  Place place = {};  // no part of what it is
  bool operator==(const ContainerVariable& other) const {
    return name == other.name && source == other.source && text == other.text;
  }
};

// Both expand $(NAME) as Kubernetes does: of variables that stand before it, or that `is_given` knows, and no others.
using IsGiven = std::function<bool(std::string_view name)>;
std::vector<ContainerVariable> container_variables(const YamlNode& container, const IsGiven& is_given);
// Its command and arguments; empty where only the image knows.
std::string container_line(const YamlNode& container, const std::vector<ContainerVariable>& variables, const IsGiven& is_given);

// `export NAME=...`, for a shell; of who submits none is needed.
std::string export_line(const ContainerVariable& variable);

// cpus, mem and gpus as dtrain.yml has them: what is requested, and where nothing is, the limits. Null: neither.
YamlNode container_resources(const YamlNode& container);

}  // namespace dtrain
