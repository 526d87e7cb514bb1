// Who gets which GPU, on a machine whose driver is made up (support/fake_nvml.cc).
#include <doctest/doctest.h>
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
