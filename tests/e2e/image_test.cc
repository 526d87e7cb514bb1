// Programs in images of containers: what a user sees, with a real podman where there is one.
#include <doctest/doctest.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/support/cluster.h"
#include "tests/support/facts.h"
#include "tests/support/skipped.h"
#include "tests/support/tiny_image.h"

using namespace dtrain::tests;

namespace {

// Images of podman in a store of the scene's own.
struct ImageScene {
  Cluster cluster;
  fs::path files = cluster.folder() / "image";

  std::string unavailable() {
    if (::access("/usr/bin/podman", X_OK) != 0) return "podman is not installed";
    if (const std::string lacking = tiny_image_unavailable(); !lacking.empty()) return lacking;
    const fs::path store = cluster.folder() / "store";
    write_file(cluster.folder() / "storage.conf",
               fmt::format("[storage]\ndriver = \"vfs\"\ngraphroot = \"{0}/images\"\nrunroot = \"{0}/run\"\n", store.string()));
    cluster.env["CONTAINERS_STORAGE_CONF"] = (cluster.folder() / "storage.conf").string();
    const Output said = podman({"info"});
    if (said.code != 0) return "podman does not work: " + said.all();
    make_tiny_image(files);
    return "";
  }
  Output podman(std::vector<std::string> words) {
    words.insert(words.begin(), "/usr/bin/podman");
    return run({words, {}, cluster.env, {}});
  }
  // As localhost/tiny, with a file that says which it is.
  void import_as(const std::string& which) {
    write_file(files / "which", which + "\n");
    const fs::path tar = cluster.folder() / "image.tar";
    REQUIRE(run({{"tar", "-C", files.string(), "-cf", tar.string(), "."}, {}, {}, {}}).code == 0);
    const Output imported = podman({"import", "--change", "ENV PATH=/bin", "--change", "ENV MARK=of the image", "--change",
                                    "WORKDIR /etc", "--change", "CMD [\"/bin/cat\",\"/which\"]", tar.string(), "localhost/tiny"});
    REQUIRE_MESSAGE(imported.code == 0, imported.all());
  }
};

}  // namespace

TEST_CASE("an image is fetched once, runs by itself or what it is told, and a changed one is fetched again") {
  ImageScene scene;
  if (const std::string why = scene.unavailable(); !why.empty()) return say_skipped(why);
  scene.import_as("first");
  Cluster& cluster = scene.cluster;
  const fs::path project = cluster.project("project: p\ntrain: {image: localhost/tiny}\n");
  const Output first = cluster.run({"train"}, project);
  REQUIRE_MESSAGE(first.code == 0, first.all());
  CHECK_MESSAGE(first.out.find("+ podman export localhost/tiny") != std::string::npos, first.out);
  CHECK(scene.cluster.log_of("1.train") == "first\n");

  const Output told = cluster.run({"train", "--image", "localhost/tiny", "--", "sh", "-c", "echo $MARK; cd $DTRAIN_IMAGE_DIR; pwd; cat passwd"}, project);
  REQUIRE_MESSAGE(told.code == 0, told.all());
  CHECK_MESSAGE(told.out.find("4.build") == std::string::npos, told.out);
  CHECK(scene.cluster.log_of("2.train") == "of the image\n/etc\nroot:x:0:0::/root:/bin/sh\n");

  scene.import_as("second");
  const Output again = cluster.run({"rerun", "1"}, project);
  REQUIRE_MESSAGE(again.code == 0, again.all());
  CHECK(scene.cluster.log_of("3.train") == "second\n");
}

TEST_CASE("where an image can't be fetched it is said what does without one") {
  ImageScene scene;
  if (const std::string why = scene.unavailable(); !why.empty()) return say_skipped(why);
  const Output failed = scene.cluster.run({"train", "--image", "localhost/none", "--", "true"}, scene.cluster.project("project: p\n"));
  CHECK(failed.code != 0);
  CHECK_MESSAGE(failed.err.find("pull localhost/none\n") != std::string::npos, failed.all());
  CHECK_MESSAGE(failed.err.find("  | Without the image, by what the hosts have: dtrain train --no-image\n") != std::string::npos, failed.all());
}

