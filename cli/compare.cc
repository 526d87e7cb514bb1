// compare: members of a set, or several experiments, side by side.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <set>

#include "cli/all_members.h"
#include "cli/commands.h"
#include "cli/compare_view.h"
#include "cli/connection.h"
#include "cli/json_output.h"
#include "cli/looked_at.h"
#include "cli/measure.h"
#include "schema/ids.h"
#include "schema/variation.h"

namespace dtrain::cli {

namespace {

struct CompareOptions {
  std::vector<std::string> ids;
  std::string sort;
  bool reverse = false;
  std::string value;
  std::string rate;
  bool csv = false;
};

// `searches`: of each of them, where it can be read.
Status add_entries(Connection& connection, const std::string& id, std::set<std::string>& known,
                   std::vector<Entry>& entries, std::vector<Search>& searches) {
  TRY(pb::ShowReply reply, look_up(connection, id));
  TRY(ask_for_all_members(connection, reply));
  read_metrics(connection, reply);
  const auto spec = parse_spec(reply.spec_yaml(), {});
  searches.push_back(spec.ok() ? spec->search : Search());
  // Members are made of the same but for lists where one value belongs.
  std::map<uint64_t, std::shared_ptr<const Settings>> made_of;
  const auto add = [&](pb::ExperimentInfo&& info) {
    if (!known.insert(info.id()).second) return;  // 4 and 4.2 were asked for
    Entry entry;
    const auto parsed = parse_experiment_id(info.id());
    if (spec.ok() && parsed.ok()) {
      entry.workers = worker_count(*spec, parsed->member);
      auto& made = made_of[spec->source.empty() ? 0 : variation_of(*spec, parsed->member)];
      if (!made) made = settings_of(*spec, parsed->member);
      entry.made_of = made;
    }
    entry.info = std::move(info);
    entries.push_back(std::move(entry));
  };
  if (reply.experiment().members() == 0) add(std::move(*reply.mutable_experiment()));
  for (pb::ExperimentInfo& member : *reply.mutable_members()) add(std::move(member));
  return ok();
}

// By what they are compared, where all say the same.
Objective objective_of(const std::vector<Search>& searches) {
  const Objective first{searches.front().metric, searches.front().highest_is_best};
  const bool agree = std::ranges::all_of(searches, [&](const Search& each) {
    return each.metric == first.metric && each.highest_is_best == first.highest_is_best;
  });
  return agree ? first : Objective();
}

Result<int> compare_them(const CompareOptions& options, const CommandContext& context) {
  if (options.csv && context.json) {
    return Error{Code::InvalidArgument, "--csv and --json are two forms of the same", "give one"};
  }
  std::vector<std::string> ids;
  for (const std::string& typed : options.ids) {
    TRY(const IdPattern pattern, parse_id_pattern(typed));
    if (pattern.names_replicas()) {
      return Error{Code::InvalidArgument, fmt::format("{} is a replica of one experiment", typed),
                   "compare takes experiments (4), sets and members (4.2)"};
    }
    ids.push_back(to_string(pattern.experiment));
  }
  if (ids.empty()) ids.emplace_back();  // the newest

  TRY(Connection connection, connect(Autostart::IfNeeded, context));
  std::vector<Entry> entries;
  std::set<std::string> known;
  std::vector<Search> searches;
  for (const std::string& id : ids) TRY(add_entries(connection, id, known, entries, searches));

  const View view = view_of_stdout();
  CompareWishes wishes{options.rate, MetricValue::Last, {}};
  if (options.value.empty()) wishes.objective = objective_of(searches);
  if (options.value == "min") wishes.value = MetricValue::Minimum;
  if (options.value == "max") wishes.value = MetricValue::Maximum;
  TRY(Comparison comparison, compare(std::move(entries), wishes, view.now_unix_ms));
  std::string sorted_by;
  if (!options.sort.empty()) {
    TRY(sorted_by, sort_entries(comparison, options.sort, options.reverse));
  } else if (has_column(comparison, wishes.objective.metric)) {
    TRY(sorted_by, sort_entries(comparison, wishes.objective.metric, options.reverse != wishes.objective.highest_is_best));
  } else if (options.reverse) {
    std::reverse(comparison.entries.begin(), comparison.entries.end());
  }
  if (context.json) {
    fmt::print("{}", compare_json(comparison));
  } else if (options.csv) {
    fmt::print("{}", comparison_csv(comparison));
  } else {
    fmt::print("{}", render_comparison(comparison, sorted_by, view));
  }
  return 0;
}

}  // namespace

Run declare_compare(Options& options, CommandContext& context) {
  auto typed = std::make_shared<CompareOptions>();
  options.ids(typed->ids,
      "experiments (4), sets or members (4.2); left out: the newest of this project");
  options.text("--sort", typed->sort, "by a column: a parameter, a metric, id, state, duration; left out: by the search's metric",
               "COLUMN");
  options.flag("-r,--reverse", typed->reverse, "the other way round; so does --sort -COLUMN");
  options.choice("--value", typed->value, {"last", "min", "max"},
                 "which value of each metric counts; left out: last, of the search's metric its best");
  options.text("--rate", typed->rate,
               "the metric that SPEEDUP and EFFICIENCY are of; left out: samples/s or the like",
               "NAME");
  options.flag("--csv", typed->csv, "for a program: every number in full");
  options.json(context);
  options.footer(
      "dtrain compare 4 --sort -accuracy   the best member first\n"
      "dtrain compare 3 4 5                how samples/s grew with the workers\n");
  return [typed, &context] { return compare_them(*typed, context); };
}

}  // namespace dtrain::cli
