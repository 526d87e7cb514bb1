#include "cli/prune.h"

#include <fmt/format.h>

#include <memory>

#include "cli/ask.h"
#include "cli/commands.h"
#include "cli/connection.h"
#include "cli/id_ranges.h"
#include "cli/json_output.h"
#include "cli/remote.h"
#include "cli/words.h"
#include "schema/ids.h"
#include "schema/quote.h"
#include "schema/text_formats.h"

namespace dtrain::cli {

namespace {

struct PruneOptions {
  std::vector<std::string> ids;
  std::string older_than;
  bool outputs = false;
  bool environments = false;
  bool cache = false;
  bool dry_run = false;
  bool yes = false;
};

Status put_numbers(const std::vector<std::string>& ids, pb::PruneRequest& request) {
  request.clear_numbers();
  for (const std::string& text : ids) {
    if (is_range(text)) continue;
    TRY(const ExperimentId id, parse_experiment_id(text));
    if (id.member != 0) {
      return Error{Code::InvalidArgument,
                   fmt::format("{} is one member, and a set is forgotten as a whole", text),
                   fmt::format("dtrain prune {}", id.number)};
    }
    request.add_numbers(id.number);
  }
  return ok();
}

Result<pb::PruneRequest> request_of(const PruneOptions& options) {
  pb::PruneRequest request;
  TRY(put_numbers(options.ids, request));
  if (!options.older_than.empty()) {
    const auto older_than_ms = parse_duration_ms(options.older_than);
    if (!older_than_ms || *older_than_ms <= 0) {
      return Error{Code::InvalidArgument,
                   fmt::format("--older-than {}: expected a duration above 0, such as 30d or 12h",
                               in_quotes(options.older_than)),
                   ""};
    }
    request.set_older_than_ms(static_cast<uint64_t>(*older_than_ms));
  }
  request.set_outputs(options.outputs);
  request.set_environments(options.environments);
  request.set_trees(options.cache);
  return request;
}

bool is_nothing(const pb::PruneReply& reply) {
  return reply.numbers().empty() && reply.blob_bytes() == 0 && reply.environments() == 0 && reply.tree_bytes() == 0;
}

// Of what hosts have, and that was asked for.
std::string nothing_unused(const pb::PruneRequest& asked) {
  if (!asked.trees()) return "there is no environment that nothing uses";
  return asked.environments() ? "there is no environment and no kept file that nothing uses" : "there is no kept file that nothing uses";
}

Result<int> prune(const PruneOptions& options, const CommandContext& context) {
  TRY(pb::PruneRequest request, request_of(options));
  TRY(Connection connection, connect(Autostart::IfNeeded, context));
  TRY(const auto ids, without_ranges(options.ids, connection, [](const pb::ExperimentInfo& info) { return may_be_changed(info) && is_over(info.state()); }));
  TRY(put_numbers(ids, request));
  if (!options.yes || options.dry_run) {
    request.set_dry_run(true);
    TRY(const pb::PruneReply plan, connection.prune(request));
    const bool nothing = is_nothing(plan);
    if (context.json && (options.dry_run || nothing)) {
      fmt::print("{}", to_json(plan, false));
      return 0;
    }
    if (!context.json) fmt::print("{}", render_pruned(plan, request, false));
    if (options.dry_run || nothing) return 0;
    std::fflush(stdout);
    TRY(const bool agreed, ask("Forget them?", {Code::InvalidArgument,
                                                "this can't be taken back, and nobody is there to ask",
                                                "--yes does it, --dry-run only shows it"}));
    if (!agreed) {
      fmt::print(stderr, "Nothing was changed\n");
      return 2;
    }
    // What was shown, and not what has become old since.
    *request.mutable_numbers() = plan.numbers();
    request.set_older_than_ms(0);
  }
  request.set_dry_run(false);
  TRY(const pb::PruneReply reply, connection.prune(request));
  fmt::print("{}", context.json ? to_json(reply, true) : render_pruned(reply, request, true));
  return 0;
}

}  // namespace

std::string number_ranges(const pb::PruneReply& reply) {
  std::string text;
  for (int first = 0; first < reply.numbers_size();) {
    int last = first;
    while (last + 1 < reply.numbers_size() && reply.numbers(last + 1) == reply.numbers(last) + 1) {
      ++last;
    }
    text += fmt::format("{}{}", text.empty() ? "" : ", ", reply.numbers(first));
    if (last > first) text += fmt::format("{}{}", last == first + 1 ? ", " : "-", reply.numbers(last));
    first = last + 1;
  }
  return text;
}

std::string render_pruned(const pb::PruneReply& reply, const pb::PruneRequest& asked, bool done) {
  const auto count = static_cast<uint64_t>(reply.numbers_size());
  if (is_nothing(reply)) {
    const bool experiments = asked.numbers_size() > 0 || asked.older_than_ms() > 0;
    const bool hosts = asked.environments() || asked.trees();
    if (!experiments && !hosts) {
      return as_called("Nothing to forget: dtrain prune ID, --older-than 30d, --environments or --cache says what\n");
    }
    if (!experiments) return "T" + nothing_unused(asked).substr(1) + "\n";
    return fmt::format("Nothing to forget: nothing ended so long ago{}\n", hosts ? ", and " + nothing_unused(asked) : "");
  }
  std::string text;
  if (count > 0) {
    text += fmt::format("{} {}: {}\n", human_count(count, "ended experiment"),
                        done ? (count == 1 ? "is forgotten" : "are forgotten") : "to forget",
                        number_ranges(reply));
    text += fmt::format("  {:<14} {}\n", "output lines", human_size(reply.log_bytes()));
  }
  if (count > 0 || reply.blob_bytes() > 0) {
    text += fmt::format("{}{:<14} {} that nothing else needs\n", count > 0 ? "  " : "", "sent files",
                        human_size(reply.blob_bytes()));
  }
  if (count > 0) {
    const char* fate = asked.outputs() ? (done ? "deleted from" : "deleted too, from") : "stay in";
    text += fmt::format("  {:<14} {} {}\n", "results", fate, reply.outputs());
  }
  if (reply.environments() > 0) {
    text += fmt::format("{}{:<14} {} that nothing uses, {} on {}{}\n", count > 0 ? "  " : "", "environments",
                        reply.environments(), human_size(reply.environment_bytes()),
                        human_count(reply.environment_hosts(), "host"),
                        done ? ", being deleted" : "");
  }
  if (reply.tree_bytes() > 0) {
    text += fmt::format("{}{:<14} {} of sent files that nothing uses, on {}{}\n", count > 0 ? "  " : "", "kept files",
                        human_size(reply.tree_bytes()), human_count(reply.tree_hosts(), "host"), done ? ", being deleted" : "");
  }
  return text;
}

Run declare_prune(Options& options, CommandContext& context) {
  auto typed = std::make_shared<PruneOptions>();
  options.ids(typed->ids, "ended experiments (4, 4-9) to forget");
  options.text("--older-than", typed->older_than, "and all that ended longer ago: 30d, 12h", "TIME");
  options.flag("--outputs", typed->outputs, "delete their results in OUTPUT_DIR too");
  options.flag("--environments", typed->environments,
               "delete the Python environments on the hosts that nothing uses");
  options.flag("--cache", typed->cache, "delete what hosts keep of sent files for the next run, and nothing uses");
  options.flag("--dry-run", typed->dry_run, "only show what would go");
  options.flag("-y,--yes", typed->yes, "don't ask");
  options.json(context);
  options.footer(
      "Their output lines and facts go, and sent files that no other experiment needs.\n"
      "config.yml can let the daemon do it by itself: keep: {ended: 90d, logs: 50GiB}");
  return [typed, &context] { return prune(*typed, context); };
}

}  // namespace dtrain::cli
