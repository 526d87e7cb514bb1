#include "schema/kubeflow_elastic.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "schema/cluster_env.h"
#include "schema/kubeflow_command.h"
#include "schema/kubeflow_yaml.h"

namespace dtrain {

namespace {

// A word of a shell that stands for itself, or for what Kubeflow says where nothing is said: that is empty here.
std::optional<std::string> said(std::string_view word, std::string_view usual) {
  if (word == usual) return "";
  const auto words = kubernetes_words("- " + std::string(word), {});
  return words.size() == 2 ? std::optional(words[1]) : std::nullopt;
}

bool is_number(std::string_view word) { return !word.empty() && word.find_first_not_of("0123456789") == std::string_view::npos; }

bool take_rendezvous(std::string_view name, std::string_view word, ElasticPolicy& policy) {
  const auto take = [](std::optional<std::string> text, std::string& field) {
    if (text) field = std::move(*text);
    return text.has_value();
  };
  if (name == "PET_RDZV_BACKEND") return take(said(word, "c10d"), policy.backend);
  if (name == "PET_RDZV_ID") return take(said(word, "\"${DTRAIN_SUBMISSION}\""), policy.id);
  if (name == "PET_MAX_RESTARTS" && is_number(word)) return take(std::string(word), policy.restarts);
  const size_t colon = word.rfind(':');
  if (name != "PET_RDZV_ENDPOINT" || colon == std::string_view::npos) return false;
  const auto host = said(word.substr(0, colon), "\"${MASTER_ADDR}\""), port = said(word.substr(colon + 1), "\"${MASTER_PORT}\"");
  if (!host || !port || (!port->empty() && !is_number(*port))) return false;
  return take(host, policy.host) && take(port, policy.port);
}

// Whether it was one of those lines.
bool take_line(std::string_view line, ElasticPolicy& policy) {
  constexpr std::string_view kExport = "export ";
  if (line == "export RANK=\"${NODE_RANK}\"") return policy.is_rank_of_node = true;
  const size_t equals = line.find('=');
  if (!line.starts_with(kExport) || equals == std::string_view::npos) return false;
  const std::string_view name = line.substr(kExport.size(), equals - kExport.size()), word = line.substr(equals + 1);
  if (name == "PET_NPROC_PER_NODE" && (word == "auto" || word == "cpu" || word == "gpu" || is_number(word))) {
    policy.processes = word;
    return true;
  }
  if (!take_rendezvous(name, word, policy)) return false;
  return policy.is_given = true;
}

}  // namespace

ElasticPolicy take_elastic_lines(Spec& spec) {
  ElasticPolicy policy;
  for (RoleSpec& one : spec.roles) {
    while (one.run.size() > 1 && take_line(one.run.front(), policy)) one.run.erase(one.run.begin());
  }
  policy.is_given = policy.is_given || spec.elastic.has_value();
  return policy;
}

void ElasticPolicy::put(const Spec& spec, bool has_master, YamlNode& job) const {
  const int count = spec.pytorch.nproc_per_node;
  const std::string one = count == PytorchOptions::kOnePerGpu ? "gpu" : std::to_string(count);
  yaml_put(job, "nprocPerNode", yaml_text(processes.empty() ? one : processes));
  if (!is_given) return;
  const int masters = has_master ? 1 : 0;
  YamlNode policy = yaml_map();
  yaml_put(policy, "minReplicas", yaml_bare(std::max(spec.least_workers(), 1) - masters));
  yaml_put(policy, "maxReplicas", yaml_bare(std::max(spec.most_workers(), 1) - masters));
  if (!restarts.empty()) yaml_put(policy, "maxRestarts", yaml_bare(restarts));
  if (!backend.empty()) yaml_put(policy, "rdzvBackend", yaml_text(backend));
  if (!host.empty()) yaml_put(policy, "rdzvHost", yaml_text(host));
  if (!port.empty()) yaml_put(policy, "rdzvPort", yaml_bare(port));
  if (!id.empty()) yaml_put(policy, "rdzvId", yaml_text(id));
  yaml_put(job, "elasticPolicy", std::move(policy));
}

void ElasticPolicy::add_variables(bool has_master, std::set<std::string, std::less<>>& names) const {
  names.insert({"PET_NNODES", "PET_NPROC_PER_NODE"});
  if (has_master) names.insert({"MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT", "PET_NODE_RANK"});
  if (is_given) names.insert({"PET_RDZV_BACKEND", "PET_RDZV_ENDPOINT", "PET_RDZV_ID"});
}

}  // namespace dtrain
