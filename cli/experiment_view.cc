#include "cli/experiment_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "cli/active_python.h"
#include "cli/ending.h"
#include "cli/fields.h"
#include "cli/host_names.h"
#include "cli/list_view.h"
#include "cli/measure.h"
#include "cli/remote.h"
#include "cli/roles_text.h"
#include "cli/table.h"
#include "cli/words.h"
#include "schema/engine_read.h"
#include "schema/expand.h"
#include "schema/spec.h"
#include "schema/states.h"

namespace dtrain::cli {

namespace {

constexpr size_t kShownValues = 12;   // of one parameter of a set

// Of the events of a long life only the last few are shown without -l.
constexpr int kEventsShownMax = 12;

std::string moment(uint64_t unix_ms, const View& view) {
  if (unix_ms == 0) return "";
  return fmt::format("{} ({})", human_ago(unix_ms, view.now_unix_ms), iso_time(unix_ms));
}

std::string duration(uint64_t started, uint64_t finished, const View& view) {
  if (started == 0) return "";
  const uint64_t end = finished != 0 ? finished : view.now_unix_ms;
  return human_duration(end > started ? end - started : 0);
}

// What a replica, member or event tells beside its state.
template <typename Told>
std::string reason_beside(const Told& told) {
  return says_state(told.reason(), told.state()) ? "" : told.reason();
}

Cell cell_of_state(const std::string& state) {
  return {state_cell(state), ink_of_state(state)};
}

std::string gpus_of(const pb::SeatInfo& seat) {
  std::string text;
  for (const uint32_t index : seat.gpus()) {
    text += fmt::format("{}{}", text.empty() ? "" : ",", index);
  }
  return text;
}

std::string exit_of(const pb::ReplicaInfo& replica) {
  return replica.exited() ? fmt::format("{}", replica.exit_code()) : "";
}

// An end without an exit of its own has its time in the experiment's only.
std::string duration_of(const pb::ReplicaInfo& replica, const pb::ExperimentInfo& whole,
                        const View& view) {
  uint64_t finished = replica.finished_unix_ms();
  if (finished == 0 && is_over(replica.state())) finished = whole.finished_unix_ms();
  return duration(replica.started_unix_ms(), finished, view);
}

HostNames host_names(const pb::ShowReply& reply) {
  HostNames names;
  for (const auto& replica : reply.replicas()) names.add(replica.seat().host_name(), replica.seat().host_id());
  return names;
}

std::string render_table(const std::vector<const pb::ReplicaInfo*>& replicas, const pb::ShowReply& reply, const View& view) {
  const pb::ExperimentInfo& whole = reply.experiment();
  const HostNames names = host_names(reply);
  bool gpus = false;
  for (const auto* replica : replicas) gpus = gpus || replica->seat().gpus_size() != 0;
  Table table;
  table.columns = {{"REPLICA", 11, 0, false},
                   {"STATE", 10, 0, false},
                   {"HOST", 6, 2, true},
                   {"PORT", 5, 3, false}};
  if (gpus) table.columns.push_back({"GPUS", 4, 0, false});
  table.columns.insert(table.columns.end(), {{"STARTED", 8, 4, false},
                                             {"DURATION", 8, 1, false},
                                             {"EXIT", 4, 0, false},
                                             {"REASON", 6, 0, true}});
  if (view.long_form) {
    table.columns.insert(table.columns.end(), {{"PID", 5, 1, false},
                                               {"CPU TIME", 8, 1, false},
                                               {"MEM PEAK", 8, 1, false},
                                               {"ATTEMPT", 7, 1, false}});
  }
  for (const auto* replica : replicas) {
    std::vector<Cell> row = {
        {replica->id()},
        cell_of_state(replica->state()),
        {names.shown(replica->seat().host_name(), replica->seat().host_id())},
        {replica->seat().port() == 0 ? "" : fmt::format("{}", replica->seat().port())}};
    if (gpus) row.push_back({gpus_of(replica->seat())});
    row.push_back({replica->started_unix_ms() == 0 ? "" : clock_time(replica->started_unix_ms())});
    row.push_back({duration_of(*replica, whole, view)});
    row.push_back({exit_of(*replica)});
    // The columns beside it say this already.
    const bool told = replica->reason() == fmt::format("exit code {}", replica->exit_code()) ||
                      says_state(replica->reason(), replica->state());
    row.push_back({told ? "" : replica->reason()});
    if (view.long_form) {
      row.push_back({replica->pid() == 0 ? "" : fmt::format("{}", replica->pid())});
      row.push_back({replica->exited() ? fmt::format("{:.1f} s", replica->cpu_seconds()) : ""});
      row.push_back({replica->exited() ? human_memory(replica->memory_peak_bytes()) : ""});
      row.push_back({fmt::format("{}", replica->attempt())});
    }
    table.rows.push_back(std::move(row));
  }
  return render(table, view.screen);
}

std::string render_members(const pb::ShowReply& reply, const View& view) {
  std::vector<const pb::ExperimentInfo*> infos;
  for (const auto& member : reply.members()) infos.push_back(&member);
  const std::vector<std::string> metrics = metric_names(infos);
  const std::vector<std::string> parameters = differing_texts(infos);
  Table table;
  table.columns = {{"ID", 6, 0, false},
                   {"STATE", 9, 0, false},
                   {"STARTED", 11, 1, false},
                   {"DURATION", 9, 2, false},
                   {"PARAMS", 14, 0, true, true}};
  // The last one declared goes first.
  auto drop_order = static_cast<int>(3 + metrics.size());
  for (const std::string& metric : metrics) table.columns.push_back({metric, 6, drop_order--, false});
  table.columns.push_back({"REASON", 14, 3, true});
  for (const auto& member : reply.members()) {
    std::vector<Cell> row = {{member.id()},
                             cell_of_state(member.state()),
                             {human_ago(member.started_unix_ms(), view.now_unix_ms)},
                             {duration(member.started_unix_ms(), member.finished_unix_ms(), view)},
                             {parameters[table.rows.size()]}};
    for (const std::string& name : metrics) {
      const pb::Metric* metric = find_metric(member, name);
      row.push_back({metric == nullptr ? "-" : number_text(metric->last())});
    }
    row.push_back({member.state() == "FINISHED" && !member.ended_early() ? "" : reason_beside(member)});
    table.rows.push_back(std::move(row));
  }
  return render(table, view.screen);
}

std::string render_metrics(const pb::ExperimentInfo& info, const View& view) {
  Table table;
  table.columns = {{"METRIC", 11, 0, false}, {"LAST", 10, 0, false}, {"MIN", 10, 3, false},
                   {"MAX", 10, 3, false},    {"COUNT", 5, 2, false}, {"STEP", 5, 2, false},
                   {"FROM", 11, 1, true}};
  for (const pb::Metric& metric : info.metrics()) {
    if (is_silent(metric)) {
      table.rows.push_back({{metric.name()}, {"-"}, {""}, {""}, {"0"}, {""}, {"nothing printed it"}});
      continue;
    }
    const bool of_files = metric.replica().empty();
    table.rows.push_back({{metric.name()},
                          {number_text(metric.last())},
                          {number_text(metric.minimum())},
                          {number_text(metric.maximum())},
                          {fmt::format("{}", metric.count())},
                          {metric.has_step() ? fmt::format("{}", metric.step()) : ""},
                          {of_files ? "event files" : metric.replica()}});
  }
  return render(table, view.screen);
}

std::string render_events(const pb::ShowReply& reply, const View& view) {
  const int first = view.long_form ? 0 : std::max(0, reply.events_size() - kEventsShownMax);
  Table table;
  table.header = false;
  table.indent = 2;
  table.columns = {{"", 8, 0, false}, {"", 10, 0, false}, {"", 10, 0, false}, {"", 6, 0, true}};
  for (int i = first; i < reply.events_size(); ++i) {
    const pb::StateEvent& event = reply.events(i);
    table.rows.push_back({{clock_time(event.time_unix_ms()), Ink::Dim},
                          {event.id()},
                          cell_of_state(event.state()),
                          {reason_beside(event)}});
  }
  std::string out = "\nEvents:\n";
  const auto left_out = static_cast<int>(reply.events_left_out());
  if (first + left_out > 0) {
    out += fmt::format("  ({} earlier{})\n", first + left_out, first > 0 ? ": -l" : "");
  }
  return out + render(table, view.screen);
}

// A line of several, `run: |`, ends with an end of line of its own.
std::string in_one_text(const std::vector<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) {
    text += (text.empty() ? "" : "\n") + line.substr(0, line.find_last_not_of('\n') + 1);
  }
  return text;
}

void add_spec(Fields& fields, const pb::ShowReply& reply) {
  const auto parsed = parse_spec(reply.spec_yaml(), {});
  if (!parsed.ok())
    return;  // written by a newer dtrain: what the daemon says is shown all the same
  // A member's commands have its parameters in them; a set's still have their names.
  const auto id = parse_experiment_id(reply.experiment().id());
  const bool whole_set = parsed.value().is_set() && id.ok() && id.value().member == 0;
  const Spec spec =
      whole_set ? parsed.value() : member_spec(parsed.value(), id.ok() ? id.value().member : 0);
  // Where members differ in it, the first stands for them.
  fields.add("Replicas", roles_text(spec) + (spec.source.empty() ? "" : " (the first member)"));
  fields.add("Image", spec.image);
  for (const RoleSpec& role : spec.roles) {
    if (!role.image.empty()) fields.add(fmt::format("  of {}", to_string(role.role)), role.image);
  }
  if (const std::string python = active_python(spec, reply.user_env()); !python.empty()) {
    fields.add("Python", fmt::format("that of {}, which was active", python));
  } else if (spec.python != Spec{}.python) {
    fields.add("Python", spec.python);
  }
  fields.add("Run Commands", in_one_text(spec.decider().run));
  for (const RoleSpec& role : spec.roles) {
    if (role.run == spec.decider().run || role.role == Role::Tensorboard) continue;
    fields.add(fmt::format("  of {}", to_string(role.role)), in_one_text(role.run));
  }
  if (spec.framework == Framework::Engine) {
    const auto engine = engine_spec_of(spec);
    if (engine.ok() && !engine->checkpoint_from.empty()) fields.add("Starts From", engine->checkpoint_from);
  }
  if (spec.concurrency > 0) fields.add("Concurrency", fmt::format("{}", spec.concurrency));
  if (spec.priority != 50 || spec.preemptible) {
    fields.add("Priority", fmt::format("{}{}", spec.priority, spec.preemptible ? ", gives its place to higher ones" : ""));
  }
  if (!spec.is_set()) return;
  std::string grid;
  for (const Parameter& parameter : spec.parameters) {
    std::string values;
    const size_t shown = std::min(parameter.values.size(), kShownValues);
    for (size_t i = 0; i < shown; ++i) values += (i == 0 ? "" : ", ") + parameter.values[i];
    if (shown < parameter.values.size()) values += fmt::format(", ... ({} values)", parameter.values.size());
    grid += fmt::format("{}{}: {}", grid.empty() ? "" : "\n", parameter.name, values);
  }
  fields.add(spec.combine == Combine::Zip ? "Values" : "Grid", grid);
}

// Of its own one, while that runs.
std::string board_address(const pb::ShowReply& reply) {
  for (const auto& replica : reply.replicas()) {
    const auto id = parse_replica_id(replica.id());
    if (!id.ok() || id->role != Role::Tensorboard || replica.state() != "RUNNING") continue;
    return fmt::format("http://{}:{}/", replica.seat().address(), replica.seat().port());
  }
  return "";
}

std::string render_fields(const pb::ShowReply& reply, const View& view, const Why& why, const std::optional<BestMember>& best) {
  const pb::ExperimentInfo& info = reply.experiment();
  const bool set = info.members() != 0;
  Fields fields;
  fields.add("ID", info.id());
  fields.add("Type", set ? "Set" : "Experiment");
  fields.add("Project", info.project());
  fields.add("Name", info.name());
  fields.add("Note", info.note());
  fields.add("User", info.user());
  fields.add("State", state_cell(info.state()));
  if (set) {
    fields.add("Members",
               fmt::format("{}: {} running, {} finished{}{}", info.members(),
                           info.members_running(), info.members_finished(),
                           info.members_ended_early() == 0 ? "" : fmt::format(" ({} early)", info.members_ended_early()),
                           bad_ends(info)));
    if (best) fields.add("Best", best_text(*best));
  }
  fields.add("Reason", reason_beside(info));
  fields.add_line("Last Line", telling_line(why));
  if (why.log_tells) fields.add("Log", why.log_command);
  // Of a set it would name a member, which the table below does.
  fields.add("Hint", set || why.hint.empty() ? as_called(info.hint()) : why.hint);
  fields.add("Submitted", moment(info.submitted_unix_ms(), view));
  fields.add("Started", moment(info.started_unix_ms(), view));
  fields.add("Finished", moment(info.finished_unix_ms(), view));
  fields.add("Duration", duration(info.started_unix_ms(), info.finished_unix_ms(), view));
  if (is_over(info.state())) fields.add("Exit Code", fmt::format("{}", info.exit_code()));
  if (info.attempt() > 1) fields.add("Attempt", fmt::format("{}", info.attempt()));
  fields.add("Framework", info.framework());
  add_spec(fields, reply);
  if (!set) fields.add("Parameters", parameters_text(info));
  fields.add("Host", reply.host());
  fields.add("After", fmt::format("{}", fmt::join(reply.after(), ", ")));
  fields.add("After End", fmt::format("{}", fmt::join(reply.after_end(), ", ")));
  fields.add("Directory", info.project_dir());
  fields.add("Output", reply.output_dir());
  fields.add("TensorBoard", board_address(reply));
  return fields.text(view.screen);
}

std::string render_one(const pb::ReplicaInfo& replica, const pb::ShowReply& reply, const View& view) {
  const pb::SeatInfo& seat = replica.seat();
  Fields fields;
  fields.add("ID", replica.id());
  fields.add("Type", "Replica");
  fields.add("State", state_cell(replica.state()));
  fields.add("Reason", reason_beside(replica));
  fields.add("Exit Code", exit_of(replica));
  fields.add("Started", moment(replica.started_unix_ms(), view));
  fields.add("Finished", moment(replica.finished_unix_ms(), view));
  fields.add("Duration", duration_of(replica, reply.experiment(), view));
  fields.add("Attempt", fmt::format("{}", replica.attempt()));
  fields.add("Host", host_names(reply).shown(seat.host_name(), seat.host_id()));
  if (seat.port() != 0) fields.add("Address", fmt::format("{}:{}", seat.address(), seat.port()));
  if (replica.pid() != 0) fields.add("Pid", fmt::format("{}", replica.pid()));
  if (!seat.host_name().empty()) {
    fields.add("Rank", fmt::format("{}", seat.rank()));
    fields.add("Requested cpus", fmt::format("{:g}", seat.cpus()));
    fields.add("Requested mem", human_memory(seat.memory_bytes()));
    fields.add("GPUs", seat.gpus().empty() ? "none" : gpus_of(seat));
  }
  if (replica.exited()) {
    fields.add("CPU time", fmt::format("{:.1f} s", replica.cpu_seconds()));
    fields.add("Memory peak", human_memory(replica.memory_peak_bytes()));
    fields.add("Read", human_size(replica.read_bytes()));
    fields.add("Written", human_size(replica.written_bytes()));
  }
  fields.add("Log", fmt::format("{} logs {}", called(), replica.id()));
  return fields.text(view.screen);
}

}  // namespace

