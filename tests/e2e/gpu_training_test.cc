// framework: engine on GPUs of several processes: the driver is made up (support/fake_nvml.cc), and so are the
// devices (support/emulated_cuda); everything between is dtrain and the engine as they are.
#include <doctest/doctest.h>
#include <unistd.h>

#include <csignal>

#include "tests/support/cluster.h"
#include "tests/support/facts.h"

using namespace dtrain::tests;

namespace {

constexpr int kGpus = 4;
constexpr std::chrono::seconds kTrainingPatience{180};

constexpr const char* kGpuTraining = R"(project: digits
train:
  framework: engine
  resources: {cpus: 0.2, mem: 256MiB, gpus: 1}
  engine:
    model: {mlp: {hidden: [16]}}
    data: {train: data/train, test: data/test}
    optimizer: {sgd: {momentum: 0.9}}
    precision: fp32
    batch: 20
    checkpoint: {every: 10 steps}
    epochs: 4
)";

// A dtrain whose hosts have GPUs, and whose engine takes emulated ones for them.
class GpuCluster : public Cluster {
 public:
  GpuCluster() {
    own_ports();
    const fs::path bin = folder() / "bin";
    fs::create_directories(bin);
    fs::create_symlink(EMULATED_ENGINE, bin / "dtrain-engine");
    fs::copy_file(std::string(BIN_DIR) + "/dtrain", bin / "dtrain");
    use(bin / "dtrain");
    env["LD_LIBRARY_PATH"] = FAKE_NVML_DIR;
    env["FAKE_GPUS"] = std::to_string(kGpus) + ":" + uuids_;
    digits_ = project("digits", {{"dtrain.yml", kGpuTraining}});
    Command draw;
    draw.argv = {std::string(BIN_DIR) + "/dtrain-engine", "data", "digits", "--train", "200", "--test", "50"};
    draw.directory = digits_;
    const Output drawn = Process(draw).wait();
    REQUIRE_MESSAGE(drawn.code == 0, drawn.all());
  }
  ~GpuCluster() {
    stop();
    for (int i = 0; i < kGpus; ++i) {
      for (const char* lock : {"/run/lock", "/tmp"}) {
        fs::remove(fs::path(lock) / ("dtrain-gpu-GPU-" + uuids_ + "-" + std::to_string(i)));
      }
    }
  }

  // `train` with these --set.
  std::unique_ptr<Process> start_training(const std::vector<std::string>& set) {
    std::vector<std::string> arguments{"train"};
    for (const std::string& each : set) arguments.insert(arguments.end(), {"--set", "train." + each});
    return start(arguments, digits_);
  }
  // Its model's bytes.
  std::string train(const std::vector<std::string>& set) {
    const Output output = start_training(set)->wait(kTrainingPatience);
    REQUIRE_MESSAGE(output.code == 0, output.all());
    return model_of(std::to_string(++experiments_));
  }
  std::string model_of(const std::string& id) {
    std::string output = run({"output", "path", id}).out;
    output.erase(output.find_last_not_of('\n') + 1);
    return read_file(fs::path(output) / "model.safetensors");
  }

 private:
  // Locks of GPUs lie outside of any DTRAIN_HOME.
  const std::string uuids_ = "training-" + std::to_string(getpid());
  fs::path digits_;
  int experiments_ = 0;
};

}  // namespace

TEST_CASE("GPUs of several processes come to the model that those of one process come to") {
  GpuCluster cluster;
  const std::string of_one = cluster.train({"resources.gpus=2", "engine.strategy={mirrored: {bucket-mb: 0.01}}"});
  CHECK(cluster.train({"engine.distributed={worker: 2}",
                       "engine.strategy={multi-worker-mirrored: {bucket-mb: 0.01}}"}) == of_one);
  const std::string mesh = "engine.strategy={mesh: {data: 2, model: 2}}";
  CHECK(cluster.train({"engine.distributed={worker: 4}", mesh}) ==
        cluster.train({"engine.distributed={worker: 2}", "resources.gpus=2", mesh}));
  const std::string stages = "engine.strategy={pipeline: {micro-batches: 2}}";
  CHECK(cluster.train({"engine.distributed={worker: 2}", stages}) ==
        cluster.train({"resources.gpus=2", stages}));
  // Of these the CPUs keep the parameters.
  CHECK(cluster.train({"engine.distributed={worker: 2, ps: 1}", "engine.strategy={parameter-server: {mode: sync}}"}) ==
        cluster.train({"resources.gpus=2", "engine.strategy={central-storage: {}}"}));
}

TEST_CASE("parameter servers serve workers whose GPUs compute with bf16") {
  GpuCluster cluster;
  const std::string model = cluster.train({"engine.distributed={worker: 2, ps: 1}", "engine.epochs=1", "engine.precision=bf16",
                                           "engine.strategy={parameter-server: {mode: sync}}"});
  // Of one process the CPUs keep the same.
  CHECK(model == cluster.train({"resources.gpus=2", "engine.epochs=1", "engine.precision=bf16", "engine.strategy={central-storage: {}}"}));
}

TEST_CASE("a process that is killed in the middle of what GPUs sum starts the gang again, to the same bits") {
  GpuCluster cluster;
  const std::vector<std::string> two{"engine.distributed={worker: 2}", "engine.epochs=12"};
  const std::string undisturbed = cluster.train(two);
  auto train = cluster.start_training(two);
  train->wait_for("epoch=4 ");
  // Whichever of the two it is, both start again.
  ::kill(cluster.processes("dtrain-engine train").back(), SIGKILL);
  const Output output = train->wait(kTrainingPatience);
  CHECK_MESSAGE(output.code == 0, output.all());
  CHECK_MESSAGE(output.all().find("resumed_at_step=") != std::string::npos, output.all());
  CHECK(cluster.model_of("2") == undisturbed);
}

TEST_CASE("a process that stops while GPUs sum is named by the others") {
  GpuCluster cluster;
  auto train = cluster.start_training(
      {"engine.distributed={worker: 3}", "engine.epochs=10000", "engine.deadline=2s", "restart={limit: 0}", "stop-grace=1s"});
  train->wait_for("epoch=2 ");
  const Json replicas = facts(cluster.run({"status", "1", "--json"}))["replicas"];
  ::kill(with_id(replicas, "1.worker.1")["pid"].get<pid_t>(), SIGSTOP);
  const Output output = train->wait(kTrainingPatience);
  CHECK_MESSAGE(output.all().find("dtrain-engine: worker 1 at ") != std::string::npos, output.all());
  CHECK_MESSAGE(output.all().find(" did not answer for 2 s after step ") != std::string::npos, output.all());
  for (const char* other : {"worker 0 at ", "worker 2 at "}) CHECK_MESSAGE(output.all().find(other) == std::string::npos, output.all());
}
