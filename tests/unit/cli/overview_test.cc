#include "cli/overview.h"

#include <doctest/doctest.h>

namespace dtrain::cli {
namespace {

constexpr Command kCommands[] = {
    {"train", "Every day", "run it", nullptr},
    {"status", "Every day", "what runs", nullptr},
    {"why", "Experiments", "the reason", nullptr},
    {"keeper", "", "hidden", nullptr},
};

TEST_CASE("commands are listed under their group, hidden ones not") {
  const std::string text = render_overview(kCommands, 0);
  CHECK(text.find("\nEvery day\n  train         run it\n  status        what runs\n\nExperiments\n"
                  "  why           the reason\n") != std::string::npos);
  CHECK(text.find("keeper") == std::string::npos);
}

TEST_CASE("an unknown command gets the nearest one") {
  const Error error = unknown_command("statsu", kCommands);
  CHECK(error.code == Code::InvalidArgument);
  CHECK(error.message == "there is no command 'statsu'; did you mean 'status'?");
  CHECK(error.hint == "dtrain --help lists them");
  CHECK(unknown_command("xyzzy", kCommands).message == "there is no command 'xyzzy'");
  CHECK(unknown_command("keepe", kCommands).message == "there is no command 'keepe'");
}

TEST_CASE("a word of other platforms gets the command that does the same here") {
  constexpr Command kTwo[] = {{"train", "Every day", "run it", nullptr},
                              {"runner", "Machines", "be a host", nullptr}};
  CHECK(unknown_command("run", kTwo).message == "there is no command 'run'; did you mean 'train'?");
  CHECK(unknown_command("submit", kTwo).message ==
        "there is no command 'submit'; did you mean 'train'?");
  CHECK(unknown_command("ls", kTwo).message == "there is no command 'ls'; did you mean 'output ls'?");
  CHECK(unknown_command("cp", kTwo).message == "there is no command 'cp'; did you mean 'output cp'?");
  CHECK(unknown_command("whoami", kTwo).message == "there is no command 'whoami'");
  CHECK(unknown_command("whoami", kTwo).hint.starts_with("dtrain users says whose key you come with; "));
  CHECK(unknown_command("runne", kTwo).message ==
        "there is no command 'runne'; did you mean 'runner'?");
}

}  // namespace
}  // namespace dtrain::cli
