// The table of a manifest: the keys that mean something here, and those that only Kubernetes has a use for.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "schema/problems.h"
#include "schema/spec_keys.h"
#include "schema/yaml_tree.h"

namespace dtrain {

enum class ManifestKind { TfJob, PytorchJob, JaxJob, MpiJob };

inline constexpr std::string_view kJobKinds = "TFJob, PyTorchJob, JAXJob, MPIJob or TrainJob";

std::optional<ManifestKind> manifest_kind(std::string_view kind);
std::string_view word_of_kind(ManifestKind kind);   // "TFJob"
std::string in_small_letters(std::string_view word);

// What does instead of a kind of Kubeflow's that is none of them, behind a message; empty: it is something else.
std::string advice_about(std::string_view kind);

// Where a job of that kind has its roles, "tfReplicaSpecs", and the words for them.
std::string_view replicas_key(ManifestKind kind);
const std::vector<std::string_view>& role_words(ManifestKind kind);

// What is left of a manifest once unused keys are out. Built on first use, never changed.
const Shape& manifest_shape(ManifestKind kind);
const Shape& train_job_shape();

// Whether a resource of that name is whole GPUs, or slices of them that count as one.
bool is_gpu_resource(std::string_view name);

// Takes out what only Kubernetes uses, and what is null, which there is the same as left out. Names of those that somebody may miss are added to `missed`, each once:
// "initContainers (line 12)".
struct Missed {
  std::vector<std::string> idle;      // what says where and how it is to run
  std::vector<std::string> lacking;   // what its program may need: volumes, variables, files that others make
};
void drop_unused(YamlNode& manifest, ManifestKind kind, Missed& missed);
void drop_unused_of_train_job(YamlNode& manifest, Missed& missed);
// A sentence about each kind of what was dropped.
void add_notes(const Missed& missed, std::vector<std::string>& notes);

// terminationGracePeriodSeconds where nothing is said.
inline constexpr int kKubernetesGraceSeconds = 30;

// Processes a node, where it is a number.
std::optional<int> parse_processes(std::string_view text);
// Amounts as Kubernetes writes them: "500m" or "2" CPUs, "4Gi", "512M" or "1e9" bytes.
std::optional<double> parse_quantity(std::string_view text);

}  // namespace dtrain
