#include "cli/overview.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "cli/remote.h"
#include "cli/terminal.h"
#include "schema/quote.h"
#include "schema/suggest.h"

namespace dtrain::cli {

namespace {

struct Elsewhere {
  std::string_view word;
  std::string_view command;
};

// What other platforms and schedulers call it; `run` would be taken for `runner` misspelt.
constexpr Elsewhere kElsewhere[] = {
    {"run", "train"},   {"submit", "train"}, {"launch", "train"},    {"apply", "train"},
    {"stop", "kill"},   {"cancel", "kill"},  {"ps", "status"},       {"list", "status"},
    {"ls", "output ls"}, {"cp", "output cp"},
    {"queue", "status"}, {"describe", "status"}, {"top", "monitor"},
    {"nodes", "hosts"}, {"system", "hosts"},
    {"tunnel", "port-forward"},  {"forward", "port-forward"},
};

std::string_view meant_by(std::string_view word, const std::vector<std::string_view>& known) {
  const auto* found = std::find_if(std::begin(kElsewhere), std::end(kElsewhere),
                                   [&](const Elsewhere& each) { return each.word == word; });
  return found == std::end(kElsewhere) ? nearest(word, known) : found->command;
}

}  // namespace

std::string render_overview(std::span<const Command> commands, size_t width) {
  std::string text = wrapped("dtrain runs what is in this directory as a distributed experiment.", width, 0) +
                     "\nusage: dtrain COMMAND [options]\n";
  std::string_view group;
  for (const Command& command : commands) {
    if (command.group.empty()) continue;
    if (command.group != group) text += fmt::format("\n{}\n", command.group);
    group = command.group;
    text += fmt::format("  {:<14}{}\n", command.name, wrapped(command.summary, width, 16));
  }
  return text + "\n" + wrapped(as_called("First time here: dtrain init, then dtrain train. More of one: dtrain COMMAND --help"), width, 0) + "\n" +
         wrapped("With the daemon of another machine, by SSH: dtrain --on user@host COMMAND, or DTRAIN_ON", width, 0) + "\n";
}

Error unknown_command(std::string_view word, std::span<const Command> commands) {
  if (word == "whoami") {
    return Error{Code::InvalidArgument, "there is no command 'whoami'",
                 "dtrain users says whose key you come with; without one you are DTRAIN_USER, or else your account, and "
                 "dtrain status -u shows whose each experiment is"};
  }
  std::vector<std::string_view> known;
  for (const Command& command : commands) {
    if (!command.group.empty()) known.push_back(command.name);
  }
  Error error = {Code::InvalidArgument, fmt::format("there is no command {}", in_quotes(word)),
                 "dtrain --help lists them"};
  const std::string_view meant = meant_by(word, known);
  if (!meant.empty()) error.message += fmt::format("; did you mean '{}'?", meant);
  return error;
}

}  // namespace dtrain::cli