TEST_CASE("--rebuild takes what a name means now, once, and all files of it") {
  ImageScene scene;
  if (const std::string why = scene.unavailable(); !why.empty()) return say_skipped(why);
  fs::create_directories(scene.files / "opt/dev");
  write_file(scene.files / "opt/dev/file", "not a device\n");
  scene.import_as("first");
  Cluster& cluster = scene.cluster;
  // A registry's place is taken by a pull that gives the name to another image.
  const fs::path wrapper = cluster.folder() / "programs/podman";
  fs::create_directories(wrapper.parent_path());
  write_file(wrapper, "#!/bin/sh\nif [ \"$1\" = pull ]; then podman() { /usr/bin/podman \"$@\"; }; podman tag localhost/next docker.io/library/moved; "
                      "podman image inspect --format '{{.Id}}' localhost/next; exit; fi\nexec /usr/bin/podman \"$@\"\n");
  fs::permissions(wrapper, fs::perms::owner_all);
  cluster.env["PATH"] = wrapper.parent_path().string() + ":/usr/bin:/bin";
  REQUIRE(scene.podman({"tag", "localhost/tiny", "docker.io/library/moved"}).code == 0);
  const fs::path project = cluster.project("project: p\ntrain: {image: moved, run: cat /which /opt/dev/file}\n");
  const Output first = cluster.run({"train"}, project);
  REQUIRE_MESSAGE(first.code == 0, first.all());
  scene.import_as("second");
  REQUIRE(scene.podman({"tag", "localhost/tiny", "localhost/next"}).code == 0);
  const Output rebuilt = cluster.run({"train", "--rebuild"}, project);
  REQUIRE_MESSAGE(rebuilt.code == 0, rebuilt.all());
  CHECK(scene.cluster.log_of("1.train") == "first\nnot a device\n");
  CHECK(scene.cluster.log_of("2.train") == "second\nnot a device\n");
  const Output after = cluster.run({"train"}, project);
  CHECK_MESSAGE(after.out.find("podman") == std::string::npos, after.out);
  CHECK(scene.cluster.log_of("3.train") == "second\nnot a device\n");
}

TEST_CASE("an archive that was replaced is taken anew") {
  ImageScene scene;
  if (const std::string why = scene.unavailable(); !why.empty()) return say_skipped(why);
  Cluster& cluster = scene.cluster;
  const std::string archive = "docker-archive:" + (cluster.folder() / "saved.tar").string();
  const fs::path project = cluster.project("project: p\ntrain: {run: cat /which}\n");
  for (const std::string which : {"first", "second"}) {
    scene.import_as(which);
    fs::remove(cluster.folder() / "saved.tar");
    REQUIRE(scene.podman({"save", "-o", (cluster.folder() / "saved.tar").string(), "localhost/tiny"}).code == 0);
    const Output train = cluster.run({"train", "--set", "train.image=" + archive}, project);
    REQUIRE_MESSAGE(train.code == 0, train.all());
    CHECK_MESSAGE(train.out.find(" " + which + "\n") != std::string::npos, train.out);
  }
}

TEST_CASE("a build that is killed leaves no container, and the next one makes what it had begun") {
  ImageScene scene;
  if (const std::string why = scene.unavailable(); !why.empty()) return say_skipped(why);
  scene.import_as("any");
  Cluster& cluster = scene.cluster;
  const fs::path gate = cluster.folder() / "gate", wrapper = cluster.folder() / "programs/podman";
  REQUIRE(mkfifo(gate.c_str(), 0600) == 0);
  fs::create_directories(wrapper.parent_path());
  write_file(wrapper, fmt::format("#!/bin/sh\nif [ \"$1\" = export ]; then echo at the gate >&2; cat {}; fi\nexec /usr/bin/podman \"$@\"\n",
                                  gate.string()));
  fs::permissions(wrapper, fs::perms::owner_all);
  cluster.env["PATH"] = wrapper.parent_path().string() + ":/usr/bin:/bin";
  const fs::path project = cluster.project("project: p\ntrain: {image: localhost/tiny}\n");
  const auto train = cluster.start({"train"}, project);
  train->wait_for("at the gate");
  CHECK(says(scene.podman({"ps", "--all"}), "dtrain-"));
  REQUIRE(cluster.run({"kill", "1"}).code == 0);
  CHECK(train->wait().code == 130);
  CHECK(!says(scene.podman({"ps", "--all"}), "dtrain-"));
  write_file(wrapper, "#!/bin/sh\nexec /usr/bin/podman \"$@\"\n");
  const Output again = cluster.run({"train"}, project);
  CHECK_MESSAGE(again.code == 0, again.all());
  CHECK(scene.cluster.log_of("2.train") == "any\n");
  const Output pruned = cluster.run({"prune", "--environments", "--yes"});
  CHECK_MESSAGE(pruned.code == 0, pruned.all());
}

