#include "runner/numa.h"

#include <doctest/doctest.h>
#include <sched.h>

#include <fstream>

#include "tests/support/project.h"

namespace dtrain::runner {
namespace {

namespace fs = std::filesystem;
using Processors = std::vector<int>;

void write(const fs::path& path, const std::string& text) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << text;
}

TEST_CASE("processors as the kernel lists them") {
  CHECK(listed_processors("0-3,8,10-11\n") == Processors{0, 1, 2, 3, 8, 10, 11});
  CHECK(listed_processors("5") == Processors{5});
  CHECK(listed_processors("").empty());
  CHECK(listed_processors("\n").empty());
  CHECK(listed_processors("1,,2") == Processors{1});
  CHECK(listed_processors("3-").empty());
  CHECK(listed_processors("-1").empty());
  CHECK(listed_processors("0-99999999").size() == CPU_SETSIZE);
}

TEST_CASE("a GPU's node is the kernel's, where there are several") {
  test::TemporaryFolder folder;
  const fs::path sys = folder.path();
  write(sys / "bus/pci/devices/0000:3b:00.0/numa_node", "1\n");
  write(sys / "bus/pci/devices/0001:3b:00.0/numa_node", "-1\n");
  write(sys / "devices/system/node/node0/cpulist", "0\n");
  write(sys / "devices/system/node/has_cpu", "0\n");
  CHECK(numa_node_of("00000000:3B:00.0", sys) == -1);
  write(sys / "devices/system/node/node1/cpulist", "1\n");
  CHECK(numa_node_of("00000000:3B:00.0", sys) == 1);
  CHECK(numa_node_of("0000:3b:00.0", sys) == 1);
  CHECK(numa_node_of("00000001:3B:00.0", sys) == -1);
  CHECK(numa_node_of("00000000:44:00.0", sys) == -1);
  CHECK(numa_node_of("", sys) == -1);
}

TEST_CASE("a program runs near its GPUs where these are on one node that has processors enough") {
  test::TemporaryFolder folder;
  const fs::path sys = folder.path();
  cpu_set_t usable;
  CPU_ZERO(&usable);
  REQUIRE(::sched_getaffinity(0, sizeof usable, &usable) == 0);
  int own = 0;
  while (!CPU_ISSET(static_cast<size_t>(own), &usable)) ++own;
  const int none = CPU_SETSIZE - 1;   // of no machine this is tried on
  write(sys / "devices/system/node/node0/cpulist", std::to_string(own) + "," + std::to_string(none) + "\n");
  write(sys / "devices/system/node/node1/cpulist", std::to_string(none) + "\n");
  CHECK(processors_near({0}, 1, sys) == Processors{own});
  CHECK(processors_near({0, 0}, 0.5, sys) == Processors{own});
  CHECK(processors_near({0}, 1.5, sys).empty());
  CHECK(processors_near({0, 1}, 1, sys).empty());
  CHECK(processors_near({1}, 0.1, sys).empty());
  CHECK(processors_near({-1}, 0.1, sys).empty());
  CHECK(processors_near({}, 1, sys).empty());
  CHECK(processors_near({7}, 1, sys).empty());
}

}  // namespace
}  // namespace dtrain::runner
