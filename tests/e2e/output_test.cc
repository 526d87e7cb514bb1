// What replicas print and what people send, at sizes and in bytes nobody planned for.
#include <doctest/doctest.h>

#include <algorithm>
#include <sstream>

#include "tests/support/cluster.h"
#include "tests/support/facts.h"

using namespace dtrain::tests;

namespace {

uint64_t peak_memory_kb(const Json& pid) {
  std::istringstream status(read_file("/proc/" + pid.dump() + "/status"));
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("VmHWM:", 0) == 0) return std::stoull(line.substr(6));
  }
  return 0;
}

}  // namespace

TEST_CASE("one endless line passes through whole, and nobody keeps it in memory") {
  Cluster cluster;
  constexpr int64_t kBytes = 192 << 20;
  fs::path project =
      cluster.project("project: p\ntrain:\n  run: head -c " + std::to_string(kBytes) +
                      " /dev/zero | tr '\\0' x; echo; echo the end\n");
  Output output = cluster.run({"train"}, project, std::chrono::seconds(120));
  CHECK(output.code == 0);
  // The state lines and the last one hold a few more.
  int64_t seen = std::count(output.out.begin(), output.out.end(), 'x');
  CHECK(seen >= kBytes);
  CHECK(seen < kBytes + 100);
  CHECK(output.out.find("the end") != std::string::npos);
  Json daemon = facts(cluster.run({"daemon", "status", "--json"}));
  CHECK(peak_memory_kb(daemon["pid"]) < 128 << 10);   // 36 to 90 MiB were seen
}

TEST_CASE("bytes that are no UTF-8 arrive as they are with --raw, and never break JSON") {
  Cluster cluster;
  fs::path project =
      cluster.project("project: p\ntrain:\n  run: printf 'caf\\351 \\377\\376\\000 end\\n'\n");
  CHECK(cluster.run({"train"}, project).code == 0);
  Output raw = cluster.run({"logs", "1", "--raw"}, project);
  CHECK(raw.out.find(std::string("caf\xe9 \xff\xfe\0 end", 12)) != std::string::npos);
  Output json = cluster.run({"logs", "1", "--json"}, project);
  std::istringstream lines(json.out);
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    CHECK_MESSAGE(Json::accept(line), line);
  }
  CHECK(count > 0);
}

TEST_CASE("what was printed before an end stands before it, each time") {
  Cluster cluster;
  const fs::path project = cluster.project("project: p\ntrain:\n  restart: {limit: 11, backoff: 0s}\n  run: echo printed in $DTRAIN_ATTEMPT; exit 3\n");
  CHECK(cluster.run({"train"}, project).code == 3);
  const Output logs = cluster.run({"logs", "1"}, project);
  std::vector<std::string> order;
  for (int attempt = 1; attempt <= 12; ++attempt) {
    order.push_back("printed in " + std::to_string(attempt) + "\n");
    order.push_back(attempt < 12 ? "--> RESTARTING" : "--> STOPPING");
  }
  CHECK_MESSAGE(has_in_order(logs.out, order), logs.out);
}

TEST_CASE("output into a full disk is no success") {
  Cluster cluster;
  fs::path project = cluster.project("project: p\ntrain: {run: echo}\n");
  CHECK(cluster.run({"train"}, project).code == 0);
  for (const std::string words : {"logs 1", "schema", "monitor --once 1", "train --dry-run", "wait 1", "wait 1 --json"}) {
    Command shell = cluster.command({}, project);
    shell.argv = {"sh", "-c", "$0 " + words + " > /dev/full", shell.argv.front()};
    Output output = run(shell);
    CHECK_MESSAGE(output.code == 1, words);
    CHECK_MESSAGE(output.err.find("writing the output: No space left on device") != std::string::npos, output.err);
  }
  // What was accepted goes on, and is to be found again.
  Command shell = cluster.command({}, project);
  shell.argv = {"sh", "-c", "$0 train > /dev/full", shell.argv.front()};
  Output output = run(shell);
  CHECK(output.code == 1);
  CHECK_MESSAGE(output.err.find("dtrain status 2") != std::string::npos, output.err);
  // It is not ended for want of room, and its end is told.
  for (const std::string form : {"", " --json"}) {
    shell = cluster.command({}, project);
    shell.argv = {"sh", "-c", "$0 train --tied" + form + " > /dev/full", shell.argv.front()};
    output = run(shell);
    CHECK(output.code == 1);
    CHECK_MESSAGE(output.err.find("No space left on device") != std::string::npos, output.err);
  }
  CHECK(cluster.run({"wait", "3", "4"}).out == "3 FINISHED\n4 FINISHED\n");
}

TEST_CASE("who reads no more ends what shows a failure as quietly as anything else") {
  Cluster cluster;
  const fs::path project = cluster.project("project: p\ntrain: {run: 'echo why; exit 3'}\n");
  CHECK(cluster.run({"train"}, project).code == 3);
  for (const std::string words : {"status 1", "why 1"}) {
    Command shell = cluster.command({}, project);
    shell.argv = {"sh", "-c",
                  "mkfifo \"$1\"; { read go < \"$1\"; $0 " + words + "; echo code=$? >&2; } | { exec <&-; echo > \"$1\"; }",
                  shell.argv.front(), (cluster.folder() / ("gate " + words)).string()};
    const Output output = run(shell);
    CHECK_MESSAGE(output.err == "code=141\n", output.err);   // by SIGPIPE
  }
}

