// What dtrain export writes, run by what it is for.
#include <doctest/doctest.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>

#include "tests/support/cluster.h"
#include "tests/support/facts.h"
#include "tests/support/skipped.h"

using namespace dtrain::tests;

namespace {

std::string sorted(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  std::sort(lines.begin(), lines.end());
  std::string out;
  for (const std::string& line : lines) out += line + "\n";
  return out;
}

// A Slurm of one's own, whose nodes are this machine.
struct Slurm {
  Cluster& cluster;
  std::unique_ptr<Process> process;

  static std::string unavailable() {
    if (::geteuid() != 0) return "a Slurm of one's own needs root";
    for (const char* program : {"/usr/sbin/slurmctld", "/usr/sbin/slurmd", "/usr/bin/sbatch", "/usr/sbin/munged"}) {
      if (::access(program, X_OK) != 0) return std::string(program) + " is not installed";
    }
    return "";
  }
  explicit Slurm(Cluster& of) : cluster(of) {
    const fs::path folder = cluster.folder() / "slurm";
    cluster.env["SLURM_CONF"] = (folder / "slurm.conf").string();
    process = std::make_unique<Process>(Command{{"python3", SOURCE_DIR "/tests/support/slurm.py", folder.string()}, {}, {}, {}});
    process->wait_for("ready");
  }
  ~Slurm() {
    process->signal(SIGTERM);
    process->wait();
  }
  // What the job of an exported script printed; `code` is what sbatch says of it.
  std::string output(const fs::path& project, int code) {
    const Output exported = cluster.run({"export", "--to", "slurm", "-o", "job.sh"}, project);
    REQUIRE_MESSAGE(exported.code == 0, exported.all());
    const Output ran = run({{"sbatch", "--wait", "--output=job.out", "job.sh"}, project, cluster.env, {}});
    const std::string out = read_file(project / "job.out");
    CHECK_MESSAGE(ran.code == code, ran.all() << out);
    return out;
  }
};

}  // namespace

TEST_CASE("what is exported to Kubeflow trains as what it was made of, and so does what ran") {
  Cluster cluster;
  cluster.own_ports();
  const fs::path project = cluster.project(R"yml(project: p
train:
  framework: pytorch
  resources: {cpus: 0.1, mem: 32}
  pytorch: {distributed: {worker: 2, master: {run: [export WHO=first, 'false; A="$$"', 'test "$A" = "$$" && printf ''%s|'' "$WHO" "$ANSWER" "$LINES" ''$(RANK)'' "it''s {{ rate }}" "$RATE" größe']}}}
  parameters: {rate: [0.10, 0.2]}
  env: {ANSWER: "yes", LINES: "two\n  lines $$(WHO)"}
  run: echo "rank $RANK of $WORLD_SIZE" '$(RANK)' "${RANK}"
)yml");
  REQUIRE(cluster.run({"train", "-p", "rate=0.10"}, project).code == 0);
  const Output whole = cluster.run({"export", "--to", "kubeflow", "--image", "train:1"}, project);
  CHECK(whole.code == 2);
  CHECK_MESSAGE(whole.err.find("p is a set of 2 members") != std::string::npos, whole.err);
  REQUIRE(cluster.run({"export", "1", "--to", "kubeflow", "--image", "train:1", "-o", "job.yaml"}, project).code == 0);
  const Output again = cluster.run({"train", "--no-image", "-f", "job.yaml"}, project);
  REQUIRE_MESSAGE(again.code == 0, again.all());
  CHECK(cluster.log_of("1.master").find("yes") != std::string::npos);
  CHECK(cluster.log_of("2.master") == cluster.log_of("1.master"));
  CHECK(cluster.log_of("2.worker.1") == "rank 1 of 2 $(RANK) 1\n");
  const Output taken = cluster.run({"export", "2", "--to", "kubeflow", "--image", "train:1", "-o", "job.yaml"}, project);
  CHECK(taken.code == 2);
  const Output same = cluster.run({"export", "2", "--to", "kubeflow", "--image", "train:1"}, project);
  CHECK(same.out == read_file(project / "job.yaml"));
  CHECK(cluster.run({"export", "2", "--to", "kubeflow", "--image", "train:1", "-o", "-"}, project).out == same.out);
  const Output empty = cluster.run({"export", "2", "--to", "kubeflow", "--image", "train:1", "-o", ""}, project);
  CHECK(empty.code == 2);
  CHECK_MESSAGE(empty.err.find("the name of the file is empty") != std::string::npos, empty.err);
}