TEST_CASE("steps of install go on in the image, for all that have the same") {
  ImageScene scene;
  if (const std::string why = scene.unavailable(); !why.empty()) return say_skipped(why);
  scene.import_as("any");
  Cluster& cluster = scene.cluster;
  const fs::path project = cluster.project(
      "p", {{"dtrain.yml", "project: p\ntrain:\n  image: localhost/tiny\n  install: [mkdir /opt, cat words.txt > /opt/words]\n"
                           "  env: {EXTRA: more}\n  run: [cat /opt/words, echo $EXTRA, touch /opt/x]\n"},
            {"words.txt", "installed\n"}});
  const Output first = cluster.run({"train"}, project);
  REQUIRE_MESSAGE(first.code == 0, first.all());
  CHECK_MESSAGE(first.out.find("+ cat words.txt > /opt/words") != std::string::npos, first.out);
  CHECK(scene.cluster.log_of("1.train") == "installed\nmore\n");
  REQUIRE(cluster.run({"train"}, project).code == 0);
  CHECK(with_id(facts(cluster.run({"status", "2", "--json"}))["replicas"], "2.train")["state"] == "FINISHED");
  CHECK(scene.cluster.log_of("2.train") == "installed\nmore\n");

  write_file(project / "words.txt", "");
  const Output failing = cluster.run({"train", "--set", "train.install=[cat none.txt]"}, project);
  CHECK(failing.code == 1);
  CHECK_MESSAGE(failing.all().find("Failed with exit code 1: a step of install") != std::string::npos, failing.all());
}

TEST_CASE("roles run in images of their own, and one build makes all that its host needs") {
  ImageScene scene;
  if (const std::string why = scene.unavailable(); !why.empty()) return say_skipped(why);
  for (const std::string which : {"first", "second"}) {
    scene.import_as(which);
    REQUIRE(scene.podman({"tag", "localhost/tiny", "localhost/" + which}).code == 0);
  }
  Cluster& cluster = scene.cluster;
  const fs::path project = cluster.project(
      "project: p\ntrain:\n  framework: tensorflow\n  image: localhost/first\n  completion: all-workers\n"
      "  resources: {cpus: 0.1, mem: 32}\n  tensorflow: {distributed: {chief: 1, worker: {count: 1, image: localhost/second}}}\n");
  const Output both = cluster.run({"train"}, project);
  REQUIRE_MESSAGE(both.code == 0, both.all());
  CHECK_MESSAGE(has_in_order(both.out, {"+ podman export localhost/first", "+ podman export localhost/second"}), both.out);
  CHECK(cluster.log_of("1.chief") == "first\n");
  CHECK(cluster.log_of("1.worker.1") == "second\n");
  const Output plan = cluster.run({"train", "--dry-run"}, project);
  CHECK_MESSAGE(says(plan, "in the images localhost/first, localhost/second"), plan.all());
  const Output shown = cluster.run({"status", "1"}, project);
  CHECK_MESSAGE(has_in_order(shown.out, {"Image:", "localhost/first", "of worker:", "localhost/second"}), shown.out);

  // Without a command an image is that of all that the file says.
  const Output all = cluster.run({"train", "--image", "localhost/second"}, project);
  REQUIRE_MESSAGE(all.code == 0, all.all());
  CHECK(cluster.log_of("2.chief") == "second\n");

  // What is made is made for every role; of the other image there is nothing to do.
  const Output one = cluster.run({"train", "--image", "localhost/second", "--", "cat", "/which"}, project);
  REQUIRE_MESSAGE(one.code == 0, one.all());
  CHECK_MESSAGE(!says(one, "podman"), one.out);
  CHECK(cluster.log_of("3.train") == "second\n");

  const Output failed = cluster.run({"train", "--set", "train.tensorflow.distributed.worker.image=localhost/none"}, project);
  CHECK(failed.code != 0);
  CHECK_MESSAGE(says(failed, "pull localhost/none"), failed.all());
  const Output without = cluster.run({"train", "--no-image", "--set", "train.run=echo on the host"}, project);
  CHECK_MESSAGE(without.code == 0, without.all());
  CHECK(cluster.log_of("5.worker.1") == "on the host\n");
}