TEST_CASE("Ctrl-C in logs says by its exit code that what was written is a part") {
  Cluster cluster;
  const fs::path project = cluster.project("project: p\ntrain: {run: 'echo first; yes a line that is not so short | head -n 2000000'}\n");
  CHECK(cluster.run({"train", "-d"}, project).code == 0);
  CHECK(cluster.run({"wait", "1"}).code == 0);
  const auto logs = cluster.start({"logs", "1"});
  logs->wait_for("first");   // the rest finds no reader, and no room
  logs->signal(SIGINT);
  const Output part = logs->wait();
  CHECK(part.code == 130);
  CHECK(part.out.size() < 40'000'000);
}

TEST_CASE("a closed standard output harms nobody") {
  Cluster cluster;
  fs::path project = cluster.project("project: p\ntrain: {run: echo}\n");
  CHECK(cluster.run({"train"}, project).code == 0);
  for (const char* command : {"status -a", "logs 1", "hosts"}) {
    Command shell = cluster.command({});
    shell.argv = {"sh", "-c", std::string("exec $0 ") + command + " >&-", shell.argv.front()};
    Output output = run(shell);
    CHECK_MESSAGE(output.code == 0, command << ": " << output.err);
  }
}

TEST_CASE("10,000 files arrive with a warning, and as many the second time") {
  Cluster cluster;
  std::map<std::string, std::string> files = {
      {"dtrain.yml", "project: p\ntrain:\n  run: find . -name '*.txt' | wc -l\n"}};
  for (int i = 0; i < 10'000; ++i) {
    files["d" + std::to_string(i % 100) + "/" + std::to_string(i) + ".txt"] = std::to_string(i);
  }
  fs::path project = cluster.project("many", files);
  for (int round = 0; round < 2; ++round) {
    Output output = cluster.run({"train"}, project);
    CHECK_MESSAGE(output.code == 0, output.err);
    CHECK(output.err.find("10001 files") != std::string::npos);
    CHECK(output.out.find("] 10000\n") != std::string::npos);
  }
}

TEST_CASE("more than a gigabyte is sent only when somebody says so") {
  Cluster cluster;
  fs::path project = cluster.project("project: p\ntrain: {run: echo}\n");
  write_file(project / "zeros.bin", "");
  fs::resize_file(project / "zeros.bin", uint64_t{1200} << 20);
  Output output = cluster.run({"train"}, project);
  CHECK(output.code != 0);
  CHECK_MESSAGE(output.err.find("zeros.bin") != std::string::npos, output.err);
  CHECK_MESSAGE(output.err.find("--yes") != std::string::npos, output.err);
}

TEST_CASE("a file past the limit is refused by name, with the limit") {
  Cluster cluster;
  fs::path project = cluster.project("project: p\ntrain: {run: echo}\n");
  write_file(project / "huge.bin", "");
  fs::resize_file(project / "huge.bin", uint64_t{200} << 30);
  Output output = cluster.run({"train", "--yes"}, project);
  CHECK(output.code != 0);
  CHECK_MESSAGE(output.err.find("huge.bin") != std::string::npos, output.err);
}

TEST_CASE("odd names, links and modes arrive as they are") {
  Cluster cluster;
  fs::path project = cluster.project(
      "odd", {{"dtrain.yml",
               "project: p\ntrain:\n  run:\n    - cat 'two words' ./-dash \xc3\xa9t\xc3\xa9\n"
               "    - ./tool\n    - test -L link && cat link\n    - test -d empty\n"},
              {"two words", "1"},
              {"-dash", "2"},
              {"\xc3\xa9t\xc3\xa9", "3\n"},
              {"tool", "#!/bin/sh\necho tool ran\n"}});
  fs::permissions(project / "tool", fs::perms::owner_all);
  fs::create_symlink("two words", project / "link");
  fs::create_directory(project / "empty");
  Output output = cluster.run({"train"}, project);
  CHECK_MESSAGE(output.code == 0, output.all());
  CHECK(output.out.find("] 123\n") != std::string::npos);
  CHECK(output.out.find("] tool ran\n") != std::string::npos);
}

TEST_CASE("a directory and an environment that are no UTF-8 arrive as they are") {
  Cluster cluster;
  fs::path project = cluster.project(
      "caf\xe9", {{"dtrain.yml", "project: p\ntrain: {env: [SECRET], run: printenv SECRET}\n"}});
  cluster.env["SECRET"] = "gr\xf6\xdf";
  Output output = cluster.run({"train"}, project);
  CHECK_MESSAGE(output.code == 0, output.all());
  CHECK(cluster.run({"logs", "--raw"}, project).out == "gr\xf6\xdf\n");
  Output status = cluster.run({"status", "1"}, project);
  CHECK_MESSAGE(status.out.find(project.native()) != std::string::npos, status.all());
  CHECK(fs::is_directory(project / "runs/1"));
  // JSON is UTF-8, whatever it tells of.
  CHECK(Json::accept(cluster.run({"status", "1", "--json"}, project).out));
}
