// How a command is declared. Each command is one file with one function
//
//   Run declare_status(Options& options, CommandContext& context);
//
// that names its options and returns what runs once they are parsed. main.cc holds the table of all
// commands and declares only the one that was typed. Options hides CLI11, whose header is expensive,
// behind options.cc; it also lets `completion` read the same declarations.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "schema/result.h"

namespace CLI {
class App;
}

namespace dtrain::cli {

// What every command knows besides its own options.
struct CommandContext {
  bool json = false;      // --json; only where the command declared it with Options::json
  std::string program;    // the executable that runs, for starting the daemon
};

// The command itself; gives the exit code. An Error is printed by main, which also picks the code.
using Run = std::function<Result<int>()>;

// The options of one command (or subcommand). A variable given here must live until Run is over:
// declare_x keeps them in a shared_ptr that its Run captures.
//
// `names` is CLI11's form: "-f,--file" for options, "ID" for positionals. Asking twice for a name is
// a bug of ours and aborts.
class Options {
 public:
  explicit Options(CLI::App& app) : app_(app) {}
  Options(const Options&) = delete;
  Options& operator=(const Options&) = delete;

  void flag(const std::string& names, bool& value, const std::string& help);
  void text(const std::string& names, std::string& value, const std::string& help,
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
  // An option whose value may be left out: --explain-sync [FILE]. `given` says that it was there.
  void optional_text(const std::string& names, bool& given, std::string& value,
                     const std::string& help, const std::string& placeholder = "TEXT");
  void positional(const std::string& name, std::string& value, const std::string& help,
                  bool required = false);
  void positionals(const std::string& name, std::vector<std::string>& values,
                   const std::string& help, bool required = false);
  // Everything after "--", untouched: train -- python train.py --epochs 3.
  void rest(std::vector<std::string>& words, const std::string& help);
  // --json, into the context.
  void json(CommandContext& context);
  // Lines shown after the options in --help: examples.
  void footer(const std::string& text);
  // Not shown in help or completion: for ourselves.
  void hide();

  // A command below this one; `declare` is called at once, and the Run of the chosen one is run.
  void subcommand(const std::string& name, const std::string& summary,
                  const std::function<Run(Options&)>& declare);

  CLI::App& app() { return app_; }
  // The chosen subcommand's Run after parsing; null when none was typed.
  const Run& chosen() const;

 private:
  struct Subcommand {
    std::unique_ptr<Options> options;
    Run run;
  };
  CLI::App& app_;
  std::vector<Subcommand> subcommands_;
};

}  // namespace dtrain::cli
