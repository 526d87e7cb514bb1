#include "cli/list_view.h"
#include "cli/remote.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "cli/ending.h"
#include "cli/table.h"
#include "cli/words.h"
#include "schema/ids.h"

namespace dtrain::cli {

namespace {

// The set a member belongs to, or nothing for an experiment of its own.
std::optional<ExperimentId> set_of(const pb::ExperimentInfo& info) {
  const auto id = parse_experiment_id(info.id());
  if (!id.ok() || id.value().member == 0) return std::nullopt;
  return id.value().set();
}

std::string type_of(const pb::ExperimentInfo& info) {
  if (info.members() == 0) return "Experiment";
  return fmt::format("Set ({} of {}{})", info.members_finished() + info.members_failed(), info.members(), bad_ends(info));
}

using Parameters = std::map<std::string, std::string>;

std::string text_of(const Parameters& parameters) {
  std::string text;
  for (const auto& [name, value] : parameters) {
    text += (text.empty() ? "" : ", ") + name + "=" + value;
  }
  return text;
}

// What stands under PARAMS in each line: of the members of a set what tells them apart.
std::vector<std::string> parameter_cells(const pb::ListReply& reply) {
  std::vector<std::string> cells;
  const int count = reply.experiments_size();
  for (int first = 0; first < count;) {
    const auto set = set_of(reply.experiments(first));
    std::vector<const pb::ExperimentInfo*> alike;
    do {
      alike.push_back(&reply.experiments(first++));
    } while (set && first < count && set_of(reply.experiments(first)) == set);
    for (std::string& text : differing_texts(alike)) cells.push_back(std::move(text));
  }
  return cells;
}

std::vector<Column> columns_of(bool named, bool members, bool users, const View& view) {
  std::vector<Column> columns = {{"ID", 6, 0, false},
                                 {"PROJECT", 14, 2, true},
                                 {"STATE", 10, 0, false},
                                 {"AGE", 11, 4, false},
                                 {"TYPE", 15, 1, false}};
  if (users) columns.push_back({"USER", 8, 0, true});
  if (named) columns.push_back({"NAME", 8, 0, true});
  if (view.long_form) {
    // Cut to a few letters, members would all look the same.
    columns.push_back({"PARAMS", 14, 0, true, members});
    columns.push_back({"REASON", 14, 3, true});
  }
  return columns;
}

}  // namespace

std::string parameters_text(const pb::ExperimentInfo& info) {
  return text_of({info.parameters().begin(), info.parameters().end()});
}

std::vector<std::string> differing_texts(const std::vector<const pb::ExperimentInfo*>& infos) {
  const auto is_of_all = [&](const auto& parameter) {
    return std::all_of(infos.begin(), infos.end(), [&](const pb::ExperimentInfo* info) {
      const auto found = info->parameters().find(parameter.first);
      return found != info->parameters().end() && found->second == parameter.second;
    });
  };
  std::set<std::string> alike;
  for (const auto& parameter : infos.front()->parameters()) {
    if (is_of_all(parameter)) alike.insert(parameter.first);
  }
  std::vector<std::string> texts;
  bool any_differs = false;
  for (const pb::ExperimentInfo* info : infos) {
    Parameters own(info->parameters().begin(), info->parameters().end());
    std::erase_if(own, [&](const auto& parameter) { return alike.contains(parameter.first); });
    any_differs = any_differs || !own.empty();
    texts.push_back(text_of(own));
  }
  for (size_t i = 0; i < infos.size() && !any_differs; ++i) texts[i] = parameters_text(*infos[i]);
  return texts;
}

std::string render_list(const pb::ListReply& reply, const View& view) {
  bool named = false;
  bool members = false;
  std::set<std::string_view> users;
  for (const auto& info : reply.experiments()) {
    named = named || !info.name().empty();
    members = members || set_of(info);
    if (!info.user().empty()) users.insert(info.user());
  }
  const bool show_users = users.size() > 1 || view.users;
  Table table;
  table.columns = columns_of(named, members, show_users, view);
  const std::vector<std::string> parameters = parameter_cells(reply);
  const int count = reply.experiments_size();
  for (int i = 0; i < count; ++i) {
    const pb::ExperimentInfo& info = reply.experiments(i);
    std::string branch;
    if (const auto set = set_of(info)) {
      const bool last = i + 1 == count || set_of(reply.experiments(i + 1)) != set;
      branch = last ? "╰─ " : "├─ ";
    }
    const uint64_t age_ms = view.now_unix_ms > info.submitted_unix_ms()
                                ? view.now_unix_ms - info.submitted_unix_ms()
                                : 0;
    const bool unreadable = info.submitted_unix_ms() == 0;
    std::vector<Cell> row = {{branch + info.id()},
                             {info.project()},
                             {state_cell(info.state()), ink_of_state(info.state())},
                             {unreadable ? "" : human_age(age_ms)},
                             {branch + type_of(info)}};
    if (show_users) row.push_back({info.user()});
    if (named) row.push_back({info.name()});
    if (view.long_form) {
      row.push_back({parameters[static_cast<size_t>(i)]});
      row.push_back({info.reason()});
    }
    table.rows.push_back(std::move(row));
  }
  return render(table, view.screen);
}

std::string take_newest(pb::ListReply& reply, uint64_t last, const std::string& options) {
  std::vector<int> starts;  // where each experiment begins; its members follow it
  for (int i = 0; i < reply.experiments_size(); ++i) {
    if (!set_of(reply.experiments(i))) starts.push_back(i);
  }
  if (last == 0 || starts.size() <= last) return "";
  const size_t older_here = starts.size() - last;
  reply.mutable_experiments()->DeleteSubrange(0, starts[older_here]);
  return fmt::format("Older experiments are not shown; {} status -n 0{} lists all\n", called(), options);
}

std::string members_left_out(const pb::ListReply& reply) {
  std::string text;
  for (int set = 0; set < reply.experiments_size(); ++set) {
    const pb::ExperimentInfo& info = reply.experiments(set);
    const auto id = parse_experiment_id(info.id());
    uint32_t listed = 0;
    for (int i = set + 1; id.ok() && i < reply.experiments_size() && set_of(reply.experiments(i)) == *id; ++i) ++listed;
    if (listed == 0 || listed >= info.members()) continue;
    text += fmt::format("{} of the {} members of {} are not shown; {} status {} --sort id lists all\n", info.members() - listed, info.members(),
                        info.id(), called(), info.id());
  }
  return text;
}

std::string waits(const pb::ListReply& reply) {
  std::string text;
  for (const auto& info : reply.experiments()) {
    if (!set_of(info) && !info.waits_for().empty()) text += fmt::format("{}: {}\n", info.id(), info.waits_for());
  }
  return text;
}

std::string render_nothing(const pb::ExperimentInfo* newest, bool of_project, const View& view) {
  if (newest == nullptr && of_project) {
    return as_called("No experiments of this project yet. dtrain train starts one\n");
  }
  if (newest == nullptr) {
    return as_called("No experiments yet. In the directory of your code: dtrain init, then dtrain train\n");
  }
  return fmt::format(
      "Nothing is running. The newest is {} ({}): {} {}.\n"
      "{} status -a{} lists what ran last, {} status {} shows this one.\n",
      newest->id(), newest->project(), newest->state(),
      human_ago(newest->finished_unix_ms(), view.now_unix_ms), called(), of_project ? " --project" : "",
      called(), newest->id());
}

}  // namespace dtrain::cli
