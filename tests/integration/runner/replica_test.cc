#include "runner/replica.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "tests/support/project.h"

namespace dtrain::runner {
namespace {

class Said : public Outbox {
 public:
  void send(pb::FromRunner message) override {
    if (message.has_log()) logs.push_back(message.log());
    sent.push_back(message.SerializeAsString());
  }
  std::vector<pb::LogData> logs;
  std::vector<std::string> sent;
};

const ReplicaId kEnded{{4, 0}, Role::Worker, 1};

// A replica that has exited after so many bytes, with `spooled` of them in its spool.
struct Ended {
  Ended(const std::string& spooled, uint64_t log_bytes) {
    if (!spooled.empty()) SpoolWriter(directory, kEnded, 0).append(spooled, 100);
    ReplicaExit exit;
    exit.log_bytes = log_bytes;
    exit.ended_unix_ms = 200;
    replica.on_exit(exit, recorder);
    replica.resume(0);
  }
  void pump() {
    spools.forget();
    while (replica.pump(recorder)) {
    }
  }

  test::TemporaryFolder folder;
  LaunchDir directory{folder.path()};
  LogWindow window;
  Said recorder;
  SpoolListing spools{directory};
  Replica replica{spools, kEnded, 1, window};
};

TEST_CASE("the end of the output that no spool holds is declared lost, and the replica drains") {
  std::string spooled;
  SUBCASE("after some output") { spooled = "abc"; }
  SUBCASE("without any") {}
  Ended ended(spooled, 10);
  ended.pump();
  std::string text;
  for (const auto& log : ended.recorder.logs) text += log.data();
  CHECK(text == spooled);
  REQUIRE(!ended.recorder.logs.empty());
  const pb::LogData& loss = ended.recorder.logs.back();
  CHECK(loss.offset() == 10);
  CHECK(loss.dropped_bytes() == 10 - spooled.size());
  CHECK(loss.time_unix_ms() == 200);
  CHECK(!ended.replica.drained());
  CHECK(ended.replica.acknowledge(10));
  CHECK(ended.replica.drained());
  ended.pump();
  CHECK(&ended.recorder.logs.back() == &loss);   // said once
}

TEST_CASE("what it wrote is told before its end") {
  Ended ended("", 0);
  SpoolWriter(ended.directory, kEnded, 0).append("last words", 100);
  Replica replica(ended.spools, kEnded, 1, ended.window);
  replica.resume(0);
  ReplicaExit exit;
  exit.log_bytes = 10;
  replica.on_exit(exit, ended.recorder);
  REQUIRE(ended.recorder.sent.size() >= 2);
  pb::FromRunner written, exited;
  REQUIRE(written.ParseFromString(ended.recorder.sent[ended.recorder.sent.size() - 2]));
  REQUIRE(exited.ParseFromString(ended.recorder.sent.back()));
  CHECK(written.log().data() == "last words");
  CHECK(exited.has_exited());
}

TEST_CASE("output that is all there is followed by no loss") {
  Ended ended("0123456789", 10);
  ended.pump();
  REQUIRE(ended.recorder.logs.size() == 1);
  CHECK(ended.recorder.logs[0].data() == "0123456789");
  CHECK(ended.recorder.logs[0].dropped_bytes() == 0);
}

TEST_CASE("what the daemon has of an earlier stream makes room for the rest") {
  Ended ended("", 15);
  SpoolWriter spool(ended.directory, kEnded, 0);
  for (const int64_t at_ms : {100, 200, 300}) spool.append("12345", at_ms);   // a message each
  ended.window.limit_bytes = 5;
  ended.pump();
  REQUIRE(ended.recorder.logs.size() == 1);
  CHECK(ended.replica.acknowledge(10));   // more than this stream has carried
  CHECK(!ended.replica.acknowledge(10));
  ended.pump();
  REQUIRE(ended.recorder.logs.size() == 2);
  CHECK(ended.recorder.logs[1].offset() == 5);
  CHECK(ended.replica.acknowledge(10));
  ended.pump();
  CHECK(ended.replica.acknowledge(15));
  CHECK(ended.replica.drained());
}

TEST_CASE("a daemon that has lost what it acknowledged gets what is left of it, and is told of the rest") {
  Ended ended("0123456789", 10);
  ended.pump();
  REQUIRE(ended.replica.acknowledge(10));
  SUBCASE("it is in the spool still") {
    ended.replica.resume(4);
    ended.pump();
    REQUIRE(ended.recorder.logs.size() == 2);
    CHECK(ended.recorder.logs[1].offset() == 4);
    CHECK(ended.recorder.logs[1].data() == "456789");
  }
  SUBCASE("it is nowhere any more") {
    std::filesystem::remove(ended.directory.spool(kEnded, 1));
    ended.replica.resume(4);
    ended.pump();
    REQUIRE(ended.recorder.logs.size() == 2);
    CHECK(ended.recorder.logs[1].offset() == 10);
    CHECK(ended.recorder.logs[1].dropped_bytes() == 6);
  }
  CHECK(ended.replica.acknowledge(10));
  CHECK(ended.replica.drained());
}

TEST_CASE("a daemon that does not know a replica any more gets nothing twice") {
  Ended ended("0123456789", 10);
  ended.pump();
  REQUIRE(ended.replica.acknowledge(10));
  ended.replica.resume({});
  ended.pump();
  CHECK(ended.recorder.logs.size() == 1);
  CHECK(ended.replica.drained());
}

TEST_CASE("a name that is not UTF-8 leaves the messages that repeat it readable") {
  Ended ended("", 0);
  ReplicaExit exit;
  exit.cause = "cannot enter caf\xe9";
  Replica replica(ended.spools, kEnded, 1, ended.window);
  replica.on_exit(exit, ended.recorder);
  replica.release("1.2 GB in caf\xe9/", ended.recorder);
  const std::vector<std::string>& sent = ended.recorder.sent;
  REQUIRE(sent.size() >= 2);
  pb::FromRunner exited, released;
  REQUIRE(exited.ParseFromString(sent[sent.size() - 2]));
  CHECK(exited.exited().status().cause() == "cannot enter caf\\xe9");
  REQUIRE(released.ParseFromString(sent.back()));
  CHECK(released.released().left_behind() == "1.2 GB in caf\\xe9/");
}

}  // namespace
}  // namespace dtrain::runner
