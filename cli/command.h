// How a command is declared. Each command is one file with one function
//
//   Run declare_status(Options& options, CommandContext& context);
//
// that names its options and returns what runs once they are parsed. main.cc holds the table of all
// commands and declares only the one that was typed. Options hides CLI11, whose header is
// expensive, behind options.cc; it also lets `completion` read the same declarations.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "schema/result.h"

namespace CLI {
class App;
class Option;
}

namespace dtrain::cli {

class Options;
struct CommandContext;

// The command itself; gives the exit code. An Error is printed by main, which also picks the code.
using Run = std::function<Result<int>()>;

// A row of the table of commands.
struct Command {
  std::string_view name;
  std::string_view group;  // heading in `dtrain --help`; empty: hidden
  std::string_view summary;
  Run (*declare)(Options& options, CommandContext& context);
};

// What every command knows besides its own options. Outlives the Run.
struct CommandContext {
  bool json = false;    // --json; only where the command declared it with Options::json
  std::string program;  // the executable that runs, for starting the daemon
  std::span<const Command> commands;  // the whole table, for completion
};

// The options of one command (or subcommand). A variable given here must live until Run is over:
// declare_x keeps them in a shared_ptr that its Run captures.
//
// `names` is "-f,--file" for options and "ID" for positionals. Asking twice for a name is a bug of
// ours and aborts.
class Options {
 public:
  explicit Options(CLI::App& app) : app_(app) {}
  Options(const Options&) = delete;
  Options& operator=(const Options&) = delete;

  void flag(const std::string& names, bool& value, const std::string& help);
  // What another platform's command takes and says nothing here: accepted, and shown nowhere.
  void foreign_flag(const std::string& names);
  void text(const std::string& names, std::string& value, const std::string& help,
            const std::string& placeholder = "TEXT");
  // Which may be given as nothing, too.
  void text(const std::string& names, std::optional<std::string>& value, const std::string& help,
            const std::string& placeholder = "TEXT");
  void number(const std::string& names, uint64_t& value, const std::string& help,
              const std::string& placeholder = "N");
  void real(const std::string& names, double& value, const std::string& help,
            const std::string& placeholder = "X");
  // Given once per value: -p a=1 -p b=2.
  void list(const std::string& names, std::vector<std::string>& values, const std::string& help,
            const std::string& placeholder = "TEXT");
  // One word of a fixed set.
  void choice(const std::string& names, std::string& value, const std::vector<std::string>& words,
              const std::string& help);
  // Of an option that takes other texts, too: what completion offers for it.
  void offer(const std::string& name, std::vector<std::string> words);
  // An option whose value may be left out: --explain-sync [FILE]. `given` says that it was there.
  void optional_text(const std::string& names, bool& given, std::string& value,
                     const std::string& help, const std::string& placeholder = "TEXT");
  void positional(const std::string& name, std::string& value, const std::string& help,
                  bool required = false);
  void positionals(const std::string& name, std::vector<std::string>& values,
                   const std::string& help, bool required = false);
  // Positionals that are the ID of an experiment or replica, or Kubeflow's name of one, of which the Run sees the ID.
  void id(std::string& value, const std::string& help, bool required = false);
  void ids(std::vector<std::string>& values, const std::string& help, bool required = false);
  // An option that is given IDs, each one or several with commas between.
  void id_list(const std::string& name, std::vector<std::string>& values, const std::string& help);
  // Everything after "--", untouched: train -- python train.py --epochs 3.
  void rest(std::vector<std::string>& words, const std::string& placeholder,
            const std::string& help);
  // --json, into the context.
  void json(CommandContext& context);
  // Shown below the options in --help: examples.
  void footer(const std::string& text);

  // A command below this one; `declare` is called at once.
  void subcommand(const std::string& name, const std::string& summary,
                  const std::function<Run(Options&)>& declare);

 private:
  friend class CommandLine;
  struct Subcommand {
    CLI::App* app = nullptr;
    std::unique_ptr<Options> options;
    Run run;
  };
  struct Rest {
    std::vector<std::string>* words = nullptr;
    std::string placeholder;
    std::string help;
  };
  CLI::App& app_;
  std::vector<Subcommand> subcommands_;
  std::vector<std::function<void()>> after_parse_;
  std::vector<std::string*> ids_;
  std::vector<std::vector<std::string>*> id_lists_;
  std::vector<std::pair<const CLI::Option*, std::vector<std::string>>> offered_;
  Rest rest_;
};

// What to run for the words typed after `command`'s name. --help gives a Run that prints the help.
// InvalidArgument for a word that does not belong, with the nearest one that does.
Result<Run> parse_command(const Command& command, CommandContext& context,
                          std::vector<std::string> words);

// The options and subcommands that `command` takes, for completion: {"-a", "--all", "start"}.
std::vector<std::string> completion_words(const Command& command);
// The words that its `option` takes: {"last", "min", "max"} of --value; empty where nobody can say.
std::vector<std::string> completion_values(const Command& command, const std::string& option);

}  // namespace dtrain::cli
