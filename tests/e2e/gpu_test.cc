// Who gets which GPU, on a machine whose driver is made up (support/fake_nvml.cc).
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sched.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/cluster.h"
#include "tests/support/skipped.h"
#include "tests/support/tiny_image.h"

using namespace dtrain::tests;

namespace {

// Locks of GPUs lie outside of any DTRAIN_HOME, so each case has devices of its own.
std::string own_uuids() {
  static int cases = 0;
  return "test-" + std::to_string(getpid()) + "-" + std::to_string(++cases);
}

void give_gpus(Cluster& cluster, int count, const std::string& uuids) {
  cluster.env["LD_LIBRARY_PATH"] = FAKE_NVML_DIR;
  cluster.env["FAKE_GPUS"] = std::to_string(count) + ":" + uuids;
}

void remove_locks(int count, const std::string& uuids) {
  for (int i = 0; i < count; ++i) {
    for (const char* folder : {"/run/lock", "/tmp"}) {
      fs::remove(fs::path(folder) / ("dtrain-gpu-GPU-" + uuids + "-" + std::to_string(i)));
    }
  }
}

// A project whose program says which GPUs it was given and goes on until `gate` is opened.
fs::path holds(Cluster& cluster, const std::string& name, int gpus) {
  return cluster.project(
      name, {{"dtrain.yml", "project: p\ntrain:\n  resources: {cpus: 0.1, mem: 64, gpus: " +
                                std::to_string(gpus) +
                                "}\n  run: echo gpus=$CUDA_VISIBLE_DEVICES.; read x < " +
                                (cluster.folder() / "gate").string() + "\n"}});
}

}  // namespace

TEST_CASE("each experiment gets GPUs of its own, a role that asks for none sees none") {
  const std::string uuids = own_uuids();
  Cluster cluster;
  give_gpus(cluster, 3, uuids);
  REQUIRE(mkfifo((cluster.folder() / "gate").c_str(), 0600) == 0);
  auto first = cluster.start({"train"}, holds(cluster, "a", 2));
  first->wait_for("gpus=0,1.");
  auto second = cluster.start({"train"}, holds(cluster, "b", 1));
  second->wait_for("gpus=2.");
  auto none = cluster.start({"train"}, holds(cluster, "c", 0));
  none->wait_for("gpus=.");

  const Output hosts = cluster.run({"hosts"});
  CHECK_MESSAGE(hosts.out.find("Fake GPU") != std::string::npos, hosts.out);
  const Output usage = cluster.run({"monitor", "2", "--once", "-g"});
  CHECK_MESSAGE(usage.out.find("44") != std::string::npos, usage.out);   // 42 and its index
  CHECK_MESSAGE(usage.out.find("4.0 GiB / 16.0 GiB") != std::string::npos, usage.out);
  for (const char* id : {"1", "2", "3"}) CHECK(cluster.run({"kill", id, "--force"}).code == 0);
  cluster.stop();
  remove_locks(3, uuids);
}

