#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>

#include "cli/all_members.h"
#include "cli/best_member.h"
#include "cli/commands.h"
#include "cli/comparison.h"
#include "cli/connection.h"
#include "cli/experiment_view.h"
#include "cli/json_output.h"
#include "cli/kubeflow_view.h"
#include "cli/list_filter.h"
#include "cli/list_view.h"
#include "cli/measure.h"
#include "cli/why.h"
#include "schema/ids.h"

namespace dtrain::cli {

namespace {

constexpr uint64_t kNotGiven = UINT64_MAX;
constexpr uint64_t kLastOfAll = 10;

struct StatusOptions {
  std::string id;
  bool all = false;
  bool long_form = false;
  bool project = false;
  bool kubeflow = false;
  bool users = false;
  std::string sort;
  bool reverse = false;
  uint64_t last = kNotGiven;
  std::optional<std::string> user, states;
};

Result<ListFilter> filter_of(const StatusOptions& options) {
  ListFilter filter;
  if (options.states) {
    TRY(filter.states, parse_states(*options.states));
  }
  if (!options.user) return filter;
  if (options.user->empty()) return Error{Code::InvalidArgument, "--user: got an empty text, expected the name of an account", "left out: whoever"};
  filter.user = *options.user;
  return filter;
}

Result<int> status_of_all(const StatusOptions& options, const CommandContext& context,
                          const View& view) {
  TRY(const ListFilter filter, filter_of(options));
  TRY(Connection connection, connect(Autostart::IfNeeded, context));
  pb::ListRequest request;
  // Who asks for the newest three wants the newest three, ended or not.
  const bool all = options.all || options.last != kNotGiven || filter.names_ends();
  const uint64_t last = options.last == kNotGiven ? kLastOfAll : options.last;
  request.set_all(all);
  // One more than is shown, to know whether there are others.
  const bool some = all && last > 0;
  if (some && filter.is_any()) request.set_last(static_cast<uint32_t>(last + 1));
  if (options.project) request.set_project_dir(project_dir());
  request.set_members(options.long_form);
  TRY(pb::ListReply reply, connection.list(request));
  keep_matching(filter, reply);
  const std::string older = some ? take_newest(reply, last, filter.text() + (options.project ? " --project" : "")) : "";
  if (context.json) {
    fmt::print("{}", to_json(reply, !older.empty()));
    return 0;
  }
  if (!reply.experiments().empty()) {
    fmt::print("{}{}{}{}", options.kubeflow ? render_kubeflow(reply, view) : render_list(reply, view), waits(reply),
               members_left_out(reply), older);
    return 0;
  }
  if (!filter.is_any()) {
    fmt::print("{}", render_none_matching(filter, all, options.project));
    return 0;
  }
  pb::ListRequest newest;
  newest.set_all(true);
  newest.set_last(1);
  if (options.project) newest.set_project_dir(project_dir());
  TRY(const pb::ListReply ended, connection.list(newest));
  const bool any = !ended.experiments().empty();
  fmt::print("{}", render_nothing(any ? &ended.experiments(0) : nullptr, options.project, view));
  return 0;
}

// The members of a set by one of their columns.
Status sort_members(const StatusOptions& options, const View& view, pb::ShowReply& reply) {
  std::vector<Entry> entries;
  for (pb::ExperimentInfo& member : *reply.mutable_members()) {
    entries.push_back({.info = std::move(member)});
  }
  TRY(Comparison comparison, compare(std::move(entries), {}, view.now_unix_ms));
  reply.clear_members();
  if (!options.sort.empty()) TRY(sort_entries(comparison, options.sort, options.reverse));
  if (options.sort.empty()) std::reverse(comparison.entries.begin(), comparison.entries.end());
  for (Entry& entry : comparison.entries) *reply.add_members() = std::move(entry.info);
  return ok();
}

Result<int> status_of_one(const StatusOptions& options, const IdPattern& pattern,
                          const CommandContext& context, const View& view) {
  TRY(Connection connection, connect(Autostart::IfNeeded, context));
  pb::ShowRequest request;
  request.set_id(to_string(pattern.experiment));
  TRY(pb::ShowReply reply, connection.show(request));
  const bool sorted = !options.sort.empty() || options.reverse;
  if (sorted && reply.experiment().members() == 0) {
    return Error{Code::InvalidArgument,
                 fmt::format("{} is no set: there are no members to sort", options.id),
                 "dtrain compare sorts several experiments"};
  }
  if (options.kubeflow && !context.json) {
    pb::ListReply only;
    *only.add_experiments() = reply.experiment();
    const std::string replicas = render_kubeflow_replicas(reply, pattern, view);
    fmt::print("{}{}{}", render_kubeflow(only, view), replicas.empty() ? "" : "\n", replicas);
    return 0;
  }
  Why why;
  const bool shows_all = context.json || !pattern.names_replicas();
  if (sorted) TRY(ask_for_all_members(connection, reply));   // what is left out could be the first
  if (shows_all) {
    read_metrics(connection, reply);
    why = find_why(reply);
    add_log_lines(why, connection, context);
  }
  const auto best = shows_all ? ask_for_best(connection, reply) : std::nullopt;
  if (sorted) TRY(sort_members(options, view, reply));
  if (!pattern.names_replicas()) {
    fmt::print("{}", context.json ? to_json(reply, why, best) : render_experiment(reply, view, why, best));
    return 0;
  }
  TRY(const std::string text, render_replicas(reply, pattern, view));
  if (!context.json) {
    fmt::print("{}", text);
    return 0;
  }
  // The same object as for the experiment, with only the replicas that were asked for.
  auto* replicas = reply.mutable_replicas();
  for (int i = replicas->size() - 1; i >= 0; --i) {
    const auto id = parse_replica_id(replicas->Get(i).id());
    if (!id.ok() || !pattern.matches(id.value())) replicas->DeleteSubrange(i, 1);
  }
  fmt::print("{}", to_json(reply, why, best));
  return 0;
}

Result<int> status(const StatusOptions& options, const CommandContext& context) {
  if (options.last >= UINT32_MAX && options.last != kNotGiven) {
    return Error{Code::InvalidArgument, fmt::format("-n {} is too many", options.last),
                 "-n 0 lists all"};
  }
  if (options.id.empty() && (!options.sort.empty() || options.reverse)) {
    return Error{Code::InvalidArgument, "--sort is for the members of a set",
                 "dtrain status SET --sort COLUMN, or dtrain compare"};
  }
  const bool names_project = options.project && !parse_id_pattern(options.id).ok();
  const char* const of_lists = options.user ? "--user" : options.states ? "--state" : options.project ? "--project" : nullptr;
  if (!options.id.empty() && of_lists != nullptr) {
    return Error{Code::InvalidArgument, fmt::format("{} is for the list of experiments", of_lists),
                 names_project ? "--project takes no name: it is the project that you stand in"
                               : fmt::format("dtrain status {} shows that one, whatever it is", options.id)};
  }
  View view = view_of_stdout(options.long_form);
  view.users = options.users;
  if (options.id.empty()) return status_of_all(options, context, view);
  TRY(const IdPattern pattern, parse_id_pattern(options.id));
  return status_of_one(options, pattern, context, view);
}

}  // namespace

Run declare_status(Options& options, CommandContext& context) {
  auto typed = std::make_shared<StatusOptions>();
  options.id(typed->id,
                     "an experiment (4), member (4.2), role (4.worker) or replica (4.worker.1)");
  options.flag("-a,--all", typed->all, "ended ones too");
  options.number("-n,--num-last", typed->last, "the newest N, ended ones too (-a alone: 10; 0: all)");
  options.flag("-l,--long", typed->long_form,
               "parameters, reasons and members; of one: everything");
  options.text("--sort", typed->sort,
               "members of a set by a parameter, a metric, id, state or duration", "COLUMN");
  options.flag("-r,--reverse", typed->reverse, "the other way round; so does --sort -COLUMN");
  options.flag("--kubeflow", typed->kubeflow, "as kubectl shows jobs, or a job and its pods, in Kubeflow's words");
  options.flag("--project", typed->project, "only experiments of this project");
  options.flag("-u,--users", typed->users, "whose each is, also where all are of one");
  options.text("--user", typed->user, "only those of that user", "NAME");
  options.text("--state", typed->states, "only those in such a state: RUNNING,PENDING; with an end, as with -a", "STATE,...");
  options.offer("--state", state_words());
  options.json(context);
  return [typed, &context] { return status(*typed, context); };
}

}  // namespace dtrain::cli
