#include "cli/overview.h"

#include <vector>

#include "schema/quote.h"
#include "schema/suggest.h"

namespace dtrain::cli {

std::string render_overview(std::span<const Command> commands) {
  std::string text =
      "dtrain runs what is in this directory as a distributed experiment.\n"
      "usage: dtrain COMMAND [options]\n";
  std::string_view group;
  for (const Command& command : commands) {
    if (command.group.empty()) continue;
    if (command.group != group) text += fmt::format("\n{}\n", command.group);
    group = command.group;
    text += fmt::format("  {:<12}{}\n", command.name, command.summary);
  }
  return text +
         "\nFirst time here: dtrain init, then dtrain train. More of one: dtrain COMMAND --help\n";
}

Error unknown_command(std::string_view word, std::span<const Command> commands) {
  std::vector<std::string_view> known;
  for (const Command& command : commands) {
    if (!command.group.empty()) known.push_back(command.name);
  }
  Error error = {Code::InvalidArgument, fmt::format("there is no command {}", in_quotes(word)),
                 "dtrain --help lists them"};
  const std::string_view meant = nearest(word, known);
  if (!meant.empty()) error.message += fmt::format("; did you mean '{}'?", meant);
  return error;
}

}  // namespace dtrain::cli
