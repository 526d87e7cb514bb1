// examples/quickstart.sh, in a checkout whose programs are built already: what it does and says from there on.
#include <doctest/doctest.h>

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <vector>

#include "tests/support/cluster.h"
#include "tests/support/facts.h"
#include "tests/support/skipped.h"

using namespace dtrain::tests;

namespace {

// Of the script and its example alone. cmake and ninja have nothing to do there.
class Checkout {
 public:
  explicit Checkout(Cluster& cluster) : cluster_(cluster), root_(cluster.folder() / "checkout") {
    const fs::path sources = SOURCE_DIR;
    fs::create_directories(root_ / "build/release");
    fs::create_directory_symlink(BIN_DIR, root_ / "build/release/bin");
    fs::create_directories(root_ / "examples/digits");
    for (const char* file : {"quickstart.sh", "digits/dtrain.yml"}) {
      fs::copy_file(sources / "examples" / file, root_ / "examples" / file);
    }
    fs::copy(sources / ".cmake", root_ / ".cmake", fs::copy_options::recursive);
    for (const char* tool : {"cmake", "ninja"}) {
      const fs::path path = root_ / "tools" / tool;
      fs::create_directories(path.parent_path());
      write_file(path, "#!/bin/sh\necho \"$0 $*\"\n");
      fs::permissions(path, fs::perms::owner_all);
    }
  }

  // In a process group of its own, as a terminal starts it.
  Command command() const {
    Command command = cluster_.command({}, root_);
    command.argv = {"setsid", "./examples/quickstart.sh"};
    command.env["PATH"] = (root_ / "tools").string() + ":" + std::getenv("PATH");
    return command;
  }
  const fs::path& root() const { return root_; }

 private:
  Cluster& cluster_;
  const fs::path root_;
};

bool has(const Output& output, const std::string& text) { return output.all().find(text) != std::string::npos; }

// What `commands` prints with the functions of .cmake/build.sh, ninja's words on its standard input.
std::string shown(const std::string& commands, const std::string& ninja) {
  Command command;
  command.argv = {"bash", "-euo", "pipefail", "-c",
                  "source .cmake/build.sh; printf '%b' \"$1\" | " + commands, "bash", ninja};
  command.directory = SOURCE_DIR;
  const Output output = run(command);
  CHECK_MESSAGE(output.code == 0, output.all());
  return output.out;
}

}  // namespace

// A guess is right for one digit in ten. From 20000 digits, half of what are drawn here, it learned 97.3 to 99.3 in a
// hundred (16 runs, with other work beside them and without): workers that are not in step never do twice the same.
TEST_CASE("the quickstart goes on after Ctrl-C, gets 19 of 20 new digits right, and says what it has and what to do next") {
  if (::access("/usr/bin/apt-get", X_OK) != 0) return say_skipped("it installs what it needs by apt, which is not here");
  Cluster cluster;
  cluster.own_ports();
  const Checkout checkout(cluster);
  {
    Process first(checkout.command());
    first.wait_for(" epoch=", std::chrono::seconds(180));
    REQUIRE(::kill(-first.pid(), SIGINT) == 0);
    const Output stopped = first.wait();
    CHECK(stopped.code == 130);
    CHECK(stopped.out.starts_with("[1/4] packages all there\n[2/4] build    dtrain "));
    CHECK_MESSAGE(has(stopped, "\n[3/4] data     40000 + 10000 digits of 28x28, "), stopped.all());
    CHECK_MESSAGE(stopped.err.ends_with("\nStopped at train. Nothing is broken: run it again to go on.\n"), stopped.err);
    CHECK(facts(cluster.run({"status", "1", "--json"}))["state"] == "KILLED");
  }

  const Output done = run(checkout.command(), std::chrono::seconds(180));
  REQUIRE_MESSAGE(done.code == 0, done.all());
  CHECK_MESSAGE(has(done, "B of digits are there\n[4/4] train    LeNet, 1 master, 2 workers, 1 ps\n"), done.all());
  const fs::path project = checkout.root() / "examples/digits";
  const Json shown = facts(cluster.run({"status", "2", "--json"}));
  CHECK(shown["state"] == "FINISHED");
  for (const char* id : {"2.master", "2.worker.1", "2.worker.2", "2.ps.1"}) {
    CHECK(with_id(shown["replicas"], id)["state"] == "FINISHED");
  }
  // A line an epoch, of the master; and how the script finds the accuracy.
  const std::string lines = cluster.run({"logs", "--raw", "2.master"}, project).out;
  for (int epoch = 1; epoch <= 5; ++epoch) {
    const size_t line = lines.find("epoch=" + std::to_string(epoch) + " ");
    REQUIRE_MESSAGE(line != std::string::npos, lines);
    const std::string text = lines.substr(line, lines.find('\n', line) - line);
    for (const char* key : {" loss=", " accuracy=", " samples_per_second="}) {
      CHECK_MESSAGE(text.find(key) != std::string::npos, text);
    }
    CHECK_MESSAGE((text.find(" left=") != std::string::npos) == (epoch < 5), text);
  }
  const std::string accuracy = lines.substr(lines.rfind(" accuracy=") + 10, 6);
  CHECK(std::stod(accuracy) > 0.95);
  CHECK(fs::file_size(project / "runs/2/model.safetensors") > 100'000);

  CHECK_MESSAGE(has(done, "\nTest accuracy: " + accuracy + "\nThe model:     examples/digits/runs/2/model.safetensors, "), done.out);
  for (const char* next : {"load_file(\"examples/digits/runs/2/model.safetensors\")", "  cd examples/digits\n", "  dtrain compare 2 3 "}) {
    CHECK_MESSAGE(has(done, next), done.out);
  }
}

TEST_CASE("a build says how far it is, and on a terminal how long it takes") {
  std::string ninja;
  for (const char* at : {"1/200 0.9", "40/200 20.3", "120/200 60.0", "199/200 99.9", "200/200 101.2"}) {
    ninja += std::string("[") + at + "] Building\nand what a compiler says\n";
  }
  CHECK(shown("show_fifths", ninja) == "20% 40% 60% 80% ");
  CHECK(shown("show_fifths", "ninja: no work to do.\n").empty());
  CHECK(shown("show_steps", "ninja: no work to do.\n").empty());

  const std::string steps = shown("show_steps", ninja);
  CHECK(steps.starts_with("[1/200]\b\b\b\b\b\b\b[40/200] 80 s left\b"));
  CHECK(steps.find("[120/200] 40 s left") != std::string::npos);
  // It ends where it began, with blanks behind.
  CHECK(std::count(steps.begin(), steps.end(), '\b') * 2 == static_cast<long>(steps.size()));
}