TEST_CASE("a gang runs in a directory of an image's files, each with a layer of its own, and ends as any other") {
  ImageScene scene;
  if (const std::string lacking = tiny_image_unavailable(); !lacking.empty()) return say_skipped(lacking);
  make_tiny_image(scene.files);
  Cluster& cluster = scene.cluster;
  const fs::path gate = cluster.folder() / "set/gate";
  const fs::path shared = cluster.folder() / "shared";
  fs::create_directories(gate.parent_path());
  fs::create_directories(shared);
  REQUIRE(mkfifo(gate.c_str(), 0600) == 0);
  const fs::path project = cluster.project(fmt::format(
      "project: p\ntrain:\n  framework: tensorflow\n  image: {}\n  data: {{set: {}}}\n  stop-grace: 0s\n"
      "  resources: {{cpus: 0.1, mem: 32}}\n  tensorflow: {{distributed: {{worker: 2}}}}\n  mounts: ['{}:/shared/here']\n"
      "  run: 'cat /tmp/mine 2>/dev/null; echo $DTRAIN_REPLICA > /tmp/mine; cat /tmp/mine; echo $TF_CONFIG > $OUTPUT_DIR/$DTRAIN_REPLICA; "
      "echo $DTRAIN_REPLICA >> /shared/here/who; "
      "setsid sleep 1000 & echo started $DTRAIN_REPLICA; cat /data/set/gate; sleep 1000'\n",
      scene.files.string(), gate.parent_path().string(), shared.string()));
  const auto train = cluster.start({"train"}, project);
  train->wait_for("started 1.master");
  train->wait_for("started 1.worker.1");
  const Output killed = cluster.run({"kill", "1"});
  CHECK_MESSAGE(killed.code == 0, killed.all());
  train->wait();
  CHECK(scene.cluster.log_of("1.master").starts_with("1.master\nstarted 1.master\n"));
  CHECK(scene.cluster.log_of("1.worker.1").starts_with("1.worker.1\nstarted 1.worker.1\n"));
  CHECK(fs::exists(project / "runs/1/1.worker.1"));
  CHECK(read_file(shared / "who").size() == std::string("1.master\n1.worker.1\n").size());
  CHECK(fs::is_empty(scene.files / "tmp"));
  cluster.stop();   // with what was put off
  CHECK(fs::is_empty(cluster.home() / "runner/work"));
}

TEST_CASE("what can't be had in an image is refused, and where none can be fetched it is said") {
  ImageScene scene;
  Cluster& cluster = scene.cluster;
  cluster.env["PATH"] = cluster.folder();   // no podman, and no docker
  const fs::path project = cluster.project("project: p\ntrain: {image: /none/such, run: echo}\n");
  const Output gone = cluster.run({"train"}, project);
  CHECK(gone.code == 1);
  CHECK_MESSAGE(gone.all().find("image /none/such is not there") != std::string::npos, gone.all());
  const Output lacking = cluster.run({"train", "--set", "train.image=tiny"}, project);
  CHECK(lacking.code == 1);
  CHECK_MESSAGE(lacking.all().find("image tiny: neither podman nor docker is there on ") != std::string::npos, lacking.all());
  CHECK_MESSAGE(lacking.all().find("Next: dtrain status 2, dtrain rerun 2 --no-image\n") != std::string::npos, lacking.all());
  const Output without = cluster.run({"train", "--no-image"}, project);
  CHECK_MESSAGE(without.code == 0, without.all());
  const Output again = cluster.run({"rerun", "1", "--no-image"}, project);
  CHECK_MESSAGE(again.code == 0, again.all());
  const Output roles = cluster.run({"train", "--set", "train.framework=tensorflow", "--set",
                                    "train.tensorflow.distributed={worker: 1, ps: {count: 1, image: /other}}"}, project);
  CHECK_MESSAGE(roles.all().find("image /none/such of master is not there; image /other of ps is not there") != std::string::npos,
                roles.all());
}

TEST_CASE("what is written to /output in an image, as RiseML had it, is what the experiment wrote, unless another place is seen there") {
  ImageScene scene;
  if (const std::string lacking = tiny_image_unavailable(); !lacking.empty()) return say_skipped(lacking);
  make_tiny_image(scene.files);
  fs::create_directories(scene.files / "output");
  write_file(scene.files / "output/of_the_image", "");
  Cluster& cluster = scene.cluster;
  const fs::path project =
      cluster.project("p", {{"riseml.yml", "project: p\ntrain:\n  image: " + scene.files.string() +
                                               "\n  resources: {cpus: 0.1, mem: 32}\n  run: 'ls /output; echo result > /output/model'\n"}});
  const Output train = cluster.run({"train"}, project);
  REQUIRE_MESSAGE(train.code == 0, train.all());
  const Output listed = cluster.run({"output", "ls", "1"}, project);
  CHECK_MESSAGE(listed.out.find("model\n") != std::string::npos, listed.all());
  CHECK(read_file(project / "runs/1/model") == "result\n");
  CHECK(!says(train, "of_the_image"));
  const fs::path own = cluster.folder() / "own";
  fs::create_directories(own);
  for (const std::string place : {"/output", "/output/below"}) {
    const Output mounted = cluster.run({"train", "--set", "train.mounts=['" + own.string() + ":" + place + "']", "--set",
                                        "train.run=echo mine > " + place + "/model"}, project);
    REQUIRE_MESSAGE(mounted.code == 0, mounted.all());
    CHECK(read_file(own / "model") == "mine\n");
    fs::remove(own / "model");
  }
}
