#include "cli/idle_keys.h"

#include <fmt/format.h>

namespace dtrain::cli {
namespace {

bool has_workers_beside_decider(const Spec& spec) {
  const RoleSpec* workers = spec.role(Role::Worker);
  return workers != nullptr && workers->count > (spec.decider().role == Role::Worker ? 1 : 0);
}

}  // namespace

std::vector<std::string> idle_keys_warnings(const Spec& spec) {
  std::vector<std::string> all;
  // riseml.yml has 1 unless it says something else, which is what there is.
  if (spec.concurrency > 1 && !spec.is_set()) {
    all.push_back(fmt::format("concurrency {} changes nothing: it is about members of a set, and this is one experiment",
                              spec.concurrency));
  }
  const bool has_rules = spec.search.stop_early || spec.search.max_failed != Search::kNoLimit;
  if (has_rules && !spec.is_set()) {
    all.push_back(fmt::format("search.{} changes nothing: it is about members of a set, and this is one experiment",
                              spec.search.stop_early ? "stop-early" : "max-failed"));
  }
  // A gang of one is what a manifest or `-p worker=1` makes of those that are more.
  if (spec.completion == Completion::AllWorkers && !has_workers_beside_decider(spec) && spec.decider().role != Role::Master) {
    all.push_back("completion all-workers changes nothing: there are no other workers");
  }
  return all;
}

std::string idle_rebuild_warning(const Spec& spec) {
  return spec.has_build() ? "" : "--rebuild changes nothing: no environment is made for it (`version`, `install`, `image`)";
}

}  // namespace dtrain::cli
