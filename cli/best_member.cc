#include "cli/best_member.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "cli/all_members.h"
#include "cli/measure.h"

namespace dtrain::cli {

namespace {

std::string given_to(const pb::ExperimentInfo& member, const pb::ShowReply& reply) {
  const std::map<std::string, std::string> parameters(member.parameters().begin(), member.parameters().end());
  std::string text;
  for (const auto& [name, value] : parameters) {
    const bool differs = std::any_of(reply.members().begin(), reply.members().end(), [&](const pb::ExperimentInfo& other) {
      const auto found = other.parameters().find(name);
      return found != other.parameters().end() && found->second != value;
    });
    if (differs) text += fmt::format("{}{}={}", text.empty() ? "" : ", ", name, value);
  }
  return text;
}

}  // namespace

std::optional<BestMember> best_member(const pb::ShowReply& reply, const Search& search) {
  const pb::ExperimentInfo* best = nullptr;
  double best_value = 0;
  for (const pb::ExperimentInfo& member : reply.members()) {
    const pb::Metric* const metric = search.metric.empty() ? nullptr : find_metric(member, search.metric);
    if (metric == nullptr) continue;
    const double value = search.highest_is_best ? metric->maximum() : metric->minimum();
    if (std::isnan(value)) continue;
    if (best != nullptr && (search.highest_is_best ? value <= best_value : value >= best_value)) continue;
    best = &member;
    best_value = value;
  }
  if (best == nullptr) return std::nullopt;
  return BestMember{best->id(), search.metric, best_value, given_to(*best, reply)};
}

std::optional<BestMember> ask_for_best(Connection& connection, const std::string& id) {
  pb::ShowRequest request;
  request.set_id(id);
  auto shown = connection.show(request);
  if (!shown.ok() || shown->experiment().members() == 0) return std::nullopt;
  const auto spec = parse_spec(shown->spec_yaml(), {});
  if (!spec.ok() || spec->search.metric.empty() || !ask_for_all_members(connection, *shown).ok()) return std::nullopt;
  read_metrics(*shown);
  return best_member(*shown, spec->search);
}

std::string best_text(const BestMember& best) {
  const std::string given = best.given.empty() ? "" : fmt::format(" ({})", best.given);
  return fmt::format("{}: {}={}{}", best.id, best.metric, number_text(best.value), given);
}

}  // namespace dtrain::cli
