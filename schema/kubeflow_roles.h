// The roles of a manifest, each with what its container comes to.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "schema/kubeflow.h"
#include "schema/kubeflow_container.h"
#include "schema/kubeflow_keys.h"
#include "schema/mounts.h"
#include "schema/problems.h"
#include "schema/spec.h"
#include "schema/yaml_tree.h"

namespace dtrain {

// Its word is also that by which Kubeflow finds the container that trains.
Framework framework_of(ManifestKind kind);

struct PodRole {
  std::string word;  // "PS"
  Place place;
  int count = 1;       // more than 0
  std::string policy;  // its restartPolicy
  const YamlNode* container = nullptr;
  const YamlNode* grace = nullptr;  // terminationGracePeriodSeconds; may be null
  YamlNode resources = {};          // as dtrain.yml has them; null: none are asked for
  std::vector<ContainerVariable> variables = {};
  std::string image = {};  // that it runs in; empty: in none
  std::vector<HostMount> mounts = {};  // of the host in there
  std::vector<std::string> run = {};  // empty: only the image knows
};

// By the order of role_words(), so that who decides comes first. The manifest has been checked; with problems they
// are of no use. `job`: its name.
std::vector<PodRole> read_pod_roles(const YamlNode& manifest, ManifestKind kind, const std::string& job, const GivenBeside& given,
                                    Problems& problems, std::vector<std::string>& notes);

// Null where there is none of that word.
const PodRole* find_role(const std::vector<PodRole>& roles, std::string_view word);

// Whether the role has a command: workers of MPI run what the launcher starts in them.
bool runs(const PodRole& role, ManifestKind kind);

// What the experiment sets for all of them, and those of who submits; the rest is set in their commands from now on.
std::vector<ContainerVariable> share_variables(std::vector<PodRole>& roles, ManifestKind kind, std::vector<std::string>& notes);

}  // namespace dtrain
