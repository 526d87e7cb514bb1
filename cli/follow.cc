#include "cli/follow.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/best_member.h"
#include "cli/errors.h"
#include "cli/failure_hint.h"
#include "cli/json_output.h"
#include "cli/json_printer.h"
#include "cli/sink.h"
#include "cli/remote.h"
#include "schema/states.h"

namespace dtrain::cli {

namespace fs = std::filesystem;

namespace {

void print_detached(const CommandContext& context, const std::string& id,
                    const pb::Accepted& accepted) {
  if (context.json) {
    nlohmann::ordered_json object = {
        {"id", id}, {"members", accepted.members()}, {"output_dir", accepted.output_dir()}};
    std::printf("%s\n",
                object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
    return;
  }
  std::printf("Started experiment %s in background; follow it with: %s logs -f %s\n", id.c_str(), called().c_str(), id.c_str());
}

std::string as_typed(const fs::path& link) {
  std::error_code failed;
  const fs::path here = fs::current_path(failed);
  const fs::path shown = failed ? fs::path() : link.lexically_relative(here);
  // A path that climbs out is harder to read than a whole one.
  const bool climbs = shown.empty() || *shown.begin() == "..";
  return climbs ? link.string() : shown.string();
}

}  // namespace

Status check_leaving(bool detach, bool tied) {
  if (!detach || !tied) return ok();
  return Error{Code::InvalidArgument, "--tied ends with this command, and --detach leaves it at once",
               "give one"};
}

void add_hint(Connection& connection, pb::ExperimentInfo& outcome) {
  // What the engine refused is told what to type next.
  if (outcome.state() != to_string(State::Failed) || !outcome.hint().empty() || engine_refused(outcome)) return;
  pb::ShowRequest request;
  request.set_id(outcome.id());
  auto shown = connection.show(request);
  if (!shown.ok()) return;
  for (const pb::ExperimentInfo& member : shown->members()) {
    if (member.state() != to_string(State::Failed)) continue;
    pb::ExperimentInfo failed = member;
    *shown->mutable_experiment() = std::move(failed);
    break;
  }
  outcome.set_hint(as_called(mending_hint(*shown)));
}

LogFormat log_format_of(const Screen& screen, const std::string& time) {
  LogFormat format;
  format.screen = screen;
  bool clock = time.empty() ? screen.is_terminal : time == "clock";
  format.time = clock ? TimeStyle::Clock : time == "elapsed" ? TimeStyle::Elapsed : TimeStyle::Iso;
  return format;
}

Result<std::string> link_output(const fs::path& project, uint32_t number,
                                const fs::path& output_dir) {
  fs::path runs = project / "runs";
  fs::path link = runs / fmt::format("{}", number);
  std::error_code failed;
  fs::create_directories(runs, failed);
  if (failed) return errno_error(fmt::format("making {}", runs.string()), failed.value());
  const fs::file_status there = fs::symlink_status(link, failed);
  if (fs::exists(there) && !fs::is_symlink(there)) {
    const char* const what = fs::is_directory(there) ? "folder" : "file";
    return Error{Code::AlreadyExists, fmt::format("{} is a {} of yours", link.string(), what),
                 fmt::format("the output is in {}", output_dir.string())};
  }
  const fs::path shown = fs::read_symlink(link, failed);
  if (!failed && shown != output_dir && fs::exists(shown, failed)) {
    return Error{Code::AlreadyExists, fmt::format("{} is a link to {} already", link.string(), shown.string()),
                 fmt::format("the output is in {}", output_dir.string())};
  }
  // Renamed into place: whoever looks sees the old link or the new one, never none.
  fs::path fresh = runs / fmt::format(".{}.{}", number, getpid());
  fs::remove(fresh, failed);
  fs::create_symlink(output_dir, fresh, failed);
  if (!failed) fs::rename(fresh, link, failed);
  if (failed) {
    std::error_code ignored;
    fs::remove(fresh, ignored);
    return errno_error(fmt::format("linking {}", link.string()), failed.value());
  }
  return as_typed(link);
}

std::string typed_output(const fs::path& project, uint32_t number, const std::string& output_dir) {
  if (is_by_key()) return fmt::format("{}:{}", name_of_there(), output_dir);
  std::error_code failed;
  const fs::path link = project / "runs" / fmt::format("{}", number);
  return fs::read_symlink(link, failed) == output_dir ? as_typed(link) : output_dir;
}

std::string end_json(const pb::ExperimentInfo& outcome, const std::string& output_dir, const std::optional<BestMember>& best) {
  nlohmann::ordered_json object = {{"type", "end"},
                                   {"id", outcome.id()},
                                   {"state", outcome.state()},
                                   {"reason", outcome.reason()},
                                   {"exit_code", exit_code_of(outcome)},
                                   {"output_dir", nullptr}};
  if (!output_dir.empty()) object["output_dir"] = output_dir;
  object["best"] = json_of(best);
  return object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

Result<int> follow(Connection& connection, const CommandContext& context,
                   const pb::Accepted& accepted, FollowOptions options) {
  std::string id = fmt::format("{}", accepted.number());
  std::string output = accepted.output_dir();
  if (const std::string machine = remote_machine(); !machine.empty()) {
    output = fmt::format("{}:{} ({} output cp {})", name_of_there(), output, called(), id);
  } else if (options.project.is_absolute() && !output.empty()) {
    auto linked = link_output(options.project, accepted.number(), output);
    if (linked.ok()) {
      output = linked.value();
    } else {
      // A project on a read-only disk trains all the same.
      const Error& error = linked.error();
      warn({error.message + (error.hint.empty() ? "" : "; " + error.hint)});
    }
  }
  if (!context.json) {
    for (const std::string& notice : accepted.notices()) {
      say(as_called(notice));
    }
  }
  if (options.detach) {
    print_detached(context, id, accepted);
    return 0;
  }
  Screen screen = screen_of(STDOUT_FILENO);
  WatchOptions watching;
  watching.request.set_id(id);
  watching.request.set_follow(true);
  watching.tied = std::move(options.tied);
  watching.fold = screen.is_terminal;
  if (context.json) {
    watching.printer = std::make_unique<JsonPrinter>();
  } else {
    watching.printer = std::make_unique<LogPrinter>(log_format_of(screen, options.time));
  }
  std::fflush(stdout);  // what follows is written past stdio
  auto watched = watch(connection, context, std::move(watching));
  if (!watched.ok()) {
    // Accepted is accepted: whatever keeps us from seeing its end, nothing was refused.
    Error error = watched.error();
    if (error.hint.empty()) {
      error.hint = fmt::format("{0} was accepted: {1} status {0} says what becomes of it, {1} kill {0} ends it", id, called());
    }
    print_error(error, context.json);
    return 1;
  }
  WatchEnd& end = watched.value();
  if (end.how == WatchHow::NobodyReads || end.how == WatchHow::Detached) {
    say_detached(id, end.how);
    return 0;
  }
  if (end.how == WatchHow::Killed && end.outcome.id().empty()) return 130;
  const auto best = end.outcome.members() > 0 ? ask_for_best(connection, id) : std::nullopt;
  Status written = end.written;
  if (context.json) {
    Sink sink(STDOUT_FILENO);
    sink.write(end_json(end.outcome, accepted.output_dir(), best));
    if (written.ok()) written = sink.written();
  } else {
    add_hint(connection, end.outcome);
    std::string text = end.ending.text(end.outcome, output, screen_of(STDERR_FILENO), best ? best_text(*best) : "");
    std::fwrite(text.data(), 1, text.size(), stderr);
  }
  const int exit_code = exit_code_of(end.outcome);
  if (written.ok()) return exit_code;
  print_error(written.error(), context.json);
  return exit_code != 0 ? exit_code : 1;
}

}  // namespace dtrain::cli