TEST_CASE("what is exported to Slurm finds there what dtrain would tell it") {
  if (!Slurm::unavailable().empty()) return say_skipped(Slurm::unavailable());
  Cluster cluster;
  Slurm slurm(cluster);
  const fs::path torch = cluster.project("torch", {{"dtrain.yml", R"yml(project: p
train:
  framework: pytorch
  resources: {cpus: 40, mem: 64}
  pytorch: {nproc-per-node: 2, distributed: {worker: 2, master: {run: ['false; A=1', 'echo "first $A $RANK $PET_NPROC_PER_NODE $RATE $number"']}}}
  parameters: {rate: "it's $1"}
  env: {IFS: "0", number: own}
  run: echo "rank $RANK of $WORLD_SIZE, node $NODE_RANK of $PET_NNODES, $MASTER_ADDR, $OMP_NUM_THREADS threads, $SLURMD_NODENAME, $(basename "$OUTPUT_DIR")"
)yml"}});
  CHECK(sorted(slurm.output(torch, 0)) ==
        "0: first 1 0 2 it's $1 own\n1: rank 2 of 4, node 1 of 2, n1, 20 threads, n2, slurm-1\n");

  const fs::path tensorflow = cluster.project("tf", {{"dtrain.yml", R"yml(project: p
train:
  framework: tensorflow
  resources: {cpus: 1, mem: 64}
  tensorflow: {distributed: {chief: 1, worker: 2, ps: {count: 1, run: exec sleep 1000}}}
  run: echo "$TF_CONFIG"
)yml"}});
  const std::string told = slurm.output(tensorflow, 0);
  int tasks = 0;
  std::istringstream lines(told);
  for (std::string line; std::getline(lines, line);) {
    if (line.find("{\"cluster\"") == std::string::npos) continue;
    const Json config = Json::parse(line.substr(line.find('{')));
    CHECK(config["cluster"]["chief"].size() == 1);
    CHECK(config["cluster"]["worker"].size() == 2);
    CHECK(config["cluster"]["ps"].size() == 1);
    CHECK(config["cluster"]["ps"][0].get<std::string>().starts_with("n1:2"));
    CHECK(config["task"]["type"] == (line.starts_with("0:") ? "chief" : "worker"));
    CHECK(config["task"]["index"] == (line.starts_with("2:") ? 1 : 0));
    ++tasks;
  }
  CHECK_MESSAGE(tasks == 3, told);

  const fs::path fails = cluster.project("fails", {{"dtrain.yml", "project: p\ntrain:\n  run: [A=7, 'echo ends; exit $A']\n"}});
  CHECK(slurm.output(fails, 7).find("0: ends\n") != std::string::npos);

  // Either node has room for both.
  const fs::path apart = cluster.project("apart", {{"dtrain.yml", R"yml(project: p
train:
  framework: tensorflow
  resources: {cpus: 1, mem: 64}
  tensorflow: {distributed: {worker: {count: 2, per-host: 1}}}
  run: echo on $SLURMD_NODENAME
)yml"}});
  CHECK(sorted(slurm.output(apart, 0)) == "0: on n1\n1: on n2\n");
}

TEST_CASE("mpirun starts its ranks in the tasks of a job") {
  if (!Slurm::unavailable().empty()) return say_skipped(Slurm::unavailable());
  if (::access("/usr/bin/mpirun.openmpi", X_OK) != 0) return say_skipped("Open MPI is not installed");
  Cluster cluster;
  Slurm slurm(cluster);
  const fs::path project = cluster.project(R"yml(project: p
train:
  framework: mpi
  mpi: {slots: 2, distributed: {worker: {count: 2, resources: {cpus: 2, mem: 64}}}}
  env: {ANSWER: "yes"}
  run: mpirun.openmpi --allow-run-as-root sh -c 'echo "$OMPI_COMM_WORLD_RANK of $OMPI_COMM_WORLD_SIZE $ANSWER"'
)yml");
  CHECK(sorted(slurm.output(project, 0)) == "0 of 4 yes\n1 of 4 yes\n2 of 4 yes\n3 of 4 yes\n");
}
