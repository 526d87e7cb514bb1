#include "runner/lost_keeper.h"

#include "runner/preparation.h"
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

}  // namespace
}  // namespace dtrain::runner
