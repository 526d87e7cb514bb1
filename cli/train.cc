// dtrain train: read the spec, sync the project, submit, watch, exit as the experiment did.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "cli/active_python.h"
#include "cli/ask.h"
#include "cli/asking_less.h"
#include "cli/awaited.h"
#include "cli/commands.h"
#include "cli/connection.h"
#include "cli/dry_run.h"
#include "cli/engine_data.h"
#include "cli/errors.h"
#include "cli/explain_sync.h"
#include "cli/follow.h"
#include "cli/host_terms.h"
#include "cli/idle_keys.h"
#include "cli/last_words.h"
#include "cli/new_file.h"
#include "cli/remote.h"
#include "cli/sink.h"
#include "cli/spec_source.h"
#include "cli/spec_warnings.h"
#include "cli/submit.h"
#include "cli/sync_line.h"
#include "cli/sync_size.h"
#include "cli/turn_words.h"
#include "schema/clock.h"
#include "schema/config.h"
#include "schema/random_id.h"

namespace dtrain::cli {

namespace fs = std::filesystem;

namespace {

// A project that keeps changing under our hands is told so.
constexpr int kSnapshotTriesMax = 3;

struct TrainOptions {
  std::string file;
  std::vector<std::string> parameters;
  std::vector<std::string> settings;
  CommandForm form;
  std::string name;
  std::string note;
  std::vector<std::string> env;
  TurnWords turn;
  std::optional<std::string> host;
  AwaitedWords awaited;
  bool detach = false;
  bool tied = false;
  bool dry_run = false;
  bool yes = false;
  bool rebuild = false;
  bool no_image = false;
  bool save = false;
  bool explain = false;
  std::string explain_path;
  std::string time;
};

struct Prepared {
  SpecSource source;
  Spec spec;
  std::vector<std::string> notes = {};  // of a manifest
  std::map<std::string, std::string> secrets = {};  // that its file has
  ParseOptions parsing = {};            // what was typed besides; no notes are taken again
};

// --env NAME takes the variable from the shell, --env NAME=VALUE sets it, whichever the file says.
void add_env(const std::vector<std::string>& words, Spec& spec) {
  for (const std::string& word : words) {
    size_t equals = word.find('=');
    if (equals != std::string::npos && equals > 0) {
      spec.env[word.substr(0, equals)] = word.substr(equals + 1);
      std::erase(spec.env_from_shell, word.substr(0, equals));
      continue;
    }
    spec.env.erase(word);
    if (std::find(spec.env_from_shell.begin(), spec.env_from_shell.end(), word) ==
        spec.env_from_shell.end()) {
      spec.env_from_shell.push_back(word);
    }
  }
}

Result<Spec> parsed_again(const Spec& spec) {
  ParseOptions again;
  again.file_name = "command line";
  again.has_lines = false;
  return parse_spec(to_yaml(spec), again);
}

// Each word by itself first: among all others they have places that nobody typed.
Status check_env(const std::vector<std::string>& words, const Spec& spec) {
  for (const std::string& word : words) {
    Spec alone = spec;
    alone.env.clear();
    alone.env_from_shell.clear();
    add_env({word}, alone);
    const auto parsed = parsed_again(alone);
    if (parsed.ok()) continue;
    const std::string& said = parsed.error().message;
    constexpr std::string_view kPlace = "train.env";
    const size_t place = said.find(kPlace);
    const size_t why = place == said.npos ? said.npos : said.find(": ", place);
    if (why == said.npos) return parsed.error();
    return Error{Code::InvalidArgument, fmt::format("--env {}: {}", word, said.substr(why + 2, said.find('\n', why) - why - 2)), parsed.error().hint};
  }
  return ok();
}

Status check_image(const TrainOptions& options) {
  const auto& image = options.form.image;
  if (image && image->empty()) {
    return Error{Code::InvalidArgument, "--image: got an empty text, expected the name of an image", "without one, leave it out"};
  }
  if (image && options.no_image) return Error{Code::InvalidArgument, "--image and --no-image don't go together", "leave out one of them"};
  return ok();
}

// --image alone is about the file, where there is one.
Result<SpecSource> find_source(const TrainOptions& options) {
  if (!options.form.is_given()) return find_spec_file(options.file);
  if (options.form.is_image_alone()) {
    auto file = find_spec_file(options.file);
    if (file.ok() || !options.file.empty()) return file;
  }
  if (!options.file.empty()) {
    return Error{Code::InvalidArgument, fmt::format("-f {}: a command is run without a YAML file", options.file),
                 "leave out -f, or the command"};
  }
  TRY(const fs::path here, current_directory());
  return spec_of_command(options.form, here);
}

Result<Prepared> prepare(const TrainOptions& options) {
  TRY(check_image(options));
  Prepared prepared;
  TRY(prepared.source, find_source(options));
  if (prepared.source.root == "/") {
    return Error{Code::InvalidArgument, "the project's directory is /, and all of the machine lies in it",
                 "have your code in a directory of its own"};
  }
  ParseOptions& parsing = prepared.parsing;
  parsing.file_name = prepared.source.file_name;
  parsing.has_lines = prepared.source.is_file;
  TRY(parsing.set, parse_assignments(options.settings, "--set"));
  if (prepared.source.is_file) parsing.image = options.form.image;
  if (options.no_image) parsing.image = "";
  TRY(parsing.parameters, parse_assignments(options.parameters, "-p"));
  parsing.notes = &prepared.notes;
  parsing.secrets = &prepared.secrets;
  parsing.is_in_shell = is_in_shell;
  TRY(prepared.spec, parse_spec(prepared.source.yaml, parsing));
  parsing.notes = nullptr;
  parsing.secrets = nullptr;
  Spec& spec = prepared.spec;
  if (!options.name.empty()) spec.name = options.name;
  if (!options.note.empty()) spec.note = options.note;
  TRY(put_turn(options.turn, spec));
  if (options.host) {
    TRY(spec.hosts, host_terms(*options.host));
  }
  TRY(put_awaited(options.awaited, spec));
  if (!options.env.empty()) {
    TRY(check_env(options.env, spec));
    add_env(options.env, spec);
    for (const std::string& name : options.env) prepared.secrets.erase(name);   // the shell's is asked for
    TRY(parsed_again(spec));
  }
  return prepared;
}

// --save: the file that does what this command line does.
Status save_spec(const TrainOptions& options, const Prepared& prepared, bool quiet) {
  const fs::path path = prepared.source.root / "dtrain.yml";
  const bool plain_command = !prepared.source.is_file && options.settings.empty() && options.parameters.empty() &&
                             options.env.empty() && options.name.empty() && options.note.empty() && !options.host && !options.awaited.are_given() &&
                             !options.turn.are_given();
  TRY(write_new_file(path, plain_command ? prepared.source.yaml : to_yaml(prepared.spec), 0666,
                      "--save never overwrites: move it away first"));
  if (!quiet) std::fprintf(stderr, "Wrote %s\n", path.c_str());
  return ok();
}

// What is remembered of a project between two syncs. Without the folder all is hashed anew.
fs::path stat_cache_of(const Home& home, const fs::path& root) {
  fs::path folder = home.root / "sync";
  std::error_code ignored;
  fs::create_directory(folder, ignored);
  return folder / to_hex(sha256(root.string())).substr(0, 16);
}

// A project's notices are said once and not with every train; `memory` keeps which.
void tell_once(const std::vector<Notice>& notices, const fs::path& memory) {
  std::set<std::string> known;
  std::ifstream before(memory);
  for (std::string line; std::getline(before, line);) known.insert(line);
  std::ofstream after(memory, std::ios::app);
  for (const Notice& notice : notices) {
    if (!known.insert(notice.about).second) continue;
    say(notice.text);
    after << notice.about << '\n';
  }
}

Status agree_to_size(const ProjectSize& project, const Config& config, bool yes) {
  SyncSize size = size_of_sync(project, config);
  if (size == SyncSize::Fine || (yes && size == SyncSize::Ask)) return ok();
  std::string large = what_is_large(project, config);
  if (size == SyncSize::Warn) {
    warn({large + "; what need not travel goes into .dtrainignore or `data:`"});
    return ok();
  }
  Error refusal{Code::InvalidArgument, large,
                "use `data:` or .dtrainignore; --yes sends it as it is"};
  TRY(const bool agreed,
      ask(large + ": use `data:` or .dtrainignore. Send it as it is?", refusal));
  if (!agreed) return refusal;
  return ok();
}

Result<pb::SubmitHeader> header_of(const TrainOptions& options, const Prepared& prepared) {
  pb::SubmitHeader header;
  add_user(header);
  header.set_spec_yaml(to_yaml(prepared.spec));
  header.set_project_dir(name_of_project(prepared.source.root));
  header.set_rebuild(options.rebuild);
  TRY(take_secrets(prepared.spec, header, prepared.secrets));
  return header;
}

// With all that has to be --set where hosts have less.
Error refusal_of(Connection& connection, const Prepared& prepared, Error refusal) {
  const auto refused = [&](const Spec& asking) -> Status {
    Spec placed = asking;
    placed.hosts = prepared.spec.hosts;
    placed.preemptible = prepared.spec.preemptible;
    TRY(plan_of(connection, placed));
    return ok();
  };
  refusal.hint = hint_with_less(refusal, prepared.source.yaml, prepared.parsing, prepared.spec, refused);
  return refusal;
}

// What no host can ever have, or what it can't come after, is refused before the project is read. Whatever else goes wrong here the submission
// meets, too, and knows better what to do about.
Status check_room(Connection& connection, const Prepared& prepared) {
  const auto plan = plan_of(connection, prepared.spec);
  if (plan.ok()) return ok();
  const Code code = plan.error().code;
  const bool is_refused = code == Code::InvalidArgument || code == Code::FailedPrecondition || code == Code::NotFound;
  if (!is_refused) return ok();
  return refusal_of(connection, prepared, plan.error());
}

// What of a project is refused by those who walk it.
SnapshotOptions sync_options(const Config& config, const Home& home) {
  SnapshotOptions options;
  options.limits.file_bytes_max = config.sync_file_bytes_max;
  options.limits.how_to_raise = fmt::format(", or raise sync.max-file in {}", home.config().string());
  return options;
}

// Of a dry run: what would be refused is, and nothing is read, asked or sent.
Status check_submission(const Connection& connection, const TrainOptions& options, const Prepared& prepared) {
  TRY(header_of(options, prepared));
  TRY(const Config config, read_config(connection.home()));
  SnapshotOptions walking = sync_options(config, connection.home());
  walking.before_reading = [&](const ProjectSize& project) {
    const bool asks = size_of_sync(project, config) == SyncSize::Ask && !options.yes;
    if (!asks) return agree_to_size(project, config, options.yes);
    warn({what_is_large(project, config) + "; use `data:` or .dtrainignore, or --yes to send it as it is"});
    return ok();
  };
  return explain_snapshot(prepared.source.root, walking);
}

// Snapshot and submission; again when a file changed between the two.
Result<pb::Accepted> sync_and_submit(Connection& connection, const CommandContext& context,
                                     const TrainOptions& options, const Prepared& prepared,
                                     std::unique_ptr<Signals>& tied) {
  const std::string nothing_sent = "dtrain: interrupted: nothing was submitted\n";
  const std::string maybe_sent = fmt::format("dtrain: interrupted while it was submitted: `{} status` tells whether it is there\n", called());
  // With --tied it is to be killed if it is there.
  std::optional<LastWords> last_words;
  if (!options.tied && !context.json) last_words.emplace();
  Sink sink(STDOUT_FILENO);
  SyncLine line(screen_of(STDOUT_FILENO), boottime_ms());
  // With --json standard output belongs to the facts.
  const auto show = [&](const std::string& text) {
    if (!context.json) sink.write(text);
  };
  TRY(pb::SubmitHeader header, header_of(options, prepared));
  if (const std::string python = active_python(prepared.spec, header.user_env()); !python.empty() && !context.json) {
    tell({fmt::format("python is that of {}, which is active here", python)});
  }
  TRY(const Config config, read_config(connection.home()));
  SnapshotOptions snapshot_options = sync_options(config, connection.home());
  uint64_t unread_bytes = 0;
  snapshot_options.before_reading = [&](const ProjectSize& project) {
    unread_bytes = project.unread_bytes;
    return agree_to_size(project, config, options.yes);
  };
  snapshot_options.stat_cache = stat_cache_of(connection.home(), prepared.source.root);
  snapshot_options.progress = [&](uint64_t bytes) {
    show(line.reading(bytes, unread_bytes, boottime_ms()));
  };
  for (int tries = 1;; ++tries) {
    if (last_words) last_words->become(nothing_sent);
    auto snapshot = take_snapshot(prepared.source.root, snapshot_options);
    if (!snapshot.ok()) {
      show(line.broken());
      return std::move(snapshot).error();
    }
    if (tries == 1) {
      if (!context.json) {
        tell_once(snapshot->notices, snapshot_options.stat_cache.string() + ".told");
      }
      snapshot_options.before_reading = nullptr;  // agreed to
    }
    TRY(const std::string submission_id, random_id());
    header.set_submission_id(submission_id);
    header.set_snapshot(to_bytes(snapshot->root));
    SnapshotBlobs blobs(prepared.source.root, snapshot.value());
    // Where nothing is missing it is there as soon as it is named.
    if (last_words) last_words->become(maybe_sent);
    show(line.sending(snapshot->file_count, snapshot->total_bytes));
    if (options.tied && !tied) tied = tied_signals();
    const auto progress = [&](uint64_t sent, uint64_t total) {
      if (last_words) last_words->become(sent < total ? nothing_sent : maybe_sent);
      show(line.progress(sent, total, boottime_ms()));
    };
    auto accepted = submit(connection, context, header, &blobs, progress, tied.get());
    show(accepted.ok() ? line.done() : line.broken());
    bool changed = !accepted.ok() && accepted.error().code == Code::Aborted;
    if (!changed || tries == kSnapshotTriesMax) return accepted;
  }
}

Result<int> train(const TrainOptions& options, const CommandContext& context) {
  TRY(check_leaving(options.detach, options.tied));
  if (options.explain && context.json) {
    return Error{Code::InvalidArgument, "--explain-sync says it in words, and has no JSON",
                 "leave out --json"};
  }
  TRY(const Prepared prepared, prepare(options));
  if (!prepared.source.is_file) {
    if (const auto unread = find_spec_file(""); unread.ok()) {
      warn({unread->file_name + " is not read, for a command is given"});
    }
  }
  if (options.explain) return explain_sync(prepared.source.root, options.explain_path);
  TRY(check_engine_data(prepared.spec, prepared.source.root));
  if (options.save) TRY(save_spec(options, prepared, context.json));
  const Spec& spec = prepared.spec;
  if (!context.json) tell(prepared.notes);
  std::vector<std::string> warnings = spec_warnings(spec);
  if (options.rebuild) warnings.push_back(idle_rebuild_warning(spec));
  warn(warnings);
  TRY(Connection connection, connect(Autostart::IfNeeded, context));
  if (options.dry_run) {
    const auto plan = plan_of(connection, prepared.spec);
    if (!plan.ok()) return refusal_of(connection, prepared, plan.error());
    TRY(check_submission(connection, options, prepared));
    return show_plan(*plan, prepared.spec, context);
  }
  TRY(check_room(connection, prepared));
  FollowOptions following;
  TRY(const pb::Accepted accepted,
      sync_and_submit(connection, context, options, prepared, following.tied));
  following.detach = options.detach;
  following.time = options.time;
  if (remote_machine().empty()) following.project = prepared.source.root;
  return follow(connection, context, accepted, std::move(following));
}

}  // namespace

Run declare_train(Options& options, CommandContext& context) {
  auto typed = std::make_shared<TrainOptions>();
  options.text("-f,--file,--config-file", typed->file, "the YAML; else dtrain.yml, else riseml.yml",
               "FILE");
  options.list("-p,--parameter", typed->parameters, "set or override a parameter", "NAME=VALUE");
  options.list("--set", typed->settings, "override any key: --set train.resources.gpus=1; null takes it out",
               "KEY=VALUE");
  options.flag("-d,--detach", typed->detach, "return once it is accepted");
  options.foreign_flag("-l,--logs");   // RiseML's, where following the log was no default
  options.flag("--dry-run", typed->dry_run, "show where each replica would land, or why it can't");
  options.text("--host", typed->host, "place it on hosts of that name, ID, pool, label or GPU, or like that: gpu-*,!gpu-7", "HOST,...");
  options.id_list("--after", typed->awaited.after, "begin when that one is FINISHED, and fail where it ends otherwise");
  options.id_list("--after-end", typed->awaited.after_end, "begin when that one is over, however it ends");
  declare_turn(options, typed->turn);
  options.text("--name", typed->name, "a name for it in lists");
  options.text("-m,--note", typed->note, "what this one is about");
  options.list("--env", typed->env, "NAME takes it from your shell, as a secret; or NAME=VALUE",
               "NAME");
  options.flag("--tied", typed->tied, "leaving (Ctrl-C, closing the terminal) kills it");
  options.flag("--rebuild", typed->rebuild, "make its environment anew (`version`, `install`, `image`)");
  options.flag("--no-image", typed->no_image, "run on the hosts themselves, whatever `image` says");
  options.flag("--yes", typed->yes, "send a large project without asking");
  options.flag("--save", typed->save, "write dtrain.yml from this command line, then go on");
  options.optional_text("--explain-sync", typed->explain, typed->explain_path,
                        "say what is synced and why, and stop", "FILE");
  options.choice("--time", typed->time, {"clock", "elapsed", "iso"}, "the time before log lines");
  options.number("--workers", typed->form.workers,
                 "without a file: workers; the first is the master");
  options.number("--ps", typed->form.ps, "without a file: parameter servers");
  options.number("--gpus", typed->form.gpus, "without a file: GPUs a replica");
  options.text("--cpus", typed->form.cpus, "without a file: CPUs a replica", "N");
  options.text("--mem", typed->form.mem, "without a file: memory a replica: 2GiB", "SIZE");
  options.text("--image", typed->form.image, "the image of containers that all of it runs in, whatever `image` says", "NAME");
  options.text("--framework", typed->form.framework,
               "without a file: tensorflow, pytorch, jax, mpi, command (default: by the roles)", "NAME");
  options.offer("--framework", {"tensorflow", "pytorch", "jax", "mpi", "command"});
  options.rest(typed->form.words, "COMMAND", "run this, and read no dtrain.yml");
  options.json(context);
  options.footer(
      "dtrain train\n"
      "dtrain train -p learning-rate=0.01 -m 'slower'\n"
      "dtrain train --workers 2 --ps 1 -- python train.py");
  return [typed, &context] { return train(*typed, context); };
}

}  // namespace dtrain::cli
