#include "cli/command.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>

namespace dtrain::cli {
namespace {

struct Typed {
  std::string file, id, explained;
  std::vector<std::string> parameters, ids, rest;
  uint64_t last = 10;
  double cpus = 0;
  bool all = false, explain = false;
};
Typed* typed_last = nullptr;

Run declare_sample(Options& options, CommandContext& context) {
  auto typed = std::make_shared<Typed>();
  options.text("-f,--file", typed->file, "a file", "FILE");
  options.list("-p,--parameter", typed->parameters, "a parameter", "NAME=VALUE");
  options.number("-n,--num-last", typed->last, "how many");
  options.real("--cpus", typed->cpus, "processors");
  options.choice("-t,--time", typed->id, {"clock", "iso"}, "the time");
  options.flag("-a,--all", typed->all, "all");
  options.foreign_flag("-l,--logs");
  options.optional_text("--explain-sync", typed->explain, typed->explained, "why", "FILE");
  options.positionals("ID", typed->ids, "which");
  options.rest(typed->rest, "COMMAND...", "what to run");
  options.json(context);
  options.footer("An example.");
  return [typed]() -> Result<int> {
    static Typed kept;
    kept = *typed;
    typed_last = &kept;
    return 7;
  };
}

Run declare_parent(Options& options, CommandContext&) {
  for (const char* name : {"start", "stop"}) {
    options.subcommand(name, "does it", [name](Options& below) -> Run {
      auto kill = std::make_shared<bool>(false);
      below.flag("--kill", *kill, "first");
      return [name, kill]() -> Result<int> {
        return (std::string(name) == "stop" ? 10 : 20) + (*kill ? 1 : 0);
      };
    });
  }
  return nullptr;
}

Run declare_runs(Options& options, CommandContext&) {
  auto typed = std::make_shared<Typed>();
  options.text("-f,--file", typed->file, "a file", "FILE");
  options.rest(typed->rest, "COMMAND...", "what to run");
  return [typed]() -> Result<int> { return 0; };
}

constexpr Command kRuns = {"runs", "Group", "runs something", declare_runs};
constexpr Command kSample = {"sample", "Group", "a sample", declare_sample};
constexpr Command kParent = {"parent", "Group", "a parent", declare_parent};

Error refusal(const Command& command, std::vector<std::string> words) {
  CommandContext context;
  auto run = parse_command(command, context, std::move(words));
  REQUIRE(!run.ok());
  return run.error();
}

TEST_CASE("options reach their variables") {
  CommandContext context;
  auto run = parse_command(kSample, context,
                           {"-f", "x.yml", "-p", "a=1", "4", "-p", "b=2", "4.2", "--cpus", "0.5",
                            "-n3", "-a", "--json", "--", "python", "train.py", "--epochs", "3"});
  REQUIRE(run.ok());
  CHECK(run.value()().value() == 7);
  const Typed& typed = *typed_last;
  CHECK(typed.file == "x.yml");
  CHECK(typed.parameters == std::vector<std::string>{"a=1", "b=2"});
  CHECK(typed.ids == std::vector<std::string>{"4", "4.2"});
  CHECK(typed.rest == std::vector<std::string>{"python", "train.py", "--epochs", "3"});
  CHECK(typed.cpus == 0.5);
  CHECK(typed.last == 3);
  CHECK(typed.all);
  CHECK(!typed.explain);
  CHECK(context.json);
}

TEST_CASE("what another platform's command takes is accepted and shown nowhere") {
  CommandContext context;
  CHECK(parse_command(kSample, context, {"-l", "--logs", "4"}).ok());
  const std::vector<std::string> words = completion_words(kSample);
  CHECK(std::find(words.begin(), words.end(), "-a") != words.end());
  CHECK(std::find(words.begin(), words.end(), "-l") == words.end());
  CHECK(refusal(kSample, {"--log"}).message == "sample: there is no option '--log'");
}

TEST_CASE("an option whose value may be left out") {
  CommandContext context;
  auto run = parse_command(kSample, context, {"--explain-sync"});
  REQUIRE(run.ok());
  (void)run.value()();
  CHECK(typed_last->explain);
  CHECK(typed_last->explained.empty());
  run = parse_command(kSample, context, {"--explain-sync", "a.py"});
  REQUIRE(run.ok());
  (void)run.value()();
  CHECK(typed_last->explained == "a.py");
}

TEST_CASE("a word that does not belong is refused with the nearest that does") {
  const Error error = refusal(kSample, {"--al"});
  CHECK(error.code == Code::InvalidArgument);
  CHECK(error.message == "sample: there is no option '--al'; did you mean '--all'?");
  CHECK(error.hint == "dtrain sample --help lists what it takes");
  CHECK(refusal(kSample, {"-x"}).message == "sample: there is no option '-x'");
  CHECK(refusal(kParent, {"strat"}).message ==
        "parent: 'strat' is none of start, stop; did you mean 'start'?");
  CHECK(refusal(kParent, {"foo"}).message == "parent: 'foo' is none of start, stop");
  CHECK(refusal(kParent, {}).message == "parent: say what to do: start, stop");
  CHECK(refusal(kParent, {"stop", "--kil"}).message ==
        "parent stop: there is no option '--kil'; did you mean '--kill'?");
}

TEST_CASE("a file without its option and a command without its dashes are understood") {
  CHECK(refusal(kRuns, {"x.yml"}).message ==
        "runs: 'x.yml' does not belong here; did you mean '-f x.yml'?");
  CHECK(refusal(kRuns, {"python", "train.py"}).hint ==
        "a command goes after --: dtrain runs -- python train.py");
  CHECK(refusal(kRuns, {"sh", "run.sh"}).message == "runs: 'sh' does not belong here");   // and no -h
  CHECK(refusal(kRuns, {"sh", "run.sh"}).hint == "a command goes after --: dtrain runs -- sh run.sh");
  CHECK(refusal(kRuns, {"sh run.sh | cat"}).hint == "a command goes after --: dtrain runs -- 'sh run.sh | cat'");
}

TEST_CASE("values are checked") {
  CHECK(refusal(kSample, {"-n", "many"}).message ==
        "sample: --num-last: 'many' is not a whole number");
  CHECK(refusal(kSample, {"-n", "-1"}).message == "sample: --num-last: '-1' is less than 0");
  CHECK(refusal(kSample, {"-n", "-one"}).message == "sample: --num-last: '-one' is not a whole number");
  CHECK(refusal(kSample, {"-n", "99999999999999999999"}).message == "sample: --num-last: '99999999999999999999' is too large");
  CHECK(refusal(kSample, {"--cpus", "1e999"}).message == "sample: --cpus: '1e999' is out of range");
  CHECK(refusal(kSample, {"--cpus", "1x"}).message == "sample: --cpus: '1x' is not a number");
  CHECK(refusal(kSample, {"-f"}).message == "sample: --file takes a value");
}

TEST_CASE("an empty word in the place of an ID is no ID left out") {
  const Error error = refusal(kSample, {"4", ""});
  CHECK(error.message == "sample: ID is empty");
  CHECK(error.hint == "which");
}

TEST_CASE("the subcommand that was typed runs, with its own options") {
  CommandContext context;
  CHECK(parse_command(kParent, context, {"stop", "--kill"}).value()().value() == 11);
  CHECK(parse_command(kParent, context, {"start"}).value()().value() == 20);
}

TEST_CASE("completion offers every option and subcommand") {
  const auto words = completion_words(kParent);
  CHECK(words == std::vector<std::string>{"--help", "--kill", "-h", "start", "stop"});
  CHECK(completion_values(kSample, "--time") == std::vector<std::string>{"clock", "iso"});
  CHECK(completion_values(kSample, "-t") == std::vector<std::string>{"clock", "iso"});
  CHECK(completion_values(kSample, "--cpus").empty());
}

}  // namespace
}  // namespace dtrain::cli
