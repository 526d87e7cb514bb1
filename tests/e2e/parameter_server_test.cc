// The whole of what dtrain is for: a directory and a YAML file become a distributed training run.
#include <doctest/doctest.h>

#include "tests/support/cluster.h"
#include "tests/support/facts.h"

using namespace dtrain::tests;

namespace {

void copy_example(const std::string& name, const fs::path& to) {
  fs::copy(std::string(SOURCE_DIR) + "/examples/" + name, to, fs::copy_options::recursive);
}

}  // namespace

TEST_CASE("the parameter server example trains, saves its model, and its server ends with it") {
  Cluster cluster;
  cluster.own_ports();
  fs::path project = cluster.folder() / "digits";
  copy_example("parameter-server", project);

  Output train = cluster.run({"train", "-p", "epochs=2"}, project, std::chrono::seconds(180));
  CHECK_MESSAGE(train.code == 0, train.all());
  CHECK(train.all().find("Syncing project (") != std::string::npos);
  for (const char* id : {"1.master", "1.worker.1", "1.worker.2", "1.ps.1"}) {
    CHECK_MESSAGE(train.out.find(std::string("\n") + id) != std::string::npos, id);
  }
  CHECK(train.out.find("role=master index=0 workers=3 servers=1") != std::string::npos);
  CHECK(train.out.find("test_accuracy=0.") != std::string::npos);

  Json shown = facts(cluster.run({"status", "1", "--json"}));
  CHECK(shown["state"] == "FINISHED");
  CHECK(shown["exit_code"] == 0);
  const Json& ps = with_id(shown["replicas"], "1.ps.1");
  CHECK(ps["state"] == "FINISHED");
  CHECK(ps["reason"] == "ended with the experiment");
  for (const char* id : {"1.master", "1.worker.1", "1.worker.2"}) {
    CHECK(with_id(shown["replicas"], id)["state"] == "FINISHED");
  }

  fs::path output = shown["output_dir"].get<std::string>();
  Json model = Json::parse(read_file(output / "model.json"));
  CHECK(model["accuracy"].get<double>() > 0.7);
  CHECK(fs::equivalent(project / "runs" / "1", output));
  // The work tree is the replica's own: what it wrote nowhere else does not show up in the project.
  CHECK(!fs::exists(project / "model.json"));
}

TEST_CASE("hello: run lines in order, OUTPUT_DIR, -p") {
  Cluster cluster;
  fs::path project = cluster.folder() / "hello";
  copy_example("hello", project);

  Output train = cluster.run({"train", "-p", "name=you"}, project);
  CHECK_MESSAGE(train.code == 0, train.all());
  CHECK(train.out.find("hello, you, from 1.train") != std::string::npos);
  CHECK(read_file(project / "runs/1/hello.txt") == "written by 1\n");

  Output again = cluster.run({"logs", "1"}, project);
  CHECK(again.code == 0);
  CHECK(again.out.find("hello, you, from 1.train") != std::string::npos);
}

TEST_CASE("a directory in RiseML's form runs as it is") {
  Cluster cluster;
  fs::path project = cluster.project("riseml", {{"riseml.yml", R"(project: ai-toaster
train:
  framework: tensorflow
  resources:
    cpus: 0.2
    mem: 64
    gpus: 0
  tensorflow:
    distributed:
      worker:
        count: 2
      ps:
        count: 1
        resources:
          cpus: 0.1
          mem: 32
          gpus: 0
  run:
    - >-
      case $DTRAIN_REPLICA in *ps*) exec sleep 1000;; esac;
      echo layers={{ num-layers }} rate={{ learning-rate }} $TF_CONFIG
)"}});

  Output undeclared = cluster.run({"train"}, project);
  CHECK(undeclared.code == 2);
  CHECK_MESSAGE(undeclared.err.find("-p num-layers=") != std::string::npos, undeclared.err);

  Output train = cluster.run({"train", "-p", "num-layers=3", "-p", "learning-rate=0.1"}, project);
  CHECK_MESSAGE(train.code == 0, train.all());
  CHECK(train.out.find("layers=3 rate=0.1 {\"cluster\":{\"ps\":[\"") != std::string::npos);
  CHECK(train.out.find("\"task\":{\"type\":\"worker\",\"index\":1}") != std::string::npos);
}
