#include "runner/launch_facts.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <fstream>

#include "schema/small_file.h"
#include "schema/framing.h"
#include "tests/integration/runner/kept_launch.h"

namespace dtrain::runner {
namespace {

struct FactsFolder : LaunchFolder {
  FactsFolder() { REQUIRE(directory.write_launch({{4, 2}, 1, "00", "01", 0, 0, 0, {}, {}, "", ""}).ok()); }

  FactsWriter writer() const {
    auto opened = FactsWriter::open(directory);
    REQUIRE(opened.ok());
    return std::move(opened).value();
  }
  LaunchFacts facts() const {
    auto read = read_facts(directory);
    REQUIRE_MESSAGE(read.ok(), (read.ok() ? "" : read.error().message));
    return *read;
  }
};

const ReplicaId kOther{{4, 2}, Role::Ps, 1};

ReplicaExit some_exit(int code) {
  return {code, 9, true, "out of memory \xff", 1'700'000'000'123, 1.5, 2, 3, 4, 5, {{6, "a line \xff"}, {0, ""}}, true};
}

TEST_CASE("facts keep every field") {
  FactsFolder folder;
  CHECK(!folder.facts().keeper);
  FactsWriter writer = folder.writer();
  REQUIRE(writer.add({77, 88, "a boot"}).ok());
  REQUIRE(writer.add(kReplica, ReplicaStart{{7, 8, "b"}, 1'700'000'000'000, 9, "no \xfe"}).ok());
  REQUIRE(writer.add(kReplica, some_exit(137)).ok());
  REQUIRE(writer.sync().ok());
  const LaunchFacts facts = folder.facts();
  REQUIRE(facts.keeper);
  CHECK(facts.keeper->pid == 77);
  CHECK(facts.keeper->start_ticks == 88);
  CHECK(facts.keeper->boot_id == "a boot");
  const ReplicaStart& start = facts.starts.at(kReplica);
  CHECK(start.process.pid == 7);
  CHECK(start.unix_ms == 1'700'000'000'000);
  CHECK(start.pipe_inode == 9);
  CHECK(start.error == "no \xfe");
  const ReplicaExit& exit = facts.exits.at(kReplica);
  CHECK(exit.code == 137);
  CHECK(exit.signal == 9);
  CHECK(exit.memory_kill);
  CHECK(exit.cause == "out of memory \xff");
  CHECK(exit.ended_unix_ms == 1'700'000'000'123);
  CHECK(exit.cpu_seconds == 1.5);
  CHECK(exit.memory_peak_bytes == 2);
  CHECK(exit.read_bytes == 3);
  CHECK(exit.written_bytes == 4);
  CHECK(exit.log_bytes == 5);
  CHECK(exit == some_exit(137));
}

TEST_CASE("a reader sees each fact once, as it comes") {
  FactsFolder folder;
  FactsReader reader(folder.directory);
  CHECK(reader.next()->exits.empty());
  FactsWriter writer = folder.writer();
  REQUIRE(writer.add(kReplica, some_exit(1)).ok());
  CHECK(reader.next()->exits.size() == 1);
  CHECK(reader.next()->exits.empty());
  REQUIRE(writer.add(kOther, some_exit(2)).ok());
  const auto news = reader.next();
  CHECK(news->exits.size() == 1);
  CHECK(news->exits.at(kOther).code == 2);
}

TEST_CASE("wherever the last write is torn, what was before it stays and writing goes on") {
  FactsFolder folder;
  {
    FactsWriter writer = folder.writer();
    REQUIRE(writer.add(kReplica, some_exit(1)).ok());
  }
  const std::string one = *read_small_file(folder.directory.record());
  {
    FactsWriter writer = folder.writer();
    REQUIRE(writer.add(kOther, some_exit(2)).ok());
  }
  const std::string two = *read_small_file(folder.directory.record());
  for (size_t size = one.size(); size < two.size(); ++size) {
    CAPTURE(size);
    std::ofstream(folder.directory.record(), std::ios::trunc) << two.substr(0, size);
    CHECK(folder.facts().exits.size() == 1);
    FactsWriter writer = folder.writer();
    REQUIRE(writer.add(kOther, some_exit(3)).ok());
    CHECK(folder.facts().exits.at(kReplica).code == 1);
    CHECK(folder.facts().exits.at(kOther).code == 3);
  }
}

TEST_CASE("a record of another version or without sense is said, not guessed") {
  FactsFolder folder;
  for (const char* record : {R"({"format": 99})", R"({"format": 1, "process": {"pid": "x"}})"}) {
    std::string frame;
    append_frame(frame, kRecordKeeper, record, {});
    std::ofstream(folder.directory.record(), std::ios::trunc) << frame;
    const auto read = read_facts(folder.directory);
    REQUIRE(!read.ok());
    CHECK(read.error().code == Code::DataLoss);
  }
}

TEST_CASE("what a failed sync may have lost is written again") {
  FactsFolder folder;
  FactsWriter writer = folder.writer();
  REQUIRE(writer.add(kReplica, some_exit(1)).ok());
  REQUIRE(writer.sync().ok());
  REQUIRE(writer.add(kOther, some_exit(3)).ok());
  writer.fdatasync = [](int) { return -1; };
  CHECK(!writer.sync().ok());
  // As a disk that dropped the pages.
  const std::string whole = *read_small_file(folder.directory.record());
  std::string lost = whole;
  std::fill(lost.end() - 20, lost.end(), '\0');
  std::ofstream(folder.directory.record(), std::ios::in | std::ios::binary) << lost;
  CHECK(!folder.facts().exits.contains(kOther));
  writer.fdatasync = [](int) { return 0; };
  CHECK(writer.sync().ok());
  CHECK(*read_small_file(folder.directory.record()) == whole);
}

TEST_CASE("no place for the facts is an error") {
  CHECK(!FactsWriter::open(LaunchDir("/no/such/folder")).ok());
}

}  // namespace
}  // namespace dtrain::runner
