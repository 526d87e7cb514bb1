#include "cli/submit.h"

#include <doctest/doctest.h>
#include <sys/wait.h>

#include <csignal>
#include <fstream>
#include <future>
#include <utility>
#include <vector>

#include "runner/environment.h"
#include "runner/process.h"
#include "tests/integration/cli/fake_daemon.h"
#include "tests/support/project.h"

namespace dtrain::cli {
namespace {

// Asks for the list of files, then for the files, as the daemon does of a project that it never saw.
class EmptyDaemon : public FakeDaemon {
 public:
  using FakeDaemon::FakeDaemon;
  using Stream = grpc::ServerReaderWriter<pb::SubmitReply, pb::SubmitRequest>;

  grpc::Status Submit(grpc::ServerContext*, Stream* stream) override {
    pb::SubmitRequest request;
    stream->Read(&request);
    ask(stream, {request.header().snapshot()});
    ask(stream, files);
    pb::SubmitReply reply;
    reply.mutable_accepted()->set_number(1);
    stream->Write(reply);
    return grpc::Status::OK;
  }

  std::vector<std::string> files;

 private:
  static void ask(Stream* stream, const std::vector<std::string>& names) {
    pb::SubmitReply reply;
    for (const std::string& name : names) reply.mutable_missing()->add_sha256(name);
    stream->Write(reply);
    pb::SubmitRequest request;
    while (stream->Read(&request) && !request.has_blobs_done()) {
    }
  }
};

TEST_CASE("what was sent grows towards one total, from the first file to the last") {
  const test::TemporaryFolder project;
  std::ofstream(project / "a.py") << "print('a')\n";
  std::ofstream(project / "b.py") << std::string(5'000, 'b');
  const auto snapshot = take_snapshot(project.path(), {});
  REQUIRE(snapshot.ok());

  const ScratchHome scratch;
  EmptyDaemon daemon(scratch.home());
  const pb::Manifest manifest = parse_manifest(snapshot->manifest_bytes).value();
  for (const auto& entry : manifest.entry()) daemon.files.push_back(entry.sha256());
  const CommandContext context;
  auto connection = connect(scratch.home(), Autostart::No, context);
  REQUIRE(connection.ok());

  pb::SubmitHeader header;
  header.set_snapshot(to_bytes(snapshot->root));
  SnapshotBlobs blobs(project.path(), *snapshot);
  std::vector<std::pair<uint64_t, uint64_t>> told;
  const auto accepted = submit(*connection, context, header, &blobs,
                               [&](uint64_t sent, uint64_t total) { told.emplace_back(sent, total); });
  REQUIRE(accepted.ok());
  REQUIRE(!told.empty());
  CHECK(told.back() == std::pair(snapshot->total_bytes, snapshot->total_bytes));
  uint64_t before = 0;
  for (const auto& [sent, total] : told) {
    CHECK(total == snapshot->total_bytes);
    CHECK(sent >= before);
    before = sent;
  }
}

// Accepts what comes, and ends the command by TERM before that can know.
class SignallingDaemon : public FakeDaemon {
 public:
  using FakeDaemon::FakeDaemon;

  grpc::Status Submit(grpc::ServerContext*, EmptyDaemon::Stream* stream) override {
    pb::SubmitRequest request;
    stream->Read(&request);
    ::kill(command.get_future().get(), SIGTERM);
    pb::SubmitReply reply;
    reply.mutable_accepted()->set_number(7);
    stream->Write(reply);
    return grpc::Status::OK;
  }
  grpc::Status Kill(grpc::ServerContext* context, const pb::KillRequest* request,
                    pb::KillReply* reply) override {
    const grpc::Status status = FakeDaemon::Kill(context, request, reply);
    killed.set_value();
    return status;
  }
  grpc::Status Watch(grpc::ServerContext*, const pb::WatchRequest*,
                     grpc::ServerWriter<pb::WatchBatch>* stream) override {
    killed.get_future().wait();
    pb::WatchBatch batch;
    batch.set_end(true);
    batch.mutable_outcome()->set_id("7");
    batch.mutable_outcome()->set_state("KILLED");
    stream->Write(batch);
    return grpc::Status::OK;
  }

  std::promise<pid_t> command;
  std::promise<void> killed;
};

TEST_CASE("what a tied command has submitted is killed though the signal came before the answer") {
  const test::TemporaryFolder project;
  std::ofstream(project / "dtrain.yml") << "project: p\ntrain: {run: sleep 1000}\n";
  const ScratchHome scratch;
  SignallingDaemon daemon(scratch.home());
  daemon.show.set_snapshot(std::string(32, 's'));
  daemon.show.set_spec_yaml("project: p\ntrain: {run: sleep 1000}\n");
  daemon.show.mutable_experiment()->set_id("6");
  daemon.show.mutable_experiment()->set_project_dir(project.path().string());
  std::string name;
  SUBCASE("train") {
    name = "train";
  }
  SUBCASE("rerun") {
    name = "rerun";
  }
  runner::SpawnRequest request;
  request.argv = {std::string(BIN_DIR) + "/dtrain", name, "--tied"};
  request.cwd = project.path().string();
  request.env = runner::own_process_environment();
  const auto command = runner::spawn(request);
  REQUIRE(command.ok());
  daemon.command.set_value(command->pid);
  int status = 0;
  REQUIRE(::waitpid(command->pid, &status, 0) == command->pid);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 130);
  CHECK(std::vector<std::string>(daemon.asked_kill.ids().begin(), daemon.asked_kill.ids().end()) ==
        std::vector<std::string>{"7"});
}

}  // namespace
}  // namespace dtrain::cli
