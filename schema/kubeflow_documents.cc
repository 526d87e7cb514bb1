#include "schema/kubeflow_documents.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "schema/kubeflow.h"
#include "schema/kubeflow_keys.h"
#include "schema/quote.h"
#include "schema/spec_read.h"

namespace dtrain {

namespace {

std::string text_of(const YamlNode* node) {
  return node == nullptr || node->kind != YamlNode::Kind::Scalar ? "" : node->text;
}

std::string kind_of(const YamlNode& manifest) { return text_of(manifest.find("kind")); }

// As kubectl calls it: 'TFJob/mnist'.
std::string shown(const YamlNode& manifest) {
  const std::string name = text_of(value_of(manifest.find("metadata"), "name"));
  return in_quotes(name.empty() ? kind_of(manifest) : kind_of(manifest) + "/" + name);
}

}  // namespace

std::optional<YamlNode> choose_document(std::vector<YamlNode> documents, Problems& problems, std::vector<std::string>& notes) {
  if (documents.empty()) return YamlNode();
  if (documents.size() == 1) return std::move(documents.front());
  const auto other = std::ranges::find_if_not(documents, is_manifest);
  if (other != documents.end()) {
    problems.add(std::max(other->place, documents[1].place), "", "a second document starts here; a file holds one");
    return std::nullopt;
  }
  std::vector<YamlNode*> jobs;
  std::vector<std::string> others;
  for (YamlNode& document : documents) {
    if (manifest_kind(kind_of(document))) {
      jobs.push_back(&document);
    } else {
      others.push_back(fmt::format("{} (line {})", shown(document), document.place.line));
    }
  }
  if (jobs.empty()) {
    problems.add(documents.front().place, "", fmt::format("none of {} is a {}", fmt::join(others, ", "), kJobKinds));
    return std::nullopt;
  }
  for (size_t i = 1; i < jobs.size(); ++i) {
    problems.add(jobs[i]->place, "",
                 fmt::format("{} is another job than {} of line {}, and a file is to hold one; csplit -z -f job- -b %02d.yaml FILE '/^---/' "
                             "'{{*}}' makes a file of each document",
                             shown(*jobs[i]), shown(*jobs[0]), jobs[0]->place.line));
  }
  if (jobs.size() > 1) return std::nullopt;
  if (!others.empty()) notes.push_back(fmt::format("of this file {} is what runs; without Kubernetes these do nothing: {}", shown(*jobs[0]), fmt::join(others, ", ")));
  return std::move(*jobs[0]);
}

}  // namespace dtrain
