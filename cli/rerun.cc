// dtrain rerun: the same program and files again, perhaps with other parameters. Nothing is synced.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>
#include <vector>

#include "cli/active_python.h"
#include "cli/all_members.h"
#include "cli/awaited.h"
#include "cli/commands.h"
#include "cli/connection.h"
#include "cli/dry_run.h"
#include "cli/errors.h"
#include "cli/failed_members.h"
#include "cli/follow.h"
#include "cli/host_terms.h"
#include "cli/idle_keys.h"
#include "cli/remote.h"
#include "cli/same_members.h"
#include "cli/shown_spec.h"
#include "cli/spec_source.h"
#include "cli/submit.h"
#include "cli/turn_words.h"
#include "schema/resume.h"
#include "schema/engine_spec.h"
#include "schema/spec.h"
#include "schema/states.h"

namespace dtrain::cli {

namespace fs = std::filesystem;

namespace {

struct RerunOptions {
  std::string id;
  std::vector<std::string> parameters;
  std::vector<std::string> settings;
  std::optional<std::string> host;
  AwaitedWords awaited;
  TurnWords turn;
  std::string name;
  std::string note;
  std::string time;
  bool failed = false;
  bool resume = false;
  bool rebuild = false;
  bool no_image = false;
  bool detach = false;
  bool tied = false;
  bool dry_run = false;
};

bool ran_here(const pb::ShowReply& shown) {
  char name[256] = "";
  (void)::gethostname(name, sizeof name - 1);
  return std::all_of(shown.replicas().begin(), shown.replicas().end(),
                     [&](const pb::ReplicaInfo& replica) { return replica.seat().host_name() == name; });
}

bool has_checkpoint(const fs::path& output) {
  std::error_code failed;
  for (fs::directory_iterator at(output / kEngineCheckpoints, failed), end; !failed && at != end;
       at.increment(failed)) {
    if (at->path().filename().native().starts_with(kEngineCheckpointPrefix)) return true;
  }
  return false;
}

bool may_write(const pb::ExperimentInfo& info) { return !is_over(info.state()) && info.state() != to_string(State::Suspended); }

bool waits_for(const Spec& spec, const std::string& experiment) {
  const auto id = parse_experiment_id(experiment);
  const auto is_it = [&](const ExperimentId& awaited) { return id.ok() && (awaited == *id || awaited == id->set()); };
  return std::ranges::any_of(spec.after, is_it) || std::ranges::any_of(spec.after_end, is_it);
}

// What can be told before anything starts. The rest the engine says.
Status check_resumable(const pb::ShowReply& shown, const Spec& spec, const RerunOptions& options) {
  const pb::ExperimentInfo& before = shown.experiment();
  if (before.members() > 0) {
    return Error{Code::InvalidArgument,
                 fmt::format("{} is a set, and each of its members goes on by itself", before.id()),
                 fmt::format("dtrain rerun {}.1 --resume", before.id())};
  }
  if (may_write(before)) {
    if (waits_for(spec, before.id())) return ok();   // what there will be to go on from can't be told yet
    return Error{Code::FailedPrecondition,
                 fmt::format("{} is {}, and may still write what this would go on from", before.id(), before.state()),
                 fmt::format("dtrain rerun {0} --resume --after-end {0} begins when it is over; dtrain kill {0} ends it", before.id())};
  }
  if (!ran_here(shown)) return ok();
  const fs::path output = shown.output_dir();
  std::error_code failed;
  if (!fs::is_directory(output, failed)) {
    return Error{Code::NotFound,
                 fmt::format("{} has left nothing to go on from: {} is not there", before.id(), output.string()),
                 fmt::format("dtrain rerun {} starts from the beginning", before.id())};
  }
  if (spec.framework != Framework::Engine) return ok();
  if (!has_checkpoint(output)) {
    return Error{Code::NotFound, fmt::format("{} has no checkpoint to go on from", before.id()),
                 fmt::format("dtrain rerun {} starts as it did", before.id())};
  }
  if (before.state() == to_string(State::Finished) && !before.ended_early() && options.parameters.empty() && options.settings.empty()) {
    return Error{Code::FailedPrecondition,
                 fmt::format("{} was trained to its end, so that nothing is left to do", before.id()),
                 fmt::format("dtrain rerun {} --resume --set train.engine.epochs=...", before.id())};
  }
  return ok();
}

// The key by which it goes on from what ran before.
std::pair<std::string, std::string> resuming(const pb::ShowReply& shown, const Spec& spec) {
  const std::string& output = shown.output_dir();
  if (spec.framework == Framework::Engine) return {"train.engine.checkpoint.from", yaml_scalar(output)};
  if (spec.env_from_shell.empty()) return {fmt::format("train.env.{}", kResumeVariable), yaml_scalar(output)};
  // With names from the shell it is a list, which is set as a whole.
  std::vector<std::string> items;
  for (const std::string& name : spec.env_from_shell) {
    if (name != kResumeVariable) items.push_back(name);
  }
  for (const auto& [name, value] : spec.env) {
    if (name != kResumeVariable) items.push_back(fmt::format("{}={}", name, value));
  }
  items.push_back(fmt::format("{}={}", kResumeVariable, output));
  return {"train.env", nlohmann::json(items).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)};
}

// What is the same in all members now may be what told some of them apart.
Status take_each_once(const pb::ShowReply& shown, Spec& spec) {
  const uint64_t members = spec.member_count();
  TRY(Spec before, parse_spec(shown.spec_yaml(), {}));
  if (drop_repeated_members(before) > 0) return ok();   // it was meant
  const uint64_t repeated = drop_repeated_members(spec);
  if (repeated > 0) tell({fmt::format("{} of {} members would be the same as others now, and are left out", repeated, members)});
  return ok();
}

// The Spec of what ran, with this command line's changes.
Result<Spec> changed_spec(const pb::ShowReply& shown, const RerunOptions& options) {
  TRY(ParseOptions parsing, parsing_of(shown, options.parameters, options.settings));
  if (options.no_image) parsing.image = "";
  if (options.failed) {
    TRY(parsing, only_failed(shown, std::move(parsing)));
  }
  TRY(Spec spec, parse_spec(shown.spec_yaml(), parsing));
  if (options.resume) {
    // First, so that the command line may say otherwise.
    parsing.set.insert(parsing.set.begin(), resuming(shown, spec));
    TRY(spec, parse_spec(shown.spec_yaml(), parsing));
  }
  TRY(take_each_once(shown, spec));
  if (options.host) {
    TRY(spec.hosts, host_terms(*options.host));
  }
  TRY(put_awaited(options.awaited, spec));
  if (options.resume) TRY(check_resumable(shown, spec, options));
  if (!options.name.empty()) spec.name = options.name;
  if (!options.note.empty()) spec.note = options.note;
  spec.suspend = begins_suspended(spec, parsing);
  TRY(put_turn(options.turn, spec));
  return spec;
}

std::string said_of(uint32_t number, const pb::ShowReply& shown, const Spec& spec, const RerunOptions& options) {
  const std::string& before = shown.experiment().id();
  const bool resumes = options.resume;
  if (options.failed) {
    return fmt::format("Experiment {} runs {} of {} again, with the files as they were then", number,
                       spec.is_set() ? fmt::format("the {} failed members", spec.member_count()) : "the one failed member", before);
  }
  if (resumes && spec.framework == Framework::Engine) {
    return fmt::format("Experiment {} goes on from the newest checkpoint of {}, with the files as they were then",
                       number, before);
  }
  std::string said = fmt::format("Experiment {} runs {} again, with the files as they were then", number, before);
  if (resumes) {
    said += fmt::format("\n{} names what {} wrote; it is for its program to go on from there", kResumeVariable, before);
  }
  return said;
}

// Where another one is active by now.
void say_python(const Spec& spec, const pb::ShowReply& shown) {
  pb::SubmitHeader here;
  add_user(here);
  const std::string then = active_python(spec, shown.user_env()), now = active_python(spec, here.user_env());
  if (then == now) return;
  tell({then.empty() ? fmt::format("python is that of each host, as then; --set train.python={} takes the one that is active here", now)
                     : fmt::format("python is that of {}, as then", then) +
                           (now.empty() ? "" : fmt::format("; --set train.python={} takes the one that is active here", now))});
}

Result<int> rerun(const RerunOptions& options, const CommandContext& context) {
  TRY(check_leaving(options.detach, options.tied));
  TRY(check_whole(options.id, "rerun"));
  TRY(Connection connection, connect(Autostart::IfNeeded, context));
  pb::ShowRequest request;
  request.set_id(options.id);
  request.set_project_dir(project_dir());
  TRY(pb::ShowReply shown, connection.show(request));
  // What is started without being named is of this project.
  if (options.id.empty() && shown.experiment().project_dir() != project_dir()) {
    return Error{Code::FailedPrecondition, "nothing was submitted from this directory",
                 fmt::format("the newest of all: {} rerun {}", called(), shown.experiment().id())};
  }
  if (options.failed) TRY(ask_for_all_members(connection, shown));
  TRY(const Spec spec, changed_spec(shown, options));
  if (options.rebuild) warn({idle_rebuild_warning(spec)});
  TRY(pb::SubmitHeader header, header_again(spec, shown));
  header.set_rebuild(options.rebuild);
  TRY(take_secrets(spec, header));
  if (options.dry_run) {
    TRY(const pb::PlanReply plan, plan_of(connection, spec));
    return show_plan(plan, spec, context);
  }
  FollowOptions following;
  if (options.tied) following.tied = tied_signals();
  TRY(const pb::Accepted accepted,
      submit(connection, context, header, nullptr, {}, following.tied.get()));
  if (!context.json) {
    say(said_of(accepted.number(), shown, spec, options));
    say_python(spec, shown);
  }
  following.detach = options.detach;
  following.time = options.time;
  following.project = shown.experiment().project_dir();
  return follow(connection, context, accepted, std::move(following));
}

}  // namespace

