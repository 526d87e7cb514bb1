// Manifests of Kubeflow as experiments, and who starts again by their policies.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/cluster.h"
#include "tests/support/facts.h"
#include "tests/support/skipped.h"

using namespace dtrain::tests;

namespace {

// A role of a manifest whose container does `script`.
std::string role(const std::string& name, int replicas, const std::string& policy, const std::string& container,
                 const std::string& script, const std::string& more = "") {
  return fmt::format(R"(    {0}:
      replicas: {1}
      restartPolicy: {2}
      template:
        spec:
          containers:
            - name: {3}
              image: train:1
              command: [sh, -c, '{4}']
              resources: {{requests: {{cpu: 100m, memory: 32Mi}}}}
{5})",
                     name, replicas, policy, container, script, more);
}

std::string tf_job(const std::string& policy, const std::string& roles) {
  return "apiVersion: kubeflow.org/v1\nkind: TFJob\nmetadata: {name: job}\nspec:\n  runPolicy: " + policy +
         "\n  tfReplicaSpecs:\n" + roles;
}

}  // namespace

TEST_CASE("a TFJob trains as it is: its roles find each other, and the servers end with the chief") {
  Cluster cluster;
  cluster.own_ports();
  // The chief ends all of them, but not before the others have said what they say.
  const std::string said = cluster.folder() / "said";
  REQUIRE(::mkfifo(said.c_str(), 0600) == 0);
  const std::string tell = "; echo said > " + said + "; exec sleep 1000";
  const std::string hear = "exec 3<> " + said + "; read a <&3; read a <&3; read a <&3; ";
  const std::string text = tf_job(
      "{cleanPodPolicy: None}",
      role("PS", 1, "Never", "tensorflow", "echo serves $MINE" + tell, "              env: [{name: MINE, value: ps}]\n") +
          role("Chief", 1, "Never", "tensorflow", hear + "cat beside; echo $MINE; echo $0", "              args: [\"$(TF_CONFIG)\"]\n"
               "              env: [{name: MINE, value: chief}, {name: NOBODY, valueFrom: {secretKeyRef: {name: a, key: b}}}]\n") +
          role("worker", 2, "Never", "tensorflow", "echo works $NOBODY" + tell,
               "            - {name: proxy, image: proxy}\n          nodeSelector: {a: b}\n"));
  const fs::path project = cluster.project("p", {{"jobs/job.yaml", text}, {"beside", "of the project\n"}});
  Command command = cluster.command({"train", "--no-image", "-f", "jobs/job.yaml", "--set", "train.finish-grace=0"}, project);
  command.env["NOBODY"] = "secret";
  const Output train = dtrain::tests::run(command);
  REQUIRE_MESSAGE(train.code == 0, train.all());
  CHECK_MESSAGE(train.err.find("Note: without Kubernetes these do nothing: nodeSelector (line ") != std::string::npos, train.err);
  CHECK_MESSAGE(train.err.find("Note: the container 'proxy' of Worker is not started (line ") != std::string::npos, train.err);
  CHECK_MESSAGE(train.err.find("Note: taken from your shell, not from secrets and maps of a cluster: NOBODY") != std::string::npos,
                train.err);

  const std::string chief = cluster.log_of("1.chief");
  REQUIRE_MESSAGE(chief.starts_with("of the project\nchief\n{"), chief);
  const Json config = Json::parse(chief.substr(chief.find('{')));
  CHECK(config["task"] == Json({{"type", "chief"}, {"index", 0}}));
  CHECK(config["cluster"]["worker"].size() == 2);
  CHECK(config["cluster"]["ps"].size() == 1);
  CHECK(cluster.log_of("1.ps.1") == "serves ps\n");
  CHECK(cluster.log_of("1.worker.1") == "works\n");   // the secret is the chief's
  const Json shown = facts(cluster.run({"status", "1", "--json"}));
  CHECK(shown["project"] == "job");
  CHECK(with_id(shown["replicas"], "1.ps.1")["state"] == "FINISHED");

  // Kubeflow's names are as good as IDs.
  CHECK(cluster.run({"status", "1", "--kubeflow"}).out.find("job-1 ") != std::string::npos);
  CHECK(cluster.run({"logs", "job-1-ps-0"}).out.find("serves ps\n") != std::string::npos);
  CHECK(cluster.run({"wait", "job-1"}).code == 0);
  const Json second = facts(cluster.run({"status", "job-1-worker-1", "--json"}));
  REQUIRE(second["replicas"].size() == 1);
  CHECK(second["replicas"][0]["id"] == "1.worker.2");
  CHECK(cluster.run({"status", "1", "--kubeflow"}).out.find("\njob-1-ps-0 ") != std::string::npos);
  for (const std::string name : {"job", "job-ps-0"}) {
    const Output lacking = cluster.run({"logs", name});
    CHECK(lacking.code == 2);
    CHECK_MESSAGE(lacking.err.find("the newest that is called so is 1: job-1" + name.substr(3) + "\n") != std::string::npos, lacking.err);
  }
  const Output other = cluster.run({"kill", "jop-1"});
  CHECK(other.code == 2);
  CHECK_MESSAGE(other.err.find("experiment 1 is 'job-1', not 'jop-1'") != std::string::npos, other.err);
}

