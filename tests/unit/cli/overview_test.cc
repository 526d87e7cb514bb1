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
  const std::string text = render_overview(kCommands);
  CHECK(text.find("\nEvery day\n  train       run it\n  status      what runs\n\nExperiments\n"
                  "  why         the reason\n") != std::string::npos);
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

}  // namespace
}  // namespace dtrain::cli
