#include "cli/best_member.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "cli/all_members.h"
#include "cli/measure.h"
#include "schema/states.h"

namespace dtrain::cli {

namespace {

std::map<std::string, std::string> given_to(const pb::ExperimentInfo& member, const pb::ShowReply& reply) {
  std::map<std::string, std::string> given;
  for (const auto& [name, value] : member.parameters()) {
    const bool differs = std::any_of(reply.members().begin(), reply.members().end(), [&](const pb::ExperimentInfo& other) {
      const auto found = other.parameters().find(name);
      return found != other.parameters().end() && found->second != value;
    });
    if (differs) given[name] = value;
  }
  return given;
}

}  // namespace

std::optional<double> best_value(const pb::Metric& metric, bool highest_is_best) {
  const double value = metric.has_best() ? metric.best() : highest_is_best ? metric.maximum() : metric.minimum();
  return std::isfinite(value) ? std::optional(value) : std::nullopt;
}

std::optional<BestMember> best_member(const pb::ShowReply& reply, const Search& search) {
  const pb::ExperimentInfo* best = nullptr;
  double value_of_best = 0;
  for (const pb::ExperimentInfo& member : reply.members()) {
    const pb::Metric* const metric = search.metric.empty() ? nullptr : find_metric(member, search.metric);
    const auto value = metric == nullptr ? std::nullopt : best_value(*metric, search.highest_is_best);
    if (!value || (best != nullptr && (search.highest_is_best ? *value <= value_of_best : *value >= value_of_best))) continue;
    best = &member;
    value_of_best = *value;
  }
  if (best == nullptr) return std::nullopt;
  return BestMember{best->id(), best->state(), search.metric, value_of_best, given_to(*best, reply)};
}

std::optional<BestMember> ask_for_best(Connection& connection, const pb::ShowReply& shown) {
  const auto spec = parse_spec(shown.spec_yaml(), {});
  if (shown.experiment().members() == 0 || !spec.ok() || spec->search.metric.empty()) return std::nullopt;
  if (shown.members_left_out() == 0) return best_member(shown, spec->search);
  pb::ShowReply all = shown;
  if (!ask_for_all_members(connection, all).ok()) return std::nullopt;
  read_metrics(connection, all);
  return best_member(all, spec->search);
}

std::optional<BestMember> ask_for_best(Connection& connection, const std::string& id) {
  pb::ShowRequest request;
  request.set_id(id);
  auto shown = connection.show(request);
  if (!shown.ok()) return std::nullopt;
  read_metrics(connection, *shown);
  return ask_for_best(connection, *shown);
}

std::string best_text(const BestMember& best) {
  std::string given;
  for (const auto& [name, value] : best.given) given += fmt::format("{}{}={}", given.empty() ? "" : ", ", name, value);
  const bool ended_badly = best.state == to_string(State::Failed) || best.state == to_string(State::Killed);
  return fmt::format("{}{}: {}={}{}", best.id, ended_badly ? fmt::format(" ({})", best.state) : "", best.metric, number_text(best.value),
                     given.empty() ? "" : fmt::format(" ({})", given));
}

}  // namespace dtrain::cli
