// dtrain status against a daemon of canned answers.
#include <doctest/doctest.h>

#include "fake_daemon.h"
#include "tests/support/process.h"

namespace dtrain::cli {
namespace {

tests::Output status(std::vector<std::string> words) {
  words.insert(words.begin(), {BIN_DIR "/dtrain", "status"});
  return tests::run({words, "/", {}, {}});
}

TEST_CASE("what can't be read is listed by the word that lists have for it, ended or not") {
  const ScratchHome scratch;
  FakeDaemon daemon(scratch.home());
  for (const char* state : {"RUNNING", "UNREADABLE"}) {
    pb::ExperimentInfo& info = *daemon.list.add_experiments();
    info.set_id(std::to_string(daemon.list.experiments_size()));
    info.set_state(state);
  }
  const tests::Output listed = status({"--state", "unreadable"});
  CHECK(daemon.asked_list.all());
  CHECK(listed.code == 0);
  CHECK_MESSAGE(listed.out.find("UNREADABLE") != std::string::npos, listed.all());
  CHECK_MESSAGE(listed.out.find("RUNNING") == std::string::npos, listed.all());
}

TEST_CASE("a project is not named, but stood in") {
  const tests::Output named = status({"--project", "toaster"});
  CHECK(named.code == 2);
  CHECK(named.err == "dtrain: --project is for the list of experiments\n  hint: --project takes no name: it is the project that you stand in\n");
  CHECK(status({"--project", "4"}).err.ends_with("hint: dtrain status 4 shows that one, whatever it is\n"));
}

}  // namespace
}  // namespace dtrain::cli
