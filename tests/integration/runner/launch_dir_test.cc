#include "runner/launch_dir.h"

#include <fstream>

#include "schema/framing.h"
#include "schema/launch_record.pb.h"
#include "tests/integration/runner/kept_launch.h"

namespace dtrain::runner {
namespace {

TEST_CASE("a launch keeps every field, bytes that are no text too") {
  LaunchFolder folder;
  LaunchRecord launch;
  launch.experiment = {4, 2};
  launch.attempt = 3;
  launch.key = "0123456789abcdef0123456789abcdef";
  launch.ctl = "fedcba9876543210fedcba9876543210";
  launch.lease_ms = 600'000;
  launch.grace_ms = 5;
  launch.spool_limit_bytes = uint64_t{1} << 40;
  launch.work_root = "/tmp/\xff";
  launch.tree = "/trees/1";
  launch.gpu_locks = {"/run/lock/dtrain-gpu-1"};
  launch.watched = {{0, "a\xff", true}, {7, "b", false}};
  launch.data = {"/data", {{"mnist", "/mnt/\xfe"}, {"words", "/mnt/words.txt"}}};
  launch.replicas = {{kReplica,
                      3,
                      {"python", "\xc3\x28", "line\nbreak", ""},
                      "/data/Müller",
                      {{"A", "b"}, {"BYTES", std::string("\xfe\x01", 2)}},
                      {"/sys/fs/cgroup/a", "/sys/fs/cgroup/b"},
                      {0, 7},
                      "/images/\xfd"}};
  launch.shown = {{"/mnt/\xfc", "/sets", true}};
  REQUIRE(folder.directory.write_launch(launch).ok());
  const auto read = folder.directory.read_launch();
  REQUIRE(read.ok());
  REQUIRE(read->has_value());
  const LaunchRecord& again = **read;
  CHECK(again.experiment == launch.experiment);
  CHECK(again.attempt == 3);
  CHECK(again.key == launch.key);
  CHECK(again.ctl == launch.ctl);
  CHECK(again.lease_ms == 600'000);
  CHECK(again.grace_ms == 5);
  CHECK(again.spool_limit_bytes == uint64_t{1} << 40);
  CHECK(again.work_root == launch.work_root);
  CHECK(again.tree == "/trees/1");
  CHECK(again.gpu_locks == launch.gpu_locks);
  CHECK(again.watched == launch.watched);
  CHECK(again.data == launch.data);
  CHECK(again.place_of(kReplica) == "/tmp/\xff/4.2.worker.1@3");
  REQUIRE(again.replicas.size() == 1);
  CHECK(again.replicas[0].id == kReplica);
  CHECK(again.replicas[0].attempt == 3);
  CHECK(again.replicas[0].argv == launch.replicas[0].argv);
  CHECK(again.replicas[0].cwd == launch.replicas[0].cwd);
  CHECK(again.replicas[0].env == launch.replicas[0].env);
  CHECK(again.replicas[0].cgroups == launch.replicas[0].cgroups);
  CHECK(again.replicas[0].processors == std::vector<int>{0, 7});
  CHECK(again.replicas[0].image == "/images/\xfd");
  CHECK(again.shown == launch.shown);
}

TEST_CASE("a launch of the version before has one image for all") {
  LaunchFolder folder;
  pb::LaunchFrame frame;
  frame.set_format(2);
  frame.set_experiment("4.2");
  frame.set_image("/images/\xff");
  pb::ReplicaFrame replica;
  replica.set_id("4.2.worker.1");
  std::string record;
  append_frame(record, kRecordLaunch, frame.SerializeAsString(), {});
  append_frame(record, kRecordReplica, replica.SerializeAsString(), {});
  append_frame(record, kRecordWhole, "", {});
  std::ofstream(folder.directory.record()) << record;
  const auto read = folder.directory.read_launch();
  REQUIRE((read.ok() && read->has_value()));
  CHECK((*read)->replicas.at(0).image == "/images/\xff");
}

TEST_CASE("a launch that is missing or torn is not there, one of another version is an error") {
  LaunchFolder folder;
  CHECK(!(*folder.directory.read_launch()).has_value());
  LaunchRecord launch{{4, 2}, 3, "00", "01", 0, 0, 0, {}, {}, "", ""};
  launch.replicas = {{kReplica, 3, {"python"}, "/", {{"A", "b"}}, {}}};
  REQUIRE(folder.directory.write_launch(launch).ok());
  const std::string good = *read_small_file(folder.directory.record());
  for (size_t size = 0; size < good.size(); ++size) {
    std::ofstream(folder.directory.record()) << good.substr(0, size);
    const auto read = folder.directory.read_launch();
    REQUIRE(read.ok());
    CHECK(!read->has_value());
  }
  std::string newer;
  pb::LaunchFrame frame;
  frame.set_format(99);
  append_frame(newer, kRecordLaunch, frame.SerializeAsString(), {});
  std::ofstream(folder.directory.record()) << newer;
  const auto read = folder.directory.read_launch();
  REQUIRE(!read.ok());
  CHECK(read.error().code == Code::DataLoss);
  CHECK(read.error().message.find("has format 99") != std::string::npos);
}

TEST_CASE("a launch that was begun is not there, but its key is") {
  LaunchFolder folder;
  CHECK(!folder.directory.begun_key());
  REQUIRE(folder.directory.begin("0123").ok());
  CHECK(folder.directory.begun_key() == "0123");
  CHECK(!(*folder.directory.read_launch()).has_value());
  CHECK(!read_facts(folder.directory)->keeper);
  REQUIRE(folder.directory.write_launch({{4, 2}, 3, "00", "01", 0, 0, 0, {}, {}, "", ""}).ok());
  CHECK(folder.directory.begun_key() == "0123");
  CHECK((*folder.directory.read_launch()).has_value());
}

TEST_CASE("a gang whose environments together are large fits, one that no program could take does not") {
  LaunchFolder folder;
  LaunchRecord launch{{4, 2}, 3, "00", "01", 0, 0, 0, {}, {}, "", ""};
  for (uint32_t index = 1; index <= 100; ++index) {
    launch.replicas.push_back({{{4, 2}, Role::Worker, index}, 3, {}, "", {}, {}});
    launch.replicas.back().env["LARGE"] = std::string(60'000, 'x');
  }
  REQUIRE(folder.directory.write_launch(launch).ok());
  const auto read = folder.directory.read_launch();
  REQUIRE((read.ok() && read->has_value()));
  REQUIRE((*read)->replicas.size() == 100);
  CHECK((*read)->replicas[99].env.at("LARGE").size() == 60'000);

  launch.replicas[0].env["LARGE"] = std::string(5 << 20, 'x');
  const Status written = folder.directory.write_launch(launch);
  REQUIRE(!written.ok());
  CHECK(written.error().code == Code::FailedPrecondition);
}

TEST_CASE("output lies in the launch's directory, by replica") {
  CHECK(LaunchDir("/l/4.2@1").spool(kReplica, 7) == "/l/4.2@1/spool.4.2.worker.1.7");
}

}  // namespace
}  // namespace dtrain::runner
