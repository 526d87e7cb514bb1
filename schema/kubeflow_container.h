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
    Shell,      // `text` is a word of a shell: the value is known when it runs
    Submitter,  // of who submits: a secret of the cluster
  };
  std::string name;
  Source source = Source::Text;
  std::string text = {};
  Place place = {};  // no part of what it is
  bool is_optional = false;   // of who submits, if they have it; no part of what it is
  bool operator==(const ContainerVariable& other) const {
    return name == other.name && source == other.source && text == other.text;
  }
};

// Whose container it is.
struct PodNames {
  std::string job;    // "mnist"
  std::string role;   // "worker"
  std::string index;  // from 0, as a shell finds it
  std::string controller = {};  // "tfjob-controller"
  std::string job_role = {};    // "master", as a shell finds it; empty: it has no such label
};

// Goes to where an image begins; elsewhere there is no such place.
inline constexpr const char* kIntoImageDirectory = "cd \"${DTRAIN_IMAGE_DIR}\"";

// A field of a pod, of what is its replica here, as a word of a shell; empty: there is none.
std::string word_of_field(std::string_view field, const PodNames& names);

// What texts are read with: as Kubernetes does, $(NAME) is expanded where NAME stands before it, or is_given() knows it,
// and left alone where not. {{ name }} is a parameter where is_parameter() says so, and else a text like any other.
struct TextReading {
  std::function<bool(std::string_view name)> is_given;
  std::function<bool(std::string_view name)> is_parameter;
  std::function<bool(const std::string& name)> is_in_shell;   // whether who submits has a variable
};

// An optional one that who submits does not have is not there, as in Kubernetes, and added to `left_out`.
std::vector<ContainerVariable> container_variables(const YamlNode& container, const PodNames& names, const TextReading& reading,
                                                   std::vector<std::string>& left_out);

// Its command and arguments; empty where only the image knows. `run` is a line of a shell instead of a command: then
// arguments are what the image's own would have had.
std::string container_line(const YamlNode& container, const std::vector<ContainerVariable>& variables, const std::string& run,
                           const TextReading& reading);

// A text as a word of a shell.
std::string quoted_for_shell(std::string_view text);

// `export NAME=...`, for a shell; of who submits none is needed.
std::string export_line(const ContainerVariable& variable);

// cpus, mem and gpus as dtrain.yml has them: what is requested, and where nothing is, the limits. Null: neither.
YamlNode container_resources(const YamlNode& container);

}  // namespace dtrain
