// What is taken where an ID is left out, against a daemon of canned answers.
#include "cli/looked_at.h"

#include <doctest/doctest.h>

#include "fake_daemon.h"
#include "tests/support/process.h"

namespace dtrain::cli {
namespace {

TEST_CASE("a command without an ID says where it takes what is of another project, and only then") {
  const ScratchHome scratch;
  FakeDaemon daemon(scratch.home());
  pb::ExperimentInfo& newest = *daemon.show.mutable_experiment();
  newest.set_id("5");
  newest.set_project("toaster");
  newest.set_state("FINISHED");
  newest.set_project_dir("/elsewhere");
  const auto said = [](std::vector<std::string> words) {
    words.insert(words.begin(), BIN_DIR "/dtrain");
    const tests::Output output = tests::run({words, "/", {}, {}});
    CHECK_MESSAGE(output.code == 0, output.all());
    return output.err;
  };
  const std::string note = "Note: nothing was submitted from /: this is the newest that there is for you, 5 of project toaster in /elsewhere\n";
  CHECK(said({"why"}) == note);
  CHECK(said({"compare"}) == note);
  CHECK(said({"why", "--json"}) == note);
  CHECK(said({"why", "5"}).empty());
  newest.set_project_dir("/");
  CHECK(said({"why"}).empty());
}

}  // namespace
}  // namespace dtrain::cli
