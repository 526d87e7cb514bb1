#include "schema/kubeflow_elastic.h"

#include <algorithm>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

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

// "a=1,b=2" apart; what has no "=" is none of them.
std::vector<std::pair<std::string, std::string>> pairs_of(std::string_view text) {
  std::vector<std::pair<std::string, std::string>> pairs;
  while (!text.empty()) {
    const std::string_view one = text.substr(0, text.find(','));
    const size_t equals = one.find('=');
    if (equals == one.npos || equals == 0) return {};
    pairs.emplace_back(one.substr(0, equals), one.substr(equals + 1));
    if (one.size() + 1 == text.size()) return {};   // it ends with a comma
    text.remove_prefix(std::min(one.size() + 1, text.size()));
  }
  return pairs;
}

// What follows `export NAME=`; nothing: it is another line.
std::optional<std::string_view> exported(std::string_view line, std::string_view name) {
  constexpr std::string_view kExport = "export ";
  if (!line.starts_with(kExport) || !line.substr(kExport.size()).starts_with(name)) return std::nullopt;
  line.remove_prefix(kExport.size() + name.size());
  return line.starts_with('=') ? std::optional(line.substr(1)) : std::nullopt;
}

// The lines that kubeflow.h puts before a role's own, in their order.
class LineReader {
 public:
  LineReader(const std::vector<std::string>& lines, int processes) : lines_(&lines) {
    if (processes > 1 && !lines.empty() && lines.front() == "export RANK=\"${NODE_RANK}\"") {
      out_.is_rank_of_node = true;
      ++at_;
    }
    const auto word = next("PET_NPROC_PER_NODE");
    if (processes == 1 && (word == "auto" || word == "cpu" || word == "gpu")) {
      out_.processes = *word;
      ++at_;
    }
    ElasticPolicy with = out_;
    const size_t begin = at_;
    if (take_rendezvous(with)) {
      out_ = std::move(with);
    } else {
      at_ = begin;
    }
  }
  const ElasticPolicy& policy() const { return out_; }
  size_t lines() const { return at_; }
  // A role without GPUs need not be told.
  void imply_auto() { out_.processes = "auto"; }

 private:
  std::optional<std::string_view> next(std::string_view name) const { return at_ < lines_->size() ? exported((*lines_)[at_], name) : std::nullopt; }
  bool take(std::string_view name, std::string_view usual, std::string& field) {
    const auto word = next(name);
    auto text = word ? said(*word, usual) : std::nullopt;
    if (!text) return false;
    field = std::move(*text);
    ++at_;
    return true;
  }
  bool take_endpoint(ElasticPolicy& policy) {
    const auto word = next("PET_RDZV_ENDPOINT");
    const size_t colon = word ? word->rfind(':') : std::string_view::npos;
    if (colon == std::string_view::npos) return false;
    const auto host = said(word->substr(0, colon), "\"${MASTER_ADDR}\""), port = said(word->substr(colon + 1), "\"${MASTER_PORT}\"");
    if (!host || !port || (!port->empty() && !is_number(*port))) return false;
    policy.host = *host;
    policy.port = *port;
    ++at_;
    return true;
  }
  // All of them, or they are somebody else's.
  bool take_rendezvous(ElasticPolicy& policy) {
    const bool has_all = take("PET_RDZV_BACKEND", "c10d", policy.backend) && take_endpoint(policy) &&
                         take("PET_RDZV_ID", "\"${DTRAIN_SUBMISSION}\"", policy.id);
    if (!has_all) return false;
    if (const auto word = next("PET_RDZV_CONF")) {
      const auto text = said(*word, "");
      if (text && !pairs_of(*text).empty()) {
        policy.conf = *text;
        ++at_;
      }
    }
    if (const auto word = next("PET_MAX_RESTARTS"); word && is_number(*word)) {
      policy.restarts = *word;
      ++at_;
    }
    if (next("PET_STANDALONE") == "1") {
      policy.is_standalone = true;
      ++at_;
    }
    return policy.is_given = true;
  }

