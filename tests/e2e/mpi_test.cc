// framework: mpi, with mpirun as Open MPI and MPICH have it.
#include <arpa/inet.h>
#include <doctest/doctest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <sstream>

#include "tests/support/cluster.h"
#include "tests/support/facts.h"
#include "tests/support/network.h"
#include "tests/support/skipped.h"
#include "tests/support/tiny_image.h"

using namespace dtrain::tests;

namespace {

// Those that are installed, by how they start four ranks.
std::vector<std::string> mpiruns() {
  std::vector<std::string> found;
  for (const std::string program : {"mpirun.openmpi", "mpiexec.hydra"}) {
    if (::access(("/usr/bin/" + program).c_str(), X_OK) == 0) found.push_back(program + " -n 4");
  }
  return found;
}

std::string yaml(const std::string& run, const std::string& more = "") {
  return "project: ranks\ntrain:\n  framework: mpi\n  resources: {cpus: 0.5, mem: 64}\n" + more +
         "  mpi: {slots: 2, distributed: {worker: 2}}\n  run: " + run + "\n";
}

// The ends of lines that hold "ran ".
std::multiset<std::string> ran(const Output& output) {
  std::multiset<std::string> all;
  std::istringstream lines(output.out);
  for (std::string line; std::getline(lines, line);) {
    const size_t at = line.find("ran ");
    if (at != std::string::npos) all.insert(line.substr(at + 4));
  }
  return all;
}

// Connects to the worker's port and answers its challenge; what it hears after that.
std::string heard_by_stranger(int port, const std::string& command) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_port = htons(static_cast<uint16_t>(port));
  at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  REQUIRE(::connect(fd, reinterpret_cast<sockaddr*>(&at), sizeof at) == 0);
  const auto frame = [](char kind, const std::string& bytes) {
    const auto size = static_cast<uint32_t>(bytes.size());
    std::string out(reinterpret_cast<const char*>(&size), sizeof size);
    return out + kind + bytes;
  };
  const std::string words = frame(1, std::string(32, 'x')) + frame(2, command);
  CHECK(::send(fd, words.data(), words.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(words.size()));
  std::string heard;
  char piece[256];
  for (ssize_t got; (got = ::recv(fd, piece, sizeof piece, 0)) > 0;) heard.append(piece, static_cast<size_t>(got));
  ::close(fd);
  return heard;
}

// A daemon, and a runner on each of the network's two hosts.
class TwoHosts {
 public:
  TwoHosts(Cluster& cluster, const Network& network) {
    daemon_ = std::make_unique<Process>(cluster.command({"daemon", "run", "--no-local-runner"}));
    daemon_->wait_for("listening on");
    const std::string socket = facts(cluster.run({"daemon", "status", "--json"}))["socket"];
    for (int host = 0; host < 2; ++host) {
      const std::string name = "host" + std::to_string(host);
      Command joining = cluster.command({"runner", "run", "--join", "unix:" + socket, "--home",
                                         (cluster.folder() / name).string(), "--address", Network::address(host), "--name",
                                         name, "--cpus", "1"});
      joining.netns = network.netns(host);
      // Hosts share no memory.
      joining.argv.insert(joining.argv.begin(), {"/usr/bin/unshare", "--mount", "/bin/sh", "-c",
                                                 "mount -t tmpfs none /dev/shm && exec \"$0\" \"$@\""});
      runners_.push_back(std::make_unique<Process>(joining));
      runners_.back()->wait_for("joined the daemon");
    }
  }

 private:
  std::unique_ptr<Process> daemon_;
  std::vector<std::unique_ptr<Process>> runners_;
};

}  // namespace

