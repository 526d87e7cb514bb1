// What a machine does to people: full disks, missing programs, a daemon that is not there.
#include <doctest/doctest.h>
#include <poll.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "tests/support/cluster.h"
#include "tests/support/facts.h"
#include "tests/support/skipped.h"

using namespace dtrain::tests;

namespace {

// A file system of a few megabytes for the life of a test.
class SmallDisk {
 public:
  SmallDisk(const fs::path& at, const std::string& size) : at_(at) {
    fs::create_directories(at_);
    std::string options = "mode=0700,size=" + size;
    mounted_ = mount("tmpfs", at_.c_str(), "tmpfs", 0, options.c_str()) == 0;
  }
  ~SmallDisk() {
    if (mounted_) umount2(at_.c_str(), MNT_DETACH);
  }
  SmallDisk(const SmallDisk&) = delete;
  SmallDisk& operator=(const SmallDisk&) = delete;
  bool is_mounted() const { return mounted_; }

 private:
  fs::path at_;
  bool mounted_ = false;
};

std::string noise(size_t bytes) {
  std::string text(bytes, '\0');
  uint64_t state = 1;
  for (char& byte : text) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    byte = static_cast<char>(state >> 56);
  }
  return text;
}

fs::path folder_of_its_own() {
  std::string pattern = (fs::temp_directory_path() / "dtrain-disk-XXXXXX").string();
  REQUIRE(mkdtemp(pattern.data()) != nullptr);
  return pattern;
}

}  // namespace

TEST_CASE("a daemon that can't have the descriptors to begin with says so, and does not break") {
  Cluster cluster;
  for (const std::string descriptors : {"10", "14", "16", "18", "30"}) {
    CAPTURE(descriptors);
    Command command = cluster.command({"daemon", "run", "--no-local-runner"});
    const std::string limited = "ulimit -n " + descriptors + "; exec \"$0\" \"$@\"";
    command.argv.insert(command.argv.begin(), {"/bin/sh", "-c", limited});
    const Output refused = run(command);
    CHECK(refused.code == 2);
    CHECK(refused.err == "dtrain: open 64 descriptors, to begin with: Too many open files\n"
                         "  hint: raise the limit of open files (ulimit -n)\n");
  }
}

TEST_CASE("a second daemon of one home is refused like anything else that a command refuses") {
  Cluster cluster;
  REQUIRE(cluster.run({"daemon", "start"}).code == 0);
  const Output second = cluster.run({"daemon", "run"});
  CHECK(second.code == 2);
  CHECK_MESSAGE(second.err.starts_with("dtrain: a daemon runs already: "), second.err);
  CHECK_MESSAGE(second.err.ends_with("\n  hint: `dtrain daemon status` shows it\n"), second.err);
}

TEST_CASE("a full disk refuses the submission; with room again the same command works") {
  fs::path folder = folder_of_its_own();
  {
    SmallDisk disk(folder, "16m");
    if (!disk.is_mounted()) {
      say_skipped("mounting a small file system needs root");
      fs::remove(folder);
      return;
    }
    Cluster cluster(folder / "home");
    fs::path project =
        cluster.project("project", {{"dtrain.yml", "project: p\ntrain: {run: echo it works}\n"}});
    CHECK(cluster.run({"train"}, project).code == 0);

    write_file(project / "large.bin", noise(24 << 20));
    Output output = cluster.run({"train"}, project);
    CHECK(output.code != 0);
    CHECK_MESSAGE(output.err.find("space") != std::string::npos, output.all());
    CHECK(facts(cluster.run({"status", "-a", "--json"}))["experiments"].size() == 1);

    fs::remove(project / "large.bin");
    output = cluster.run({"train"}, project);
    CHECK_MESSAGE(output.code == 0, output.all());
    CHECK(output.out.find("it works") != std::string::npos);
  }
  fs::remove(folder);
}

