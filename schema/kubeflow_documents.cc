#include "schema/kubeflow_documents.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "schema/kubeflow.h"
#include "schema/kubeflow_config_maps.h"
#include "schema/kubeflow_keys.h"
#include "schema/kubeflow_train_job.h"
#include "schema/quote.h"
#include "schema/spec_read.h"

namespace dtrain {

namespace {

std::string kind_of(const YamlNode& manifest) { return scalar_text(manifest.find("kind")); }
std::string name_of(const YamlNode& manifest) { return scalar_text(value_of(manifest.find("metadata"), "name")); }

// As kubectl calls it: 'TFJob/mnist'.
std::string shown(const YamlNode& manifest) {
  const std::string name = name_of(manifest);
  return in_quotes(name.empty() ? kind_of(manifest) : kind_of(manifest) + "/" + name);
}

// What `kubectl get` writes of several is a List of them.
std::vector<YamlNode> without_lists(std::vector<YamlNode> documents) {
  std::vector<YamlNode> out;
  for (YamlNode& document : documents) {
    YamlNode* const items = is_manifest(document) && kind_of(document) == "List" ? document.find("items") : nullptr;
    if (items == nullptr || items->items.empty()) {
      out.push_back(std::move(document));
    } else {
      std::ranges::move(items->items, std::back_inserter(out));
    }
  }
  return out;
}

// Nothing with a problem.
std::optional<YamlNode> in_version_one(YamlNode document, Problems& problems, std::vector<std::string>& notes) {
  if (is_manifest(document) && is_train_job(document)) rewrite_train_job(document, problems, notes);
  return problems.empty() ? std::optional(std::move(document)) : std::nullopt;
}

}  // namespace

std::optional<YamlNode> choose_document(std::vector<YamlNode> documents, Problems& problems, std::vector<std::string>& notes,
                                        std::map<std::string, std::string>& secrets) {
  documents = without_lists(std::move(documents));
  if (documents.empty()) return YamlNode();
  if (documents.size() == 1) return in_version_one(std::move(documents.front()), problems, notes);
  const auto no_manifest = std::ranges::find_if_not(documents, is_manifest);
  if (no_manifest != documents.end()) {
    problems.add(std::max(no_manifest->place, documents[1].place), "", "a second document starts here; a file holds one");
    return std::nullopt;
  }
  std::vector<YamlNode> jobs, others, config_maps, of_secrets;
  for (YamlNode& document : documents) {
    const std::string kind = kind_of(document);
    (manifest_kind(kind) || is_train_job(document) ? jobs : kind == "ConfigMap" ? config_maps : kind == "Secret" ? of_secrets : others).push_back(std::move(document));
  }
  for (size_t i = 1; i < jobs.size(); ++i) {
    problems.add(jobs[i].place, "",
                 fmt::format("{} is another job than {} of line {}, and a file is to hold one; csplit -z -f job- -b %02d.yaml FILE '/^---/' "
                             "'{{*}}' makes a file of each document",
                             shown(jobs[i]), shown(jobs[0]), jobs[0].place.line));
  }
  if (jobs.size() > 1) return std::nullopt;
  const std::string job = jobs.empty() ? "" : shown(jobs[0]);
  if (!jobs.empty()) {
    auto rewritten = in_version_one(std::move(jobs[0]), problems, notes);
    if (!rewritten) return std::nullopt;
    jobs[0] = std::move(*rewritten);
  }
  TakenOfFile taken = jobs.empty() ? TakenOfFile() : put_config_maps(config_maps, of_secrets, jobs[0], problems);
  secrets = std::move(taken.values);
  std::erase_if(config_maps, [&](const YamlNode& other) { return taken.config_maps.contains(name_of(other)); });
  std::erase_if(of_secrets, [&](const YamlNode& other) { return taken.secrets.contains(name_of(other)); });
  std::ranges::move(config_maps, std::back_inserter(others));
  std::ranges::move(of_secrets, std::back_inserter(others));
  std::ranges::sort(others, {}, [](const YamlNode& other) { return other.place.line; });
  std::vector<std::string> words;
  for (const YamlNode& other : others) words.push_back(fmt::format("{} (line {})", shown(other), other.place.line));
  if (jobs.empty()) {
    std::string advice;
    for (const YamlNode& other : others) advice = std::max(advice, advice_about(kind_of(other)));
    problems.add(others.front().place, "", fmt::format("none of {} is a {}{}", fmt::join(words, ", "), kJobKinds, advice));
    return std::nullopt;
  }
  if (!words.empty()) notes.push_back(fmt::format("of this file {} is what runs; without Kubernetes these do nothing: {}", job, fmt::join(words, ", ")));
  return std::move(jobs[0]);
}

}  // namespace dtrain