TEST_CASE("mpirun finds its hosts by itself, and starts ranks in the workers, as what these are") {
  if (mpiruns().empty()) return say_skipped("neither Open MPI nor MPICH is installed");
  Cluster cluster;
  cluster.own_ports();
  for (const std::string& mpirun : mpiruns()) {
    CAPTURE(mpirun);
    const fs::path project =
        cluster.project("p", {{"dtrain.yml", yaml(mpirun + " sh here.sh", "  env: {MINE: own}\n")},
                              {"here.sh", "echo ran $DTRAIN_REPLICA $MINE $OMP_NUM_THREADS\n"}});
    const Output train = cluster.run({"train"}, project);
    REQUIRE_MESSAGE(train.code == 0, train.all());
    const std::string id = std::to_string(facts(cluster.run({"status", "-a", "--json"}))["experiments"].size());
    const std::string first = id + ".worker.1 own 1", second = id + ".worker.2 own 1";
    const std::multiset<std::string> expected = {first, first, second, second};
    CHECK_MESSAGE(ran(train) == expected, train.out);
    for (const Json& replica : facts(cluster.run({"status", id, "--json"}))["replicas"]) {
      CHECK(replica["state"] == "FINISHED");
    }
  }
}

TEST_CASE("mpirun finds its way into workers whose home has a space in its path") {
  if (mpiruns().empty()) return say_skipped("neither Open MPI nor MPICH is installed");
  Cluster parent;
  Cluster cluster(parent.folder() / "a home");
  cluster.own_ports();
  for (const std::string& mpirun : mpiruns()) {
    CAPTURE(mpirun);
    // A mpirun whose agent is misunderstood may wait for ever.
    const fs::path project = cluster.project("p", {{"dtrain.yml", yaml("timeout 20 " + mpirun + " sh here.sh")},
                                                   {"here.sh", "cat here.sh | tail -1\n# ran it\n"}});
    const Output train = cluster.run({"train"}, project);
    REQUIRE_MESSAGE(train.code == 0, train.all());
    CHECK_MESSAGE(ran(train).size() == 4, train.all());
  }
}

// What is cleaned up after the build has the number of the launch that it was for.
TEST_CASE("ranks start after a build of their environment") {
  for (const std::string& mpirun : mpiruns()) {
    CAPTURE(mpirun);
    Cluster cluster;
    const std::string build = (cluster.home() / "runner/launches/1.build@1").string();
    const std::string run = "while [ -e " + build + " ]; do sleep 0.01; done; " + mpirun + " sh here.sh";
    const fs::path project = cluster.project("p", {{"dtrain.yml", yaml(run, "  install: ['true']\n")}, {"here.sh", "echo ran $OMPI_COMM_WORLD_RANK$PMI_RANK\n"}});
    const Output output = cluster.run({"train"}, project, std::chrono::seconds{120});
    CHECK_MESSAGE(output.code == 0, output.all());
    CHECK(ran(output) == std::multiset<std::string>{"0", "1", "2", "3"});
  }
}

TEST_CASE("a rank that fails fails the experiment, with its code, and nobody is left") {
  if (mpiruns().empty()) return say_skipped("neither Open MPI nor MPICH is installed");
  Cluster cluster;
  cluster.own_ports();
  for (const std::string& mpirun : mpiruns()) {
    CAPTURE(mpirun);
    const fs::path project = cluster.project(
        "p", {{"dtrain.yml", yaml(mpirun + " sh here.sh")},
              // MPICH's ends the others only of programs that are MPI's.
              {"here.sh", "test ${OMPI_COMM_WORLD_RANK:-$PMI_RANK} = 3 && exit 7\n"
                          "test -z \"$OMPI_COMM_WORLD_RANK\" || exec sleep 1000\n"}});
    const Output train = cluster.run({"train"}, project);
    CHECK_MESSAGE(train.code == 7, train.all());
    CHECK_MESSAGE(train.err.find(".launcher: exit code 7") != std::string::npos, train.all());
  }
}

TEST_CASE("a program in a worker may write more than anybody has read, before it reads") {
  Cluster cluster;
  cluster.own_ports();
  const fs::path project = cluster.project(
      yaml("head -c 5000000 /dev/zero | timeout 20 \"$OMPI_MCA_plm_rsh_agent\" 1-worker-1 cat | echo ran $(wc -c)"));
  const Output train = cluster.run({"train"}, project);
  CHECK_MESSAGE(ran(train) == std::multiset<std::string>{"5000000"}, train.all());
}

