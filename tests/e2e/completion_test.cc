// What a shell offers: bash's own script, called as bash does when somebody presses Tab.
#include <doctest/doctest.h>

#include <algorithm>
#include <sstream>

#include "tests/support/cluster.h"

using namespace dtrain::tests;

namespace {

// For the last of these words, of which the first is the program.
std::vector<std::string> offered(const Cluster& cluster, const std::string& typed) {
  Command bash = cluster.command({"completion", "bash"});
  const std::string program = bash.argv[bash.argv.size() - 3];
  bash.argv = {"bash", "-c",
               "eval \"$($0 completion bash)\"; COMP_WORDS=($0 " + typed + "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); "
               "_dtrain $0; printf '%s\\n' \"${COMPREPLY[@]}\"",
               program};
  const Output output = run(bash);
  CHECK_MESSAGE(output.err.empty(), output.err);
  std::istringstream lines(output.out);
  std::vector<std::string> words;
  for (std::string line; std::getline(lines, line);) words.push_back(line);
  return words;
}

using Words = std::vector<std::string>;

bool has(const Words& words, const std::string& word) { return std::ranges::find(words, word) != words.end(); }

}  // namespace

TEST_CASE("Tab offers commands, their options and what these take") {
  Cluster cluster;
  CHECK(offered(cluster, "sus") == Words{"suspend"});
  CHECK(offered(cluster, "__") == Words{""});
  CHECK(has(offered(cluster, "kill --f"), "--force"));
  CHECK(offered(cluster, "logs --time e") == Words{"elapsed"});
  CHECK(has(offered(cluster, "output ''"), "cp"));
  CHECK(cluster.processes().empty());   // nobody started a daemon for it
}

TEST_CASE("Tab offers experiments, and those that are over only where they can be meant") {
  Cluster cluster;
  const fs::path project = cluster.project("project: p\ntrain: {resources: {cpus: 0.1, mem: 32}, run: 'true'}\n");
  REQUIRE(cluster.run({"train"}, project).code == 0);
  REQUIRE(cluster.run({"train", "-d", "--", "sleep", "1000"}, project).code == 0);
  CHECK(offered(cluster, "kill ''") == Words{"2"});
  CHECK(offered(cluster, "suspend ''") == Words{"2"});
  CHECK(offered(cluster, "logs ''") == Words{"1", "2"});
  CHECK(offered(cluster, "train --after ''") == Words{"1", "2"});
  CHECK(offered(cluster, "train --after 1,2") == Words{"1,2"});
  CHECK(cluster.run({"kill", "2"}).code == 0);
}
