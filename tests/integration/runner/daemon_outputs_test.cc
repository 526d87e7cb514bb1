#include "runner/daemon_outputs.h"

#include <doctest/doctest.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "schema/fd.h"
#include "tests/support/project.h"

namespace dtrain::runner {
namespace {

namespace fs = std::filesystem;

struct Outputs {
  test::TemporaryFolder folder;
  pb::Launch launch;

  Outputs() {
    launch.set_output_mark((folder.path() / "mark").string());
    launch.set_output_mark_text("this one");
    launch.set_output_dir((folder.path() / "4").string());
    fs::create_directories(launch.output_dir());
    std::ofstream(launch.output_mark()) << "this one";
  }
  std::string lack(const std::string& trouble) const {
    return "OUTPUT_DIR: the daemon's " + folder.path().string() + " " + trouble;
  }
};

TEST_CASE("the daemon's outputs are known by their mark, and by nothing else") {
  Outputs outputs;
  CHECK(look_for_outputs(outputs.launch).are_here);
  std::ofstream(outputs.launch.output_mark()) << "another one";
  CHECK(!look_for_outputs(outputs.launch).are_here);
  fs::remove(outputs.launch.output_mark());
  CHECK(!look_for_outputs(outputs.launch).are_here);
  CHECK(look_for_outputs(outputs.launch).trouble.empty());
  outputs.launch.clear_output_mark_text();
  CHECK(look_for_outputs(outputs.launch).are_here);
}

TEST_CASE("outputs that replicas can't write to are lacking") {
  Outputs outputs;
  fs::remove(outputs.launch.output_dir());
  CHECK(look_for_outputs(outputs.launch).trouble == outputs.lack("can't be written to: No such file or directory"));
}

TEST_CASE("outputs whose file system does not answer hold up nobody for long") {
  Outputs outputs;
  const std::string mark = outputs.launch.output_mark();
  fs::remove(mark);
  REQUIRE(::mkfifo(mark.c_str(), 0600) == 0);   // whoever opens it waits
  CHECK(look_for_outputs(outputs.launch, std::chrono::milliseconds(50)).trouble ==
        outputs.lack("can't be looked at: its file system does not answer"));
  // Whoever waited goes on and may be gone before anything is written.
  const Fd opened(::open(mark.c_str(), O_WRONLY | O_CLOEXEC));
  CHECK(opened);
}

}  // namespace
}  // namespace dtrain::runner
