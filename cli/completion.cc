// completion bash|zsh|fish, and the two hidden commands that its scripts call: __words (commands,
// or the options of one) and __ids (experiments that the daemon knows).
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "cli/commands.h"
#include "cli/connection.h"

namespace dtrain::cli {

namespace {

// Enough for a person to choose from.
constexpr uint32_t kIdsMax = 50;

constexpr const char* kBash = R"sh(# dtrain completion for bash: eval "$(dtrain completion bash)"
_dtrain() {
  local word=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]}
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "$(dtrain __words 2>/dev/null)" -- "$word"))
    return
  fi
  COMPREPLY=($(compgen -W "$(dtrain __words "$command" 2>/dev/null)" -- "$word"))
  case $word in
    -*) return ;;
  esac
  case $command in
    status|logs|monitor|kill|why|wait|rerun|output)
      COMPREPLY+=($(compgen -W "$(dtrain __ids 2>/dev/null)" -- "$word")) ;;
  esac
}
complete -o default -F _dtrain dtrain
)sh";

constexpr const char* kZsh = R"sh(#compdef dtrain
# dtrain completion for zsh: eval "$(dtrain completion zsh)" after compinit
_dtrain() {
  local command=${words[2]}
  if (( CURRENT == 2 )); then
    compadd -- ${(f)"$(dtrain __words 2>/dev/null)"}
    return
  fi
  compadd -- ${(f)"$(dtrain __words $command 2>/dev/null)"}
  case $command in
    status|logs|monitor|kill|why|wait|rerun|output)
      compadd -- ${(f)"$(dtrain __ids 2>/dev/null)"} ;;
    *) _files ;;
  esac
}
compdef _dtrain dtrain
)sh";

constexpr const char* kFish = R"sh(# dtrain completion for fish: dtrain completion fish | source
complete -c dtrain -n '__fish_is_first_token' -f -a '(dtrain __words 2>/dev/null)'
complete -c dtrain -n 'not __fish_is_first_token' \
  -a '(dtrain __words (commandline -opc)[2] 2>/dev/null)'
complete -c dtrain -f -a '(dtrain __ids 2>/dev/null)' \
  -n '__fish_seen_subcommand_from status logs monitor kill why wait rerun output'
)sh";

Result<int> print_words(const std::string& command, const CommandContext& context) {
  if (command.empty()) {
    for (const Command& known : context.commands) {
      if (!known.group.empty()) fmt::print("{}\n", known.name);
    }
    return 0;
}
const auto found = std::find_if(context.commands.begin(), context.commands.end(),
                                [&](const Command& known) { return known.name == command; });
if (found == context.commands.end()) return 1;
for (const std::string& word : completion_words(*found)) fmt::print("{}\n", word);
return 0;
}  // namespace

// Someone who presses Tab must not start a daemon, nor read an error.
Result<int> print_ids(const CommandContext& context) {
  auto connection = connect(Autostart::No, context);
  if (!connection.ok()) return 1;
  pb::ListRequest request;
  request.set_all(true);
  request.set_last(kIdsMax);
  const auto reply = connection.value().list(request);
  if (!reply.ok()) return 1;
  for (const auto& info : reply.value().experiments()) fmt::print("{}\n", info.id());
  return 0;
}

}  // namespace dtrain::cli

Run declare_completion(Options& options, CommandContext&) {
  const auto print = [](const char* script) -> Run {
    return [script]() -> Result<int> {
      fmt::print("{}", script);
      return 0;
    };
  };
  options.subcommand("bash", "eval \"$(dtrain completion bash)\"",
                     [&](Options&) { return print(kBash); });
  options.subcommand("zsh", "eval \"$(dtrain completion zsh)\"",
                     [&](Options&) { return print(kZsh); });
  options.subcommand("fish", "dtrain completion fish | source",
                     [&](Options&) { return print(kFish); });
  return nullptr;
}

Run declare_words(Options& options, CommandContext& context) {
  auto command = std::make_shared<std::string>();
  options.positional("COMMAND", *command, "whose options");
  return [command, &context] { return print_words(*command, context); };
}

Run declare_ids(Options&, CommandContext& context) {
  return [&context] { return print_ids(context); };
}

}  // namespace dtrain::cli