TEST_CASE("by ExitCode a signal starts a worker again, and what gives up ends the job") {
  Cluster cluster;
  cluster.own_ports();
  // The other worker is who decides.
  const auto job = [](const std::string& policy, const std::string& script) {
    return tf_job(policy, role("PS", 1, "Never", "tensorflow", "exec sleep 1000") +
                              role("Chief", 1, "Never", "tensorflow", "until [ -e $OUTPUT_DIR/over ]; do sleep 0.05; done") +
                              role("Worker", 1, "ExitCode", "tensorflow", script));
  };
  const fs::path project = cluster.project(
      "p", {{"signal.yaml", job("{}", "[ $DTRAIN_ATTEMPT -gt 1 ] || kill -9 $$$$; touch $OUTPUT_DIR/over; echo again")},
            {"code.yaml", job("{}", "exit 7")},
            {"limit.yaml", job("{backoffLimit: 0}", "kill -9 $$$$")}});
  const Output train = cluster.run({"train", "--no-image", "-f", "signal.yaml", "--set", "train.restart={limit: 3, backoff: 0s}"}, project);
  CHECK_MESSAGE(train.code == 0, train.all());
  CHECK_MESSAGE(train.out.find("restart 1 of 3") != std::string::npos, train.out);
  CHECK(cluster.log_of("1.worker.1").find("again") != std::string::npos);

  const Output code = cluster.run({"train", "--no-image", "-f", "code.yaml"}, project);
  CHECK_MESSAGE(code.code == 7, code.all());
  CHECK_MESSAGE(code.out.find("restart 1") == std::string::npos, code.out);

  const Output limit = cluster.run({"train", "--no-image", "-f", "limit.yaml"}, project);
  CHECK_MESSAGE(limit.code == 137, limit.all());
  CHECK_MESSAGE(limit.out.find("restart 1") == std::string::npos, limit.out);
}

TEST_CASE("what comes through a pipe is about the current directory") {
  Cluster cluster;
  const fs::path project = cluster.project("p", {{"job.yaml", tf_job("{}", role("Worker", 1, "Never", "tensorflow", "cat beside"))},
                                                 {"plain.yml", "project: p\ntrain: {run: cat beside}\n"}, {"beside", "of it\n"}});
  for (const char* line : {"\"$@\" -f - < job.yaml", "cat plain.yml | \"$@\" -f -", "cat plain.yml | \"$@\" -f /dev/stdin"}) {
    CAPTURE(line);
    Command command = cluster.command({"train", "--no-image"}, project);
    command.argv.insert(command.argv.begin(), {"sh", "-c", line, "sh"});
    const Output train = dtrain::tests::run(command);
    CHECK_MESSAGE(train.code == 0, train.all());
    CHECK_MESSAGE(train.out.find("of it") != std::string::npos, train.out);
  }
}

TEST_CASE("an MPIJob's mpirun starts its ranks in the workers") {
  if (::access("/usr/bin/mpirun.openmpi", X_OK) != 0) return say_skipped("Open MPI is not installed");
  Cluster cluster;
  cluster.own_ports();
  const std::string text =
      "apiVersion: kubeflow.org/v2beta1\nkind: MPIJob\nmetadata: {name: ranks}\nspec:\n  slotsPerWorker: 2\n  mpiReplicaSpecs:\n" +
      role("Launcher", 1, "Never", "launcher", "mpirun.openmpi -n 4 sh -c \"echo ran \\$DTRAIN_REPLICA\"") +
      role("Worker", 2, "Never", "worker", "/usr/sbin/sshd -De");
  const fs::path project = cluster.project("p", {{"job.yaml", text}});
  const Output train = cluster.run({"train", "--no-image", "-f", "job.yaml"}, project);
  REQUIRE_MESSAGE(train.code == 0, train.all());
  for (const char* worker : {"ran 1.worker.1", "ran 1.worker.2"}) {
    const size_t first = train.out.find(worker);
    REQUIRE_MESSAGE(first != std::string::npos, train.out);
    CHECK_MESSAGE(train.out.find(worker, first + 1) != std::string::npos, train.out);
  }
}