Run declare_rerun(Options& options, CommandContext& context) {
  auto typed = std::make_shared<RerunOptions>();
  options.id(typed->id, "experiment or member; left out: the newest of this project");
  options.list("-p,--parameter", typed->parameters, "set or override a parameter", "NAME=VALUE");
  options.list("--set", typed->settings, "override any key", "KEY=VALUE");
  options.text("--host", typed->host, "place it on hosts of that name, ID, pool, label or GPU, or like that: gpu-*,!gpu-7", "HOST,...");
  options.id_list("--after", typed->awaited.after, "begin when that one is FINISHED, and fail where it ends otherwise");
  options.id_list("--after-end", typed->awaited.after_end, "begin when that one is over, however it ends");
  declare_turn(options, typed->turn);
  options.text("--name", typed->name, "a name for it in lists");
  options.text("-m,--note", typed->note, "what this one is about");
  options.flag("--failed", typed->failed, "of a set only the members that failed or were killed");
  options.flag("--resume", typed->resume, "go on from what it wrote: the engine from its newest checkpoint");
  options.flag("--rebuild", typed->rebuild, "make its environment anew (`version`, `install`, `image`)");
  options.flag("--no-image", typed->no_image, "run on the hosts themselves, whatever `image` says");
  options.flag("-d,--detach", typed->detach, "return once it is accepted");
  options.flag("--dry-run", typed->dry_run, "show where each replica would land, or why it can't");
  options.flag("--tied", typed->tied, "leaving (Ctrl-C, closing the terminal) kills it");
  options.choice("--time", typed->time, {"clock", "elapsed", "iso"}, "the time before log lines");
  options.json(context);
  options.footer("dtrain rerun 4 -p learning-rate=0.01");
  return [typed, &context] { return rerun(*typed, context); };
}

}  // namespace dtrain::cli
