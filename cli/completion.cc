// completion bash|zsh|fish, and the two hidden commands that its scripts call: __words (commands,
// the options of one, or the words that one of those takes) and __ids (experiments that the daemon knows, and
// that a command can be about).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <string_view>

#include "cli/commands.h"
#include "cli/connection.h"

namespace dtrain::cli {

namespace {

// Enough for a person to choose from.
constexpr uint32_t kIdsMax = 50;

// What an option takes after it; options after a dash; else what a subcommand can be, then IDs, then files.
constexpr const char* kBash = R"sh(# dtrain completion for bash: eval "$(dtrain completion bash)"
_dtrain() {
  local word=${COMP_WORDS[COMP_CWORD]} command=${COMP_WORDS[1]} words=
  local before=${COMP_WORDS[COMP_CWORD-1]} values= done=
  if [[ $COMP_CWORD -gt 1 && $before == -* ]]; then
    case $before in
      --after|--after-end) values=$("$1" __ids 2>/dev/null) ;;
      *) values=$("$1" __words "$command" -- "$before" 2>/dev/null) ;;
    esac
  fi
  if [ -n "$values" ]; then
    words=$values done=${word%"${word##*,}"}
  elif [ "$COMP_CWORD" -eq 1 ]; then
    words=$("$1" __words 2>/dev/null)
  elif [[ $word == -* ]]; then
    words=$("$1" __words "$command" 2>/dev/null | grep '^-')
  else
    [ "$COMP_CWORD" -eq 2 ] && words=$("$1" __words "$command" 2>/dev/null | grep -v '^-')
    case $command in
      status|compare|tensorboard|logs|monitor|exec|port-forward|kill|suspend|resume|why|wait|rerun|checkout|export) words=$("$1" __ids "$command" 2>/dev/null) ;;
      output) [ "$COMP_CWORD" -eq 3 ] && words=$("$1" __ids 2>/dev/null) ;;
    esac
  fi
  COMPREPLY=($(compgen -P "$done" -W "$words" -- "${word#"$done"}"))
}
complete -o default -F _dtrain dtrain
)sh";

constexpr const char* kZsh = R"sh(#compdef dtrain
# dtrain completion for zsh: eval "$(dtrain completion zsh)" after compinit
_dtrain() {
  local command=${words[2]}
  if (( CURRENT == 2 )); then
    compadd -- ${(f)"$($words[1] __words 2>/dev/null)"}
    return
  fi
  local -a known=(${(f)"$($words[1] __words $command 2>/dev/null)"})
  if [[ $words[CURRENT] == -* ]]; then
    compadd -- ${(M)known:#-*}
    return
  fi
  if [[ $words[CURRENT-1] == --after || $words[CURRENT-1] == --after-end ]]; then
    compset -P '*,'
    compadd -- ${(f)"$($words[1] __ids 2>/dev/null)"}
    return
  fi
  if [[ $words[CURRENT-1] == -* ]]; then
    local -a values=(${(f)"$($words[1] __words $command -- $words[CURRENT-1] 2>/dev/null)"})
    if (( $#values )); then
      compset -P '*,'
      compadd -- $values
      return
    fi
  fi
  (( CURRENT == 3 )) && compadd -- ${known:#-*}
  case $command in
    status|compare|tensorboard|logs|monitor|exec|port-forward|kill|suspend|resume|why|wait|rerun|checkout|export) compadd -- ${(f)"$($words[1] __ids $command 2>/dev/null)"} ;;
    output) (( CURRENT == 4 )) && compadd -- ${(f)"$($words[1] __ids 2>/dev/null)"} ;;
    train|check) _files ;;
  esac
}
if [[ $funcstack[1] == _dtrain ]]; then _dtrain "$@"; else compdef _dtrain dtrain; fi
)sh";

constexpr const char* kFish = R"sh(# dtrain completion for fish: dtrain completion fish | source
function __dtrain_words
  set -l typed (commandline -opc)
  set -l known (dtrain __words $typed[2] 2>/dev/null)
  if string match -q -- '-*' $typed[-1]
    set -l values (dtrain __words $typed[2] -- $typed[-1] 2>/dev/null)
    if test (count $values) -gt 0
      set -l done (string match -r -- '^.*,' (commandline -ct))
      for value in $values
        echo "$done$value"
      end
      return
    end
  end
  if string match -q -- '-*' (commandline -ct)
    string match -- '-*' $known
  else if test (count $typed) -eq 2
    string match -v -- '-*' $known
  end
end
complete -c dtrain -n __fish_is_first_token -f -a '(dtrain __words 2>/dev/null)'
complete -c dtrain -n 'not __fish_is_first_token' -a '(__dtrain_words)'
complete -c dtrain -n '__fish_seen_subcommand_from daemon completion output' -f
complete -c dtrain -n '__fish_seen_subcommand_from status compare tensorboard logs monitor exec port-forward kill suspend resume why wait rerun checkout export' \
  -f -a '(dtrain __ids (commandline -opc)[2] 2>/dev/null)'
complete -c dtrain -n '__fish_seen_subcommand_from train rerun' -l after -x -a '(dtrain __ids 2>/dev/null)'
complete -c dtrain -n '__fish_seen_subcommand_from train rerun' -l after-end -x -a '(dtrain __ids 2>/dev/null)'
complete -c dtrain -n '__fish_seen_subcommand_from path ls cp' -a '(dtrain __ids 2>/dev/null)'
)sh";

Result<int> print_words(const std::string& command, const std::vector<std::string>& option,
                        const CommandContext& context) {
  if (command.empty()) {
    for (const Command& known : context.commands) {
      if (!known.group.empty()) fmt::print("{}\n", known.name);
    }
    return 0;
  }
  const auto found = std::find_if(context.commands.begin(), context.commands.end(),
                                  [&](const Command& known) { return known.name == command; });
  if (found == context.commands.end()) return 1;
  const std::vector<std::string> words =
      option.empty() ? completion_words(*found) : completion_values(*found, option.front());
  for (const std::string& word : words) fmt::print("{}\n", word);
  return 0;
}

// Those that are nothing to an experiment that is over.
constexpr std::array<std::string_view, 5> kOfLiving{"exec", "kill", "port-forward", "resume", "suspend"};

// Someone who presses Tab must not start a daemon, nor read an error.
Result<int> print_ids(const std::string& command, const CommandContext& context) {
  auto connection = connect(Autostart::No, context);
  if (!connection.ok()) return 1;
  pb::ListRequest request;
  request.set_all(std::ranges::find(kOfLiving, command) == kOfLiving.end());
  request.set_last(kIdsMax);
  const auto reply = connection.value().list(request);
  if (!reply.ok()) return 1;
  for (const auto& info : reply.value().experiments()) fmt::print("{}\n", info.id());
  return 0;
}

}  // namespace

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
  auto option = std::make_shared<std::vector<std::string>>();
  options.rest(*option, "OPTION", "what it takes instead");
  return [command, option, &context] { return print_words(*command, *option, context); };
}

Run declare_ids(Options& options, CommandContext& context) {
  auto command = std::make_shared<std::string>();
  options.positional("COMMAND", *command, "for which");
  return [command, &context] { return print_ids(*command, context); };
}

}  // namespace dtrain::cli