TEST_CASE("members of a set that run at the same time have mpirun find each its own workers") {
  if (mpiruns().empty()) return say_skipped("neither Open MPI nor MPICH is installed");
  Cluster cluster;
  cluster.own_ports();
  const fs::path met = cluster.folder() / "met";
  REQUIRE(mkfifo(met.c_str(), 0600) == 0);
  // The first goes on once the second has begun.
  const std::string run = "test {{ n }} = 1 && read x < '" + met.string() + "' || echo go > '" + met.string() + "'";
  const fs::path project = cluster.project(
      "p", {{"dtrain.yml", "project: ranks\ntrain:\n  framework: mpi\n  resources: {cpus: 0.1, mem: 16}\n"
                           "  mpi: {distributed: {worker: 1, launcher: {resources: {cpus: 0.1, mem: 16}}}}\n"
                           "  parameters: {n: [1, 2]}\n  run:\n    - " + run + "\n    - " +
                           mpiruns().front().substr(0, mpiruns().front().find(' ')) + " -n 1 sh here.sh\n"},
            {"here.sh", "echo ran $DTRAIN_REPLICA\n"}});
  const Output train = cluster.run({"train"}, project);
  REQUIRE_MESSAGE(train.code == 0, train.all());
  const std::multiset<std::string> expected = {"1.1.worker.1", "1.2.worker.1"};
  CHECK_MESSAGE(ran(train) == expected, train.out);
}

TEST_CASE("mpirun keeps nothing where others do, who may be in its way") {
  const std::vector<std::string> all = mpiruns();
  if (all.empty() || all.front().find("openmpi") == std::string::npos) return say_skipped("Open MPI is not installed");
  Cluster cluster;
  cluster.own_ports();
  // Nobody can make anything there.
  const fs::path project = cluster.project(yaml(all.front().substr(0, all.front().find(' ')) + " -n 1 echo ran", "  env: {TMPDIR: /proc/nowhere}\n"));
  const Output train = cluster.run({"train"}, project);
  REQUIRE_MESSAGE(train.code == 0, train.all());
  CHECK_MESSAGE(train.out.find("] ran\n") != std::string::npos, train.out);
}

TEST_CASE("a worker that is killed ends the gang, and is named") {
  Cluster cluster;
  cluster.own_ports();
  const fs::path project = cluster.project(yaml("echo here; exec sleep 1000"));
  auto train = cluster.start({"train"}, project);
  train->wait_for("here");
  for (const std::string worker : {"1", "2"}) train->wait_for("listening for mpirun, as 1-worker-" + worker);
  const auto workers = cluster.processes("dtrain mpi-worker");
  REQUIRE(workers.size() == 2);
  for (const pid_t pid : workers) {
    if (read_file("/proc/" + std::to_string(pid) + "/environ").find("=1.worker.1") != std::string::npos) kill(pid, SIGKILL);
  }
  const Output ended = train->wait();
  CHECK_MESSAGE(ended.code == 128 + SIGKILL, ended.all());
  CHECK_MESSAGE(ended.err.find(".worker.1: killed by SIGKILL") != std::string::npos, ended.all());
}

TEST_CASE("a directory that the user tells Open MPI of is left alone") {
  Cluster cluster;
  cluster.own_ports();
  const fs::path mine = cluster.folder() / "mine";
  fs::create_directory(mine);
  write_file(mine / "kept", "kept");
  const fs::path project = cluster.project(
      yaml("echo done", "  env: {OMPI_MCA_btl_vader_backing_directory: '" + mine.string() + "'}\n"));
  const Output train = cluster.run({"train"}, project);
  REQUIRE_MESSAGE(train.code == 0, train.all());
  CHECK(fs::exists(mine / "kept"));
}

TEST_CASE("nobody starts anything in a worker who does not know the experiment's secret") {
  Cluster cluster;
  cluster.own_ports();
  const fs::path project = cluster.project(yaml("echo here; exec sleep 1000"));
  auto train = cluster.start({"train"}, project);
  train->wait_for("listening for mpirun, as 1-worker-1");
  const int port = facts(cluster.run({"status", "1", "--json"}))["replicas"][1]["port"];
  const fs::path made = cluster.folder() / "made";
  const std::string heard = heard_by_stranger(port, "touch '" + made.string() + "'; echo hello");
  CHECK(heard.size() == 5 + 32);   // the challenge
  train->wait_for("a stranger was refused");
  CHECK(!fs::exists(made));
  CHECK(cluster.run({"kill", "1"}).code == 0);
  CHECK(train->wait().code == 130);
}