  const std::vector<std::string>* lines_;
  size_t at_ = 0;
  ElasticPolicy out_;
};

}  // namespace

// They are said once for the job: where roles differ, all stay lines of theirs.
ElasticPolicy take_elastic_lines(Spec& spec) {
  std::vector<RoleSpec*> roles;
  std::vector<LineReader> read;
  for (RoleSpec& one : spec.roles) {
    if (one.role == Role::Tensorboard) continue;
    roles.push_back(&one);
    read.emplace_back(one.run, spec.pytorch.nproc_per_node);
  }
  const bool is_auto = std::ranges::any_of(read, [](const LineReader& one) { return one.policy().processes == "auto"; });
  bool are_alike = true;
  for (size_t i = 0; i < roles.size(); ++i) {
    if (is_auto && roles[i]->resources.gpus == 0) read[i].imply_auto();
    are_alike = are_alike && read[i].policy() == read[0].policy() && read[i].lines() < roles[i]->run.size();
  }
  ElasticPolicy policy;
  if (are_alike && !roles.empty()) policy = read[0].policy();
  for (size_t i = 0; are_alike && i < roles.size(); ++i) {
    roles[i]->run.erase(roles[i]->run.begin(), roles[i]->run.begin() + static_cast<std::ptrdiff_t>(read[i].lines()));
  }
  policy.is_given = policy.is_given || spec.elastic.has_value();
  return policy;
}

// Of the workers beside a master there is at least one.
int ElasticPolicy::least_replicas(const Spec& spec, bool has_master) { return std::max(spec.least_workers() - (has_master ? 1 : 0), 1); }

void ElasticPolicy::put(const Spec& spec, bool has_master, YamlNode& job) const {
  const int count = spec.pytorch.nproc_per_node;
  const std::string one = count == PytorchOptions::kOnePerGpu ? "gpu" : std::to_string(count);
  yaml_put(job, "nprocPerNode", yaml_text(processes.empty() ? one : processes));
  if (!is_given) return;
  YamlNode policy = yaml_map();
  yaml_put(policy, "minReplicas", yaml_bare(least_replicas(spec, has_master)));
  yaml_put(policy, "maxReplicas", yaml_bare(std::max(spec.most_workers() - (has_master ? 1 : 0), 1)));
  if (!restarts.empty()) yaml_put(policy, "maxRestarts", yaml_bare(restarts));
  if (!backend.empty()) yaml_put(policy, "rdzvBackend", yaml_text(backend));
  if (!host.empty()) yaml_put(policy, "rdzvHost", yaml_text(host));
  if (!port.empty()) yaml_put(policy, "rdzvPort", yaml_bare(port));
  if (!id.empty()) yaml_put(policy, "rdzvId", yaml_text(id));
  if (!conf.empty()) {
    YamlNode list = yaml_list();
    for (const auto& [key, value] : pairs_of(conf)) {
      YamlNode pair = yaml_map();
      yaml_put(pair, "key", yaml_text(key));
      yaml_put(pair, "value", yaml_text(value));
      list.items.push_back(std::move(pair));
    }
    yaml_put(policy, "rdzvConf", std::move(list));
  }
  if (is_standalone) yaml_put(policy, "standalone", yaml_bare("true"));
  yaml_put(job, "elasticPolicy", std::move(policy));
}

void ElasticPolicy::add_variables(bool has_master, std::set<std::string, std::less<>>& names) const {
  names.insert({"PET_NNODES", "PET_NPROC_PER_NODE"});
  if (has_master) names.insert({"MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK", "PET_MASTER_ADDR", "PET_MASTER_PORT", "PET_NODE_RANK"});
  if (is_given) names.insert({"PET_RDZV_BACKEND", "PET_RDZV_ENDPOINT", "PET_RDZV_ID"});
  if (!conf.empty()) names.insert("PET_RDZV_CONF");
}

}  // namespace dtrain
