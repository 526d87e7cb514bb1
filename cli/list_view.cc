#include "cli/list_view.h"

#include <fmt/format.h>

#include <map>
#include <vector>

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
  return fmt::format("Set ({} of {})", info.members_finished() + info.members_failed(),
                     info.members());
}

std::vector<Column> columns_of(bool named, const View& view) {
  std::vector<Column> columns = {{"ID", 6, 0, false},
                                 {"PROJECT", 14, 2, true},
                                 {"STATE", 10, 0, false},
                                 {"AGE", 11, 0, false},
                                 {"TYPE", 15, 1, false}};
  if (named) columns.push_back({"NAME", 8, 0, true});
  if (view.long_form) {
    columns.push_back({"PARAMS", 14, 0, true});
    columns.push_back({"REASON", 14, 3, true});
  }
  return columns;
}

}  // namespace

std::string parameters_text(const pb::ExperimentInfo& info) {
  const std::map<std::string, std::string> sorted(info.parameters().begin(),
                                                  info.parameters().end());
  std::string text;
  for (const auto& [name, value] : sorted) {
    text += (text.empty() ? "" : ", ") + name + "=" + value;
  }
  return text;
}

std::string render_list(const pb::ListReply& reply, const View& view) {
  bool named = false;
  for (const auto& info : reply.experiments()) named = named || !info.name().empty();
  Table table;
  table.columns = columns_of(named, view);
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
    std::vector<Cell> row = {{branch + info.id()},
                             {info.project()},
                             {state_cell(info.state()), ink_of_state(info.state())},
                             {human_age(age_ms)},
                             {branch + type_of(info)}};
    if (named) row.push_back({info.name()});
    if (view.long_form) {
      row.push_back({parameters_text(info)});
      row.push_back({info.reason()});
    }
    table.rows.push_back(std::move(row));
  }
  return render(table, view.screen);
}

std::string take_newest(pb::ListReply& reply, uint64_t last, bool of_project) {
  std::vector<int> starts;  // where each experiment begins; its members follow it
  for (int i = 0; i < reply.experiments_size(); ++i) {
    if (!set_of(reply.experiments(i))) starts.push_back(i);
  }
  if (last == 0 || starts.size() <= last) return "";
  const size_t older_here = starts.size() - last;
  reply.mutable_experiments()->DeleteSubrange(0, starts[older_here]);
  return fmt::format("Older experiments are not shown; dtrain status -n 0{} lists all\n",
                     of_project ? " --project" : "");
}

std::string render_nothing(const pb::ExperimentInfo* newest, bool of_project, const View& view) {
  if (newest == nullptr && of_project) {
    return "No experiments of this project yet. dtrain train starts one\n";
  }
  if (newest == nullptr) {
    return "No experiments yet. In the directory of your code: dtrain init, then dtrain train\n";
  }
  return fmt::format(
      "Nothing is running. The newest is {} ({}): {} {}.\n"
      "dtrain status -a{} lists what ran last, dtrain status {} shows this one.\n",
      newest->id(), newest->project(), newest->state(),
      human_ago(newest->finished_unix_ms(), view.now_unix_ms), of_project ? " --project" : "",
      newest->id());
}

}  // namespace dtrain::cli