TEST_CASE("prune makes room on a disk that is full to its last byte") {
  const fs::path folder = folder_of_its_own();
  {
    SmallDisk disk(folder, "48m");
    if (!disk.is_mounted()) {
      say_skipped("mounting a small file system needs root");
      fs::remove(folder);
      return;
    }
    Cluster cluster(folder / "home");
    const std::string shared = noise(2 << 20);
    const std::string yaml = "project: p\ntrain: {run: echo}\n";
    // Of the first something stays, of the second nothing.
    const fs::path first = cluster.project(
        "first", {{"dtrain.yml", yaml}, {"shared.bin", shared}, {"own.bin", noise(5 << 20)}});
    const fs::path second =
        cluster.project("second", {{"dtrain.yml", yaml}, {"own.bin", noise(4 << 20).substr(1)}});
    const fs::path third = cluster.project("third", {{"dtrain.yml", yaml}, {"shared.bin", shared}});
    for (const fs::path& project : {first, second, third}) {
      REQUIRE(cluster.run({"train"}, project).code == 0);
    }
    // The next runner comes once this one has deleted what it put off: nothing becomes free by
    // itself.
    REQUIRE(cluster.run({"daemon", "stop"}).code == 0);
    REQUIRE(cluster.run({"daemon", "start"}).code == 0);
    const fs::path fill = folder / "fill";
    {
      std::ofstream zeros(fill);
      const std::string block(64 << 10, '\0');
      while (zeros.write(block.data(), static_cast<std::streamsize>(block.size())).flush()) {
      }
    }
    const Output prune = cluster.run({"prune", "1", "2", "--yes"});
    fs::remove(fill);
    CHECK_MESSAGE(prune.code == 0, prune.all());
    CHECK(!fs::exists(cluster.home() / "blobs/1.pack"));
    CHECK(!fs::exists(cluster.home() / "blobs/2.pack"));
    CHECK(facts(cluster.run({"status", "-a", "--json"}))["experiments"].size() == 1);
    CHECK(cluster.run({"rerun", "3"}).code == 0);
  }
  fs::remove(folder);
}