TEST_CASE("what everybody of a host can list does not tell the experiment's secret") {
  Cluster cluster;
  cluster.own_ports();
  const fs::path project = cluster.project(yaml("echo secret $DTRAIN_SUBMISSION in $PWD; exec sleep 1000"));
  auto train = cluster.start({"train"}, project);
  train->wait_for("secret ");
  train->wait_for(" in /dev/shm/");
  CHECK(cluster.run({"kill", "1"}).code == 0);
  const Output ended = train->wait();
  std::istringstream words(ended.out.substr(ended.out.find("secret ") + std::strlen("secret ")));
  std::string secret, in, directory;
  words >> secret >> in >> directory;
  REQUIRE_MESSAGE(in == "in", ended.out);
  CHECK(secret.size() >= 32);
  CHECK_MESSAGE(directory.find(secret) == std::string::npos, directory);
}

TEST_CASE("a name that is no worker's is refused, with what to leave out") {
  if (mpiruns().empty() || mpiruns().front().find("openmpi") == std::string::npos) {
    return say_skipped("Open MPI is not installed");
  }
  Cluster cluster;
  cluster.own_ports();
  const fs::path project = cluster.project(yaml("mpirun.openmpi --host elsewhere:2 true"));
  const Output train = cluster.run({"train"}, project);
  CHECK(train.code != 0);
  CHECK_MESSAGE(train.all().find("'elsewhere' is no worker of this experiment") != std::string::npos, train.all());
}

TEST_CASE("ranks start in the image, which may be all the files of the host") {
  if (::geteuid() != 0) return say_skipped("only root may see all the files of the host in an image");
  if (mpiruns().empty()) return say_skipped("neither Open MPI nor MPICH is installed");
  Cluster cluster;
  cluster.own_ports();
  for (const std::string& mpirun : mpiruns()) {
    CAPTURE(mpirun);
    const fs::path project = cluster.project(
        "p", {{"dtrain.yml", yaml("'" + mpirun + " sh in_image.sh'", "  image: /\n")},
              {"in_image.sh", "test -x /.dtrain/dtrain && echo ran $DTRAIN_REPLICA\n"}});
    const Output train = cluster.run({"train"}, project);
    if (says(train, "images can't be used here")) return say_skipped("no image can be entered here");
    REQUIRE_MESSAGE(train.code == 0, train.all());
    const std::string id = train.out.substr(train.out.find('\n') + 1, 1);
    CHECK_MESSAGE(ran(train).count(id + ".worker.1") == 2, train.out);
    CHECK_MESSAGE(ran(train).count(id + ".worker.2") == 2, train.out);
  }
}

TEST_CASE("in an image the lists of hosts that Kubeflow has lie where it has them") {
  if (::geteuid() != 0) return say_skipped("only root may see all the files of the host in an image");
  if (mpiruns().empty() || mpiruns().front().find("openmpi") == std::string::npos) {
    return say_skipped("Open MPI is not installed");
  }
  Cluster cluster;
  cluster.own_ports();
  const fs::path project = cluster.project(
      yaml("\n    - /etc/mpi/discover_hosts.sh\n    - mpirun.openmpi --hostfile /etc/mpi/hostfile -n 4 sh -c 'echo ran $DTRAIN_REPLICA'",
           "  image: /\n"));
  const Output train = cluster.run({"train"}, project);
  if (says(train, "images can't be used here")) return say_skipped("no image can be entered here");
  REQUIRE_MESSAGE(train.code == 0, train.all());
  const std::string log = cluster.log_of("1.launcher");
  CHECK_MESSAGE(log.starts_with("1-worker-1:2\n1-worker-2:2\n"), log);
  const std::multiset<std::string> expected = {"1.worker.1", "1.worker.1", "1.worker.2", "1.worker.2"};
  CHECK_MESSAGE(ran(train) == expected, train.out);
}