TEST_CASE("who has GPUs of one NUMA node runs on its processors, on a machine whose nodes are made up") {
  if (geteuid() != 0) return say_skipped("mounting needs root");
  if (run({.argv = {"unshare", "-m", "true"}, .directory = {}, .env = {}, .netns = {}}).code != 0) return say_skipped("no mount namespaces here");
  const std::string uuids = own_uuids();
  Cluster cluster;
  give_gpus(cluster, 3, uuids);
  cluster.own_ports("cpus: 4, mem: 4GiB");
  // GPUs 0 and 2 are near a node that has one of the processors that are here, GPU 1 is near the others.
  const fs::path sys = cluster.folder() / "sys";
  cpu_set_t usable;
  CPU_ZERO(&usable);
  REQUIRE(::sched_getaffinity(0, sizeof usable, &usable) == 0);
  std::string first, others;
  for (int one = 0; one < CPU_SETSIZE; ++one) {
    if (!CPU_ISSET(static_cast<size_t>(one), &usable)) continue;
    if (first.empty()) first = std::to_string(one);
    else others += (others.empty() ? "" : ",") + std::to_string(one);
  }
  if (others.empty()) return say_skipped("one processor");
  const auto put = [&](const std::string& path, const std::string& text) {
    fs::create_directories((sys / path).parent_path());
    write_file(sys / path, text + "\n");
  };
  put("node/node0/cpulist", first);
  put("node/node1/cpulist", others);
  for (int gpu = 0; gpu < 3; ++gpu) put(fmt::format("devices/0000:0{}:00.0/numa_node", gpu + 1), gpu == 1 ? "1" : "0");
  Command daemon = cluster.command({"daemon", "start"});
  daemon.argv.insert(daemon.argv.begin(), {"/usr/bin/unshare", "--mount", "/bin/sh", "-c",
                                           "mount --bind " + (sys / "node").string() + " /sys/devices/system/node && mount --bind " + (sys / "devices").string() +
                                               " /sys/bus/pci/devices && exec \"$0\" \"$@\""});
  const Output started = run(daemon);
  REQUIRE_MESSAGE(started.code == 0, started.all());
  const fs::path project = cluster.project("project: p\ntrain:\n  resources: {cpus: 1, mem: 64, gpus: 2}\n"
                                           "  run: echo gpus=$CUDA_VISIBLE_DEVICES on $(sed -n 's/^Cpus_allowed_list:.//p' /proc/self/status).\n");
  const auto log_of = [&](const std::string& gpus, const std::string& cpus) {
    const Output output = cluster.run({"train", "--set", "train.resources.gpus=" + gpus, "--set", "train.resources.cpus=" + cpus}, project);
    REQUIRE_MESSAGE(output.code == 0, output.all());
    return output.out.substr(output.out.find("gpus="), output.out.find(".\n", output.out.find("gpus=")) - output.out.find("gpus="));
  };
  CHECK(log_of("2", "1") == "gpus=0,2 on " + first);
  CHECK(log_of("1", "0.5").starts_with("gpus=1 on "));   // alone on its node
  const std::string any = log_of("0", "1");
  CHECK(log_of("3", "1") == "gpus=0,1,2" + any.substr(any.find(" on")));
  CHECK(log_of("2", "2") == "gpus=0,2" + any.substr(any.find(" on")));   // more than that node has
  const Output hosts = cluster.run({"hosts"});
  CHECK_MESSAGE(says(hosts, "GPU 1 Fake GPU, 16.0 GiB, NUMA node 1"), hosts.all());
  cluster.stop();
  remove_locks(3, uuids);
}

TEST_CASE("two dtrains of one machine never hand out the same GPU") {
  const std::string uuids = own_uuids();
  Cluster one, two;
  give_gpus(one, 2, uuids);
  give_gpus(two, 2, uuids);
  for (Cluster* each : {&one, &two}) REQUIRE(mkfifo((each->folder() / "gate").c_str(), 0600) == 0);

  auto held = one.start({"train"}, holds(one, "a", 1));
  held->wait_for("gpus=0.");
  auto beside = two.start({"train"}, holds(two, "a", 1));
  beside->wait_for("gpus=1.");
  // Both see two devices, and have one.
  auto waits = two.start({"train"}, holds(two, "b", 1));
  waits->wait_for("PENDING");
  const std::string why = two.run({"why", "2"}).out;
  CHECK_MESSAGE(why.find("GPU 0 of ") != std::string::npos, why);
  CHECK_MESSAGE(why.find("another dtrain of ") != std::string::npos, why);

  // The lock goes before the end is told: what waits here may have it at once.
  CHECK(two.run({"kill", "1", "--force"}).code == 0);
  waits->wait_for("gpus=1.");
  CHECK(two.run({"kill", "2", "--force"}).code == 0);
  CHECK(one.run({"kill", "1", "--force"}).code == 0);
  one.stop();
  two.stop();
  remove_locks(2, uuids);
}

TEST_CASE("in an image the driver's libraries are found first by who has GPUs, and are the host's") {
  if (const std::string lacking = tiny_image_unavailable(); !lacking.empty()) return say_skipped(lacking);
  const std::string uuids = own_uuids();
  Cluster cluster;
  give_gpus(cluster, 1, uuids);
  const fs::path files = cluster.folder() / "image";
  make_tiny_image(files);
  const fs::path project = cluster.project("project: p\ntrain:\n  image: " + files.string() +
                                           "\n  resources: {cpus: 0.1, mem: 64}\n  env: {LANG: C}\n"
                                           "  run: 'ls /.dtrain; echo \"$LD_LIBRARY_PATH\"; ls /.dtrain/driver; echo x > /.dtrain/driver/libnvidia-ml.so.1'\n");
  const Output with = cluster.run({"train", "--set", "train.resources.gpus=1"}, project);
  if (says(with, "images can't be used here")) return say_skipped("no image can be entered here");
  const std::string log = cluster.run({"logs", "--raw", "1.train"}).out;
  CHECK_MESSAGE(log.starts_with("command\ndriver\nentrypoint\n/.dtrain/driver\nlibnvidia-ml.so.1\n"), log);
  CHECK_MESSAGE(log.find("Read-only file system") != std::string::npos, log);
  cluster.run({"train"}, project);
  const std::string without = cluster.run({"logs", "--raw", "2.train"}).out;
  CHECK_MESSAGE(without.starts_with("command\nentrypoint\n\n"), without);
  cluster.stop();
  remove_locks(1, uuids);
}
