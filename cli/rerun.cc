// dtrain rerun: the same program and files again, perhaps with other parameters. Nothing is synced.
#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <memory>

#include "cli/commands.h"
#include "cli/connection.h"
#include "cli/follow.h"
#include "cli/spec_source.h"
#include "cli/submit.h"
#include "schema/ids.h"
#include "schema/random_id.h"
#include "schema/spec.h"

namespace dtrain::cli {

namespace {

struct RerunOptions {
  std::string id;
  std::vector<std::string> parameters;
  std::vector<std::string> settings;
  std::string host;
  std::string name;
  std::string note;
  std::string time;
  bool rebuild = false;
  bool detach = false;
  bool tied = false;
};

// The Spec of what ran, with this command line's changes. A member runs again alone, with its
// values.
Result<Spec> changed_spec(const pb::ShowReply& shown, const RerunOptions& options) {
  ParseOptions parsing;
  parsing.file_name = fmt::format("experiment {}", shown.experiment().id());
  TRY(const ExperimentId id, parse_experiment_id(shown.experiment().id()));
  if (id.member > 0) {
    for (const auto& [name, value] : shown.experiment().parameters()) {
      parsing.parameters.emplace_back(name, value);
    }
  }
  TRY(auto typed, parse_assignments(options.parameters, "-p"));
  for (auto& pair : typed) parsing.parameters.push_back(std::move(pair));
  TRY(parsing.set, parse_assignments(options.settings, "--set"));
  TRY(Spec spec, parse_spec(shown.spec_yaml(), parsing));
  if (!options.name.empty()) spec.name = options.name;
  if (!options.note.empty()) spec.note = options.note;
  return spec;
}

Result<int> rerun(const RerunOptions& options, const CommandContext& context) {
  if (!options.id.empty()) {
    TRY(const IdPattern pattern, parse_id_pattern(options.id));
    if (pattern.names_replicas()) {
      return Error{Code::InvalidArgument, fmt::format("{} is a part of an experiment", options.id),
                   fmt::format("dtrain rerun {}", to_string(pattern.experiment))};
    }
  }
  TRY(Connection connection, connect(Autostart::IfNeeded, context));
  pb::ShowRequest request;
  request.set_id(options.id);
  request.set_project_dir(project_dir());
  TRY(const pb::ShowReply shown, connection.show(request));
  TRY(const Spec spec, changed_spec(shown, options));
  pb::SubmitHeader header;
  TRY(const std::string submission_id, random_id());
  header.set_submission_id(submission_id);
  header.set_spec_yaml(to_yaml(spec));
  header.set_snapshot(shown.snapshot());
  header.set_project_dir(shown.experiment().project_dir());
  header.set_host(options.host.empty() ? shown.host() : options.host);
  header.set_rebuild(options.rebuild);
  add_user(header);
  TRY(take_secrets(spec, header));
  TRY(const pb::Accepted accepted, submit(connection, context, header, nullptr, {}));
  if (!context.json) {
    std::fprintf(stderr, "Experiment %u runs %s again, with the files as they were then\n",
                 accepted.number(), shown.experiment().id().c_str());
  }
  FollowOptions following;
  following.detach = options.detach;
  following.tied = options.tied;
  following.time = options.time;
  following.project = shown.experiment().project_dir();
  return follow(connection, context, accepted, following);
}

}  // namespace

Run declare_rerun(Options& options, CommandContext& context) {
  auto typed = std::make_shared<RerunOptions>();
  options.positional("ID", typed->id, "experiment or member; left out: the newest of this project");
  options.list("-p,--parameter", typed->parameters, "set or override a parameter", "NAME=VALUE");
  options.list("--set", typed->settings, "override any key", "KEY=VALUE");
  options.text("--host", typed->host, "place everything on this host", "HOST");
  options.text("--name", typed->name, "a name for it in lists");
  options.text("-m,--note", typed->note, "what this one is about");
  options.flag("--rebuild", typed->rebuild, "make its environment anew (`version`, `install`)");
  options.flag("-d,--detach", typed->detach, "return once it is accepted");
  options.flag("--tied", typed->tied, "leaving (Ctrl-C, closing the terminal) kills it");
  options.choice("--time", typed->time, {"clock", "elapsed", "iso"}, "the time before log lines");
  options.json(context);
  options.footer("dtrain rerun 4 -p learning-rate=0.01");
  return [typed, &context] { return rerun(*typed, context); };
}

}  // namespace dtrain::cli
