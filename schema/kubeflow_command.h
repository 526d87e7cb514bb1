// What a container of Kubernetes needs to do what lines of a shell say: the inverse of kubeflow_container.h.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "schema/kubeflow_container.h"
#include "schema/spec.h"

namespace dtrain {

// With "$" doubled where Kubernetes would take it for its own.
std::string kubernetes_text(std::string_view text);

struct ContainerEnv {
  std::string name;
  std::string value;  // as Kubernetes writes it: $(NAME) is another variable's
  std::string field;  // or a field of the pod; empty: none
  bool operator==(const ContainerEnv&) const = default;
};

struct ContainerCommand {
  std::string directory;                       // workingDir; empty: the image's
  std::vector<std::string> command, arguments;  // as Kubernetes writes them; neither: what the image runs by itself
  std::vector<ContainerEnv> env;               // beside that of all
  std::vector<std::string> unset;              // of that of all
  std::vector<std::string> empty_directories;  // volumes that begin empty
};

// Whose it is, and which variables Kubernetes knows before it begins.
struct ContainerSide {
  PodNames names;
  Framework framework = Framework::Command;
  std::set<std::string, std::less<>> variables;  // of all, which one may be without
  std::set<std::string, std::less<>> told;       // by Kubeflow
};

// A line that a shell does nothing with but to start a program is that program. What more it does is for /bin/sh, as
// run_script() has it.
ContainerCommand container_command(std::vector<std::string> run, ContainerSide side);

// The line's words as Kubernetes writes them; empty where a shell does more with it. What stands in `known` may be
// referred to.
std::vector<std::string> kubernetes_words(std::string_view line, const std::set<std::string, std::less<>>& known);

}  // namespace dtrain