TEST_CASE("an image without a C library that dtrain runs with is refused in one line, with what to do") {
  if (const std::string lacking = tiny_image_unavailable(); !lacking.empty()) return say_skipped(lacking);
  Cluster cluster;
  cluster.own_ports();
  const fs::path files = cluster.folder() / "image";
  make_tiny_image(files);
  const fs::path project = cluster.project(yaml("mpirun true", "  image: " + files.string() + "\n"));
  const Output train = cluster.run({"train"}, project);
  CHECK(train.code == 1);
  CHECK_MESSAGE(train.all().find("framework: mpi takes an image with glibc 2.") != std::string::npos, train.all());
  CHECK_MESSAGE(train.all().find(" or later; " + files.string() + " has none; take a newer image, or --no-image") != std::string::npos,
                train.all());
  CHECK(cluster.log_of("1.worker.1").empty());
}

TEST_CASE("ranks on two hosts begin where mpirun does, which is elsewhere on each") {
  Network network(2);
  if (!network.unavailable().empty()) return say_skipped(network.unavailable());
  if (mpiruns().empty()) return say_skipped("neither Open MPI nor MPICH is installed");
  Cluster cluster;
  const TwoHosts hosts(cluster, network);
  for (const std::string& mpirun : mpiruns()) {
    CAPTURE(mpirun);
    const fs::path project =
        cluster.project("p", {{"dtrain.yml", "project: ranks\ntrain:\n  framework: mpi\n  resources: {cpus: 0.8, mem: 64}\n"
                                             "  mpi: {slots: 2, distributed: {worker: 2}}\n  run: " + mpirun + " sh here.sh\n"},
                              {"here.sh", "echo ran $DTRAIN_ADDRESS\n"}});
    const Output train = cluster.run({"train"}, project);
    REQUIRE_MESSAGE(train.code == 0, train.all());
    const std::string first = Network::address(0), second = Network::address(1);
    const std::multiset<std::string> expected = {first, first, second, second};
    CHECK_MESSAGE(ran(train) == expected, train.out);
  }
}

TEST_CASE("ranks on two hosts meet where each also has a network of its own, with the same addresses") {
  Network network(2);
  if (!network.unavailable().empty()) return say_skipped(network.unavailable());
  if (run({.argv = {"/usr/bin/python3", "-c", "import mpi4py"}, .directory = {}, .env = {}, .netns = {}}).code != 0 ||
      mpiruns().empty() || mpiruns().front().find("openmpi") == std::string::npos) {
    return say_skipped("Open MPI or its mpi4py is not installed");
  }
  for (int host = 0; host < 2; ++host) {   // as Docker makes it
    for (const std::string words : {"link add docker0 type veth peer name inside", "addr add 172.17.0.1/16 dev docker0",
                                    "link set inside up", "link set docker0 up"}) {
      const std::string line = "ip -n " + fs::path(network.netns(host)).filename().string() + " " + words;
      REQUIRE(run({.argv = {"/bin/sh", "-c", line}, .directory = {}, .env = {}, .netns = {}}).code == 0);
    }
  }
  Cluster cluster;
  const TwoHosts hosts(cluster, network);
  for (const std::string options : {"", " --mca btl_tcp_if_exclude lo,docker0"}) {
    CAPTURE(options);
    const fs::path project =
        cluster.project("p", {{"dtrain.yml", "project: ranks\ntrain:\n  framework: mpi\n  resources: {cpus: 0.8, mem: 64}\n"
                                             "  mpi: {slots: 2, distributed: {worker: 2}}\n"
                                             "  run: timeout 30 mpirun.openmpi" + options + " /usr/bin/python3 sum.py\n"},
                              {"sum.py", "from mpi4py import MPI\n"
                                         // In one piece: mpirun mixes what ranks write.
                                         "print('ran %d\\n' % MPI.COMM_WORLD.allreduce(MPI.COMM_WORLD.rank), end='')\n"}});
    const Output train = cluster.run({"train"}, project);
    CHECK_MESSAGE(train.code == 0, train.all());
    const std::multiset<std::string> expected = {"6", "6", "6", "6"};
    CHECK_MESSAGE(ran(train) == expected, train.out);
  }
}