std::string render_experiment(const pb::ShowReply& reply, const View& view, const Why& why, const std::optional<BestMember>& best) {
  std::string out = render_fields(reply, view, why, best);
  if (!reply.experiment().metrics().empty()) out += "\n" + render_metrics(reply.experiment(), view);
  if (!reply.members().empty()) out += "\n" + render_members(reply, view);
  if (reply.members_left_out() > 0) {
    out += fmt::format("  ({} more: {} status {}.MEMBER shows one)\n", reply.members_left_out(), called(),
                       reply.experiment().id());
  }
  if (!reply.replicas().empty()) {
    std::vector<const pb::ReplicaInfo*> replicas;
    for (const auto& replica : reply.replicas()) replicas.push_back(&replica);
    out += "\n" + render_table(replicas, reply, view);
  }
  if (!reply.events().empty()) out += render_events(reply, view);
  if (view.long_form && !reply.spec_yaml().empty()) out += "\nSpec:\n" + reply.spec_yaml();
  return out;
}

Result<std::vector<const pb::ReplicaInfo*>> replicas_named(const pb::ShowReply& reply,
                                                           const IdPattern& pattern) {
  std::vector<const pb::ReplicaInfo*> named;
  std::string known;
  for (const auto& replica : reply.replicas()) {
    known += (known.empty() ? "" : ", ") + replica.id();
    const auto id = parse_replica_id(replica.id());
    if (id.ok() && pattern.matches(id.value())) named.push_back(&replica);
  }
  if (named.empty()) {
    const std::string hint = reply.members().empty()
                                 ? fmt::format("it has {}", known)
                                 : fmt::format("name the member: {}.1.{}", reply.experiment().id(),
                                               to_string(*pattern.role));
    return Error{Code::NotFound, fmt::format("there is no replica {}", to_string(pattern)), hint};
  }
  return named;
}

Result<std::string> render_replicas(const pb::ShowReply& reply, const IdPattern& pattern,
                                    const View& view) {
  TRY(const auto named, replicas_named(reply, pattern));
  if (named.size() > 1) return render_table(named, reply, view);
  return render_one(*named.front(), reply, view);
}

}  // namespace dtrain::cli
