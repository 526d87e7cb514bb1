#include "cli/remote.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "cli/errors.h"
#include "cli/why.h"

namespace dtrain::cli {
namespace {

namespace fs = std::filesystem;

// As main begins, and as if nothing had been typed again.
struct Called {
  explicit Called(std::vector<std::string> words) { REQUIRE(take_remote_machine(words).ok()); }
  ~Called() {
    unsetenv("DTRAIN_ON");
    setenv("DTRAIN_CALLED", "dtrain", 1);
    std::vector<std::string> none;
    (void)take_remote_machine(none).ok();
  }
};

TEST_CASE("commands that texts name are for the daemon that was called") {
  CHECK(as_called("dtrain status 4 tells") == "dtrain status 4 tells");
  const Called far({"--on", "me@far", "status"});
  CHECK(as_called("dtrain status 4 and (dtrain why 4)") == "dtrain --on me@far status 4 and (dtrain --on me@far why 4)");
  CHECK(as_called("`dtrain hosts` says why; dtrain daemon stop && dtrain daemon start") ==
        "`dtrain --on me@far hosts` says why; dtrain --on me@far daemon stop && dtrain --on me@far daemon start");
  // No commands, those of no daemon, those that name another, and those for another machine.
  for (const char* text : {"an older dtrain trains on", "dtrain there may be too old", "dtrain init writes one", "dtrain --on x status", "./dtrain status",
                           "mydtrain status", "`dtrain hosts invite`, where the daemon runs, makes another", "dtrain", "dtrain "}) {
    CHECK(as_called(text) == text);
  }
}

TEST_CASE("a machine or a key whose name a shell would take apart is quoted") {
  const Called by_key({"--on", "my keys/anna.key", "status"});
  CHECK(called() == "dtrain --on 'my keys/anna.key'");
}

TEST_CASE("over there it is called what it is over here, and what it starts is not told") {
  setenv("DTRAIN_CALLED", "dtrain --on far", 1);
  const Called over_there({"status"});
  CHECK(called() == "dtrain --on far");
  CHECK(std::getenv("DTRAIN_CALLED") == nullptr);
}

TEST_CASE("hints, whoever they are of, are for the daemon that was called") {
  const Called far({"--on", "far", "status"});
  CHECK(error_text({Code::NotFound, "no experiment 9", "dtrain status -a lists all"}) ==
        "dtrain: no experiment 9\n  hint: dtrain --on far status -a lists all\n");
  CHECK(error_json({Code::NotFound, "no", "dtrain status"}).find("dtrain --on far status") != std::string::npos);
  pb::ShowReply reply;
  reply.mutable_experiment()->set_id("4");
  reply.mutable_experiment()->set_state("PENDING");
  reply.mutable_experiment()->set_hint("`dtrain hosts` says why");
  CHECK(find_why(reply).hint == "`dtrain --on far hosts` says why");
  reply.mutable_experiment()->set_state("SUSPENDED");
  reply.mutable_experiment()->clear_hint();
  CHECK(find_why(reply).hint == "dtrain --on far resume 4 lets it go on");
}

// A text that is printed otherwise than as an error's hint says called(), or goes through as_called().
TEST_CASE("no text names a command that would go to another daemon") {
  // Their hints go through it where they are gathered; the runner's is no command of a daemon's.
  const std::set<std::string> gathered = {"why.cc", "failure_hint.cc", "hosts_verdict.cc", "hosts_test.cc", "engine_data.cc", "main.cc", "completion.cc", "remote.cc"};
  const std::regex named("dtrain (train|status|logs|monitor|kill|compare|why|wait|exec|port-forward|rerun|checkout|suspend|resume|output|"
                         "tensorboard|prune|export|hosts|users|daemon)\\b");
  const std::regex passed("Error\\{|Error\\(|\\{Code::|as_called\\(|footer\\(|options\\.");
  size_t looked_at = 0;
  for (const auto& entry : fs::directory_iterator(fs::path(SOURCE_DIR) / "cli")) {
    if (entry.path().extension() != ".cc" || gathered.contains(entry.path().filename().string())) continue;
    std::ifstream in(entry.path());
    std::stringstream whole;
    whole << in.rdbuf();
    const std::string text = whole.str();
    for (std::sregex_iterator at(text.begin(), text.end(), named), end; at != end; ++at) {
      const auto place = static_cast<size_t>(at->position());
      const std::string line = text.substr(text.rfind('\n', place) + 1, place - text.rfind('\n', place) - 1);
      if (line.find("//") != line.npos || std::ranges::count(line, '"') % 2 == 0) continue;   // a comment
      ++looked_at;
      const size_t ended = text.rfind(";\n", place), closed = text.rfind("}\n", place);
      const size_t begin = std::max(ended == text.npos ? 0 : ended, closed == text.npos ? 0 : closed);
      if (!std::regex_search(text.substr(begin, place - begin), passed)) FAIL_CHECK(entry.path().filename().string() << ": " << line << at->str());
    }
  }
  CHECK(looked_at > 20);
}

}  // namespace
}  // namespace dtrain::cli
