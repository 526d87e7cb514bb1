#include "runner/lost_keeper.h"

#include "runner/cleanup.h"
#include "schema/framing.h"
#include "schema/launch_record.pb.h"
#include "tests/integration/runner/kept_launch.h"
#include "tests/support/skipped.h"

namespace dtrain::runner {
namespace {

namespace fs = std::filesystem;

// A group below a replica's own that keeps its processes from dying, as the kernel does with one that
// waits for a disk.
class Freezer {
 public:
  explicit Freezer(const fs::path& group) : group_(group / "frozen") {
    REQUIRE(fs::create_directory(group_));
  }
  Freezer(const Freezer&) = delete;
  Freezer& operator=(const Freezer&) = delete;
  ~Freezer() { thaw(); }

  void freeze(pid_t pid) {
    REQUIRE(write_switch(group_ / "cgroup.procs", std::to_string(pid)).ok());
    REQUIRE(write_switch(group_ / "freezer.state", "FROZEN").ok());
  }
  void thaw() { (void)write_switch(group_ / "freezer.state", "THAWED"); }

 private:
  const fs::path group_;
};

TEST_CASE("a replica that can't be killed has not ended, and its launch stays") {
  KeptLaunch kept(CgroupChoice::V1);
  const ReplicaId id = kept.add(1, {"--print", "ready", "--hang"});
  kept.start();
  const std::vector<std::string>& groups = kept.launch().replicas[0].cgroups;
  if (groups.empty() || !fs::exists(groups[0] + "/freezer.state")) {
    return tests::say_skipped("there is no freezer to use");
  }
  kept.wait_output(id, "ready");
  Freezer freezer(groups[0]);
  freezer.freeze(kept.survivors().at(0));
  kept.kill_keeper();

  const auto too_early = end_lost_launch(kept.directory());
  REQUIRE(!too_early.ok());
  CHECK(too_early.error().code == Code::DeadlineExceeded);
  CHECK(kept.facts().exits.empty());
  CHECK(!remove_launch(kept.directory()));
  CHECK(fs::exists(kept.directory().record()));

  freezer.thaw();
  const auto ends = end_lost_launch(kept.directory());
  REQUIRE(ends.ok());
  CHECK(ends->contains(id));
  CHECK(kept.survivors().empty());
  CHECK(remove_launch(kept.directory()));
}

TEST_CASE("what was printed and watched for outlives the keeper, from when it is in the log") {
  KeptLaunch kept;
  kept.launch().watched = {{0, "ECC", false}, {1, "nan", true}, {2, "never", false}};
  kept.launch().grace_ms = kTestPatienceMs;
  const ReplicaId id = kept.add(1, {"--ignore", "15", "--print", "ECC error", "--print", "ECC again", "--print", "loss=nan", "--hang"});
  const ReplicaId silent = kept.add(2, {"--print", "up", "--hang"});
  kept.start();
  kept.wait_output(silent, "up");
  kept.wait_output(id, "loss=nan");
  kept.kill_keeper();
  const auto ends = end_lost_launch(kept.directory());
  REQUIRE(ends.ok());
  CHECK(ends->at(id).printed == std::vector<PrintedLine>{{0, "ECC error"}, {1, "loss=nan"}});
  CHECK(ends->at(silent).printed.empty());
  CHECK(kept.facts().exits.at(id).printed == ends->at(id).printed);
}

TEST_CASE("what a dead keeper of another version left is killed by its key") {
  KeptLaunch kept(CgroupChoice::None);
  const ReplicaId id = kept.add(1, {"--orphan", "--setsid", "--print", "ready", "--hang", "--then", "--hang"});
  kept.start();
  kept.wait_output(id, "ready");
  kept.kill_keeper();
  REQUIRE(kept.directory().begin(kept.launch().key).ok());
  pb::LaunchFrame newer;
  newer.set_format(99);
  std::string frame;
  append_frame(frame, kRecordLaunch, newer.SerializeAsString(), {});
  REQUIRE(append_file(kept.directory().record(), frame).ok());
  REQUIRE(!kept.directory().read_launch().ok());
  CHECK(kill_launch(kept.directory()).ok());
  CHECK(kept.survivors().empty());
}

}  // namespace
}  // namespace dtrain::runner