TEST_CASE("what fills the disk can be killed, and all is over by itself once there is room") {
  fs::path folder = folder_of_its_own();
  {
    SmallDisk disk(folder, "16m");
    if (!disk.is_mounted()) {
      say_skipped("mounting a small file system needs root");
      fs::remove(folder);
      return;
    }
    Cluster cluster(folder / "home");
    const fs::path reached = cluster.folder() / "reached", held = cluster.folder() / "held";
    REQUIRE(mkfifo(reached.c_str(), 0600) == 0);
    REQUIRE(mkfifo(held.c_str(), 0600) == 0);
    fs::path project = cluster.project("project: p\ntrain:\n  run: cat /dev/zero 2>&- > " +
                                       (folder / "zeros").string() + "; echo $$ > " + reached.string() +
                                       "; exec cat " + held.string() + "\n");
    REQUIRE(cluster.run({"train", "-d"}, project).code == 0);
    Command read;
    read.argv = {"/bin/cat", reached.string()};   // which waits for the program to write it
    const pid_t pid = std::stoi(run(read).out);
    pollfd ended = {static_cast<int>(syscall(SYS_pidfd_open, pid, 0)), POLLIN, 0};
    REQUIRE(ended.fd >= 0);

    const Output kill = cluster.run({"kill", "1"}, project);
    CHECK(kill.code == 2);
    CHECK_MESSAGE(kill.err.find("the processes of 1 are being ended, but that can't be written down") !=
                      std::string::npos,
                  kill.err);
    CHECK_MESSAGE(kill.err.find("hint: free some space") != std::string::npos, kill.err);
    CHECK(poll(&ended, 1, 20'000) == 1);
    close(ended.fd);
    const Output why = cluster.run({"why", "1"}, project);
    CHECK_MESSAGE(why.out.find("the daemon can't write: database ") != std::string::npos, why.all());
    const Output stop = cluster.run({"daemon", "stop", "--kill"}, project);
    CHECK(stop.code == 2);
    CHECK_MESSAGE(stop.err.find("the daemon stays") != std::string::npos, stop.err);

    fs::remove(folder / "zeros");
    CHECK(cluster.run({"wait", "1"}, project).code == 130);
    CHECK(cluster.run({"daemon", "stop", "--kill"}, project).code == 0);
  }
  fs::remove(folder);
}

TEST_CASE("output that the disk can't hold is lost in its place, told of once, and holds up no end") {
  fs::path folder = folder_of_its_own();
  {
    SmallDisk disk(folder, "12m");
    if (!disk.is_mounted()) {
      say_skipped("mounting a small file system needs root");
      fs::remove(folder);
      return;
    }
    Cluster cluster(folder / "home");
    fs::path project =
        cluster.project("project: p\ntrain: {run: yes abcdefghijklmnop | head -c 40000000}\n");
    const Output output = cluster.run({"train", "-d"}, project);
    REQUIRE_MESSAGE(output.code == 0, output.all());
    CHECK(cluster.run({"wait", "1"}, project).code == 0);
    const Output logs = cluster.run({"logs", "1"}, project);
    std::istringstream lines(logs.out);
    size_t losses = 0, again = 0;
    bool before = false;
    for (std::string line; std::getline(lines, line);) {
      const bool loss = line.find("of output lost here") != std::string::npos;
      losses += loss;
      again += loss && before;
      before = loss;
    }
    CHECK(losses > 0);
    CHECK(again == 0);
  }
  fs::remove(folder);
}

TEST_CASE("a home that can't be written says so, with its path") {
  Cluster cluster(fs::path("/proc/nothing/here"));
  Output output = cluster.run({"status"});
  CHECK(output.code != 0);
  CHECK_MESSAGE(output.err.find("/proc/nothing") != std::string::npos, output.err);
}

TEST_CASE("a daemon stopped by hand stays stopped, and every command says how to start it") {
  Cluster cluster;
  fs::path project = cluster.project("project: p\ntrain: {run: echo}\n");
  CHECK(cluster.run({"train"}, project).code == 0);
  CHECK(cluster.run({"daemon", "stop"}).code == 0);
  for (const char* command : {"train", "status", "logs"}) {
    Output output = cluster.run({command}, project);
    CHECK_MESSAGE(output.code == 2, command << ": " << output.all());
    CHECK_MESSAGE(output.err.find("dtrain daemon start") != std::string::npos, output.err);
  }
  Output status = cluster.run({"daemon", "status", "--json"});
  CHECK(status.code == 1);
  CHECK(Json::parse(status.out)["running"] == false);
  CHECK(cluster.run({"daemon", "start"}).code == 0);
  CHECK(cluster.run({"train"}, project).code == 0);
}

TEST_CASE("two commands that start the daemon at the same time start one") {
  Cluster cluster;
  fs::path project = cluster.project("project: p\ntrain: {run: echo ok}\n");
  std::vector<std::unique_ptr<Process>> trains;
  for (int i = 0; i < 4; ++i) trains.push_back(cluster.start({"train"}, project));
  for (auto& train : trains) {
    Output output = train->wait();
    CHECK_MESSAGE(output.code == 0, output.all());
  }
  CHECK(facts(cluster.run({"status", "-a", "--json"}))["experiments"].size() == 4);
  CHECK(facts(cluster.run({"hosts", "--json"}))["hosts"].size() == 1);
}

TEST_CASE("a command that is not there is named, and where it was looked for") {
  Cluster cluster;
  fs::path programs = cluster.folder() / "programs";
  fs::create_directories(programs);
  for (const char* name : {"sh", "cat", "mount", "umount"}) {
    fs::create_symlink(fs::path("/bin") / name, programs / name);
  }
  cluster.env["PATH"] = programs.string();
  fs::path project = cluster.project("project: p\ntrain: {run: python train.py}\n");
  Output output = cluster.run({"train"}, project);
  CHECK(output.code == 127);
  CHECK_MESSAGE(output.all().find("python: not found") != std::string::npos, output.all());
  const Output why = cluster.run({"why"}, project);
  CHECK_MESSAGE(why.out.find("PATH is that of whoever started the daemon") != std::string::npos, why.all());
}

TEST_CASE("a directory of ours that may not be written to is named, and all goes on once it may be") {
  Cluster cluster;
  fs::path project = cluster.project("project: p\ntrain: {run: echo it works}\n");
  cluster.drop_root();
  REQUIRE(cluster.run({"train"}, project).code == 0);
  for (const std::string name : {"logs", "outputs", "runner/launches", "runner/work"}) {
    CAPTURE(name);
    fs::permissions(cluster.home() / name, fs::perms::owner_read | fs::perms::owner_exec);
    auto train = cluster.start({"train"}, project);
    train->wait_for("ermission denied");
    CHECK_MESSAGE((train->out() + train->err()).find(name) != std::string::npos, train->err());
    fs::permissions(cluster.home() / name, fs::perms::owner_all);
    Output output = train->wait();
    CHECK_MESSAGE(output.code == 0, output.all());
    CHECK(output.out.find("it works") != std::string::npos);
  }
}
