// The runner as a process of its own, with a daemon that is a script.
#include <doctest/doctest.h>
#include <fcntl.h>
#include <grpcpp/grpcpp.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <mutex>

#include "runner/process.h"
#include "schema/blob.h"
#include "schema/dtrain.grpc.pb.h"
#include "schema/snapshot.h"
#include "tests/support/skipped.h"

namespace dtrain::runner {
namespace {
namespace fs = std::filesystem;

constexpr std::chrono::seconds kPatience{20};

class RunnerFolder {
 public:
  RunnerFolder() {
    std::string name = (fs::temp_directory_path() / "dtrain-runner-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path = name;
  }
  ~RunnerFolder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  fs::path path;
};

// A daemon that says Welcome, acknowledges all output at once, and otherwise does what the case
// asks. gRPC's threads write `heard_`; the case waits on it.
class FakeDaemon : public pb::Runner::Service {
 public:
  using Stream = grpc::ServerReaderWriter<pb::ToRunner, pb::FromRunner>;

  explicit FakeDaemon(const fs::path& socket) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix:" + socket.string(), grpc::InsecureServerCredentials());
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    REQUIRE(server_ != nullptr);
  }
  ~FakeDaemon() override { server_->Shutdown(std::chrono::system_clock::now()); }

  grpc::Status Connect(grpc::ServerContext*, Stream* stream) override {
    pb::FromRunner message;
    while (stream->Read(&message)) {
      const std::lock_guard lock(mutex_);
      stream_ = stream;
      pb::ToRunner answer;
      if (message.has_hello()) *answer.mutable_welcome() = welcome;
      if (message.has_renew()) answer.mutable_renewed()->set_sent_ms(message.renew().sent_ms());
      if (message.has_log()) {
        output_ += message.log().data();
        answer.mutable_log_ack()->set_replica(message.log().replica());
        answer.mutable_log_ack()->set_attempt(message.log().attempt());
        answer.mutable_log_ack()->set_offset(message.log().offset() + message.log().data().size());
      }
      if (answer.what_case() != pb::ToRunner::WHAT_NOT_SET) stream->Write(answer);
      heard_.push_back(message);
      changed_.notify_all();
    }
    const std::lock_guard lock(mutex_);
    stream_ = nullptr;
    ++ended_;
    changed_.notify_all();
    return grpc::Status::OK;
  }

  grpc::Status Fetch(grpc::ServerContext*, const pb::FetchRequest* request,
                     grpc::ServerWriter<pb::BlobPart>* writer) override {
    for (const std::string& name : request->sha256()) {
      const auto found = blobs.find(name);
      if (found == blobs.end()) return {grpc::StatusCode::NOT_FOUND, "no such blob"};
      const auto frame = compress_blob(found->second);
      pb::BlobPart part;
      part.set_sha256(name);
      part.set_size(found->second.size());
      part.set_data(*frame);
      part.set_last(true);
      writer->Write(part);
    }
    return grpc::Status::OK;
  }

  void send(const pb::ToRunner& message) {
    const std::lock_guard lock(mutex_);
    REQUIRE(stream_ != nullptr);
    stream_->Write(message);
  }

  // The newest message of a kind, once there are `count` of it.
  pb::FromRunner wait_for(pb::FromRunner::WhatCase what, size_t count = 1) {
    std::unique_lock lock(mutex_);
    pb::FromRunner found;
    const bool came = changed_.wait_for(lock, kPatience, [&] {
      size_t n = 0;
      for (const auto& message : heard_) {
        if (message.what_case() != what) continue;
        ++n;
        found = message;
      }
      return n >= count;
    });
    REQUIRE_MESSAGE(came, "the runner did not say what was waited for");
    return found;
  }
  void wait_for_end() {
    std::unique_lock lock(mutex_);
    REQUIRE(changed_.wait_for(lock, kPatience, [&] { return ended_ > 0; }));
  }
  std::string output() {
    const std::lock_guard lock(mutex_);
    return output_;
  }

  pb::Welcome welcome;
  std::map<std::string, std::string> blobs;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<pb::FromRunner> heard_;
  std::string output_;
  Stream* stream_ = nullptr;
  int ended_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

// The program `runner_program run`; TERM at the end of the scope.
class RunnerProcess {
 public:
  // `descriptors`: it can have no more of them; 0: as many as we.
  RunnerProcess(const fs::path& folder, int descriptors = 0) {
    SpawnRequest request;
    request.argv = {BIN_DIR "/runner_program", "run", (folder / "home").string(),
                    (folder / "socket").string()};
    if (descriptors > 0) {
      const std::string limit = "ulimit -n " + std::to_string(descriptors) + "; exec \"$0\" \"$@\"";
      request.argv.insert(request.argv.begin(), {"/bin/sh", "-c", limit});
    }
    request.env = {{"PATH", "/usr/bin:/bin"}, {"HOME", folder.string()}};
    log_.reset(
        open((folder / "runner.log").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    request.output_fd = log_.get();
    auto child = spawn(request);
    REQUIRE(child.ok());
    child_ = std::move(child).value();
  }
  ~RunnerProcess() { end(SIGTERM); }
  RunnerProcess(const RunnerProcess&) = delete;
  RunnerProcess& operator=(const RunnerProcess&) = delete;

  int end(int signal) {
    if (child_.pid <= 0) return -1;
    if (signal != 0) kill(child_.pid, signal);
    pollfd wait{child_.pidfd.get(), POLLIN, 0};
    CHECK(poll(&wait, 1, 20'000) == 1);
    return try_reap(child_).value_or(-1);
  }

 private:
  Fd log_;
  Child child_;
};

pb::ToRunner launch_of(const std::string& run, const fs::path& folder) {
  pb::ToRunner message;
  pb::Launch& launch = *message.mutable_launch();
  launch.set_experiment("7");
  launch.set_attempt(1);
  launch.set_spec_yaml(
      "project: testing\ntrain:\n  resources: {cpus: 1, mem: 64, gpus: 0}\n  run: |-\n    " + run +
      "\n");
  launch.set_output_dir((folder / "out").string());
  pb::SeatInfo& seat = *launch.add_gang();
  seat.set_replica("7.train");
  seat.set_cpus(1);
  seat.set_memory_bytes(64 << 20);
  launch.add_replicas("7.train");
  return message;
}

pb::ToRunner start_message() {
  pb::ToRunner message;
  message.mutable_start()->set_experiment("7");
  message.mutable_start()->set_attempt(1);
  return message;
}

pb::ToRunner forget_message() {
  pb::ToRunner message;
  message.mutable_forget()->set_experiment("7");
  message.mutable_forget()->add_replicas()->set_replica("7.train");
  message.mutable_forget()->mutable_replicas(0)->set_attempt(1);
  return message;
}

TEST_CASE("a snapshot is fetched, run, and its output arrives; then the host is clean") {
  RunnerFolder folder;
  fs::create_directories(folder.path / "project/data");
  std::ofstream(folder.path / "project/data/words.txt") << "from the snapshot\n";
  auto snapshot = take_snapshot(folder.path / "project", {});
  REQUIRE(snapshot.ok());
  FakeDaemon daemon(folder.path / "socket");
  daemon.blobs[to_bytes(snapshot->root)] = snapshot->manifest_bytes;
  daemon.blobs[to_bytes(sha256("from the snapshot\n"))] = "from the snapshot\n";

  RunnerProcess runner(folder.path);
  const pb::Hello hello = daemon.wait_for(pb::FromRunner::kHello).hello();
  CHECK(hello.host_id().size() == 32);
  CHECK(hello.inventory().cpus() > 0);
  CHECK(hello.inventory().memory_bytes() > 0);
  CHECK(hello.held_size() == 0);

  pb::ToRunner launch =
      launch_of("cat data/words.txt; echo result > $OUTPUT_DIR/result", folder.path);
  launch.mutable_launch()->set_snapshot(to_bytes(snapshot->root));
  daemon.send(launch);
  daemon.wait_for(pb::FromRunner::kPrepared);
  daemon.send(start_message());
  CHECK(daemon.wait_for(pb::FromRunner::kExited).exited().status().code() == 0);
  CHECK(daemon.wait_for(pb::FromRunner::kReleased).released().left_behind().empty());
  CHECK(daemon.output() == "from the snapshot\n");
  CHECK(fs::exists(folder.path / "out/result"));
  daemon.send(forget_message());
  // File work is done in order: when the next launch has failed, this one is gone.
  launch.mutable_launch()->set_attempt(2);
  launch.mutable_launch()->set_output_dir("/proc/nowhere");
  daemon.send(launch);
  daemon.wait_for(pb::FromRunner::kPrepareFailed);
  CHECK(runner.end(SIGTERM) == 0);
  CHECK(fs::is_empty(folder.path / "home/launches"));
  CHECK(fs::is_empty(folder.path / "home/work"));
}

TEST_CASE("a snapshot that the daemon lacks is not this host's fault") {
  RunnerFolder folder;
  FakeDaemon daemon(folder.path / "socket");
  RunnerProcess runner(folder.path);
  daemon.wait_for(pb::FromRunner::kHello);
  pb::ToRunner launch = launch_of("true", folder.path);
  launch.mutable_launch()->set_snapshot(to_bytes(sha256("nobody has it")));
  daemon.send(launch);
  const auto failed = daemon.wait_for(pb::FromRunner::kPrepareFailed).prepare_failed();
  CHECK(failed.reason() == "fetching the snapshot: no such blob; submit it again");
  CHECK(!failed.ours());
}

TEST_CASE("replicas outlive a killed runner and a lost daemon; both are found again") {
  RunnerFolder folder;
  const fs::path gate = folder.path / "gate";
  REQUIRE(mkfifo(gate.c_str(), 0600) == 0);
  auto daemon = std::make_unique<FakeDaemon>(folder.path / "socket");
  auto runner = std::make_unique<RunnerProcess>(folder.path);
  const std::string host = daemon->wait_for(pb::FromRunner::kHello).hello().host_id();
  daemon->send(
      launch_of("echo one; read x < " + gate.string() + "; echo two; exit 5", folder.path));
  daemon->wait_for(pb::FromRunner::kPrepared);
  daemon->send(start_message());
  const uint64_t pid = daemon->wait_for(pb::FromRunner::kStarted).started().pid();
  daemon->wait_for(pb::FromRunner::kLog);
  runner->end(SIGKILL);
  daemon->wait_for_end();
  daemon.reset();

  runner = std::make_unique<RunnerProcess>(folder.path);  // before there is a daemon
  daemon = std::make_unique<FakeDaemon>(folder.path / "socket");
  pb::LogAck& log = *daemon->welcome.add_logs();
  log.set_replica("7.train");
  log.set_attempt(1);
  log.set_offset(4);
  const pb::Hello hello = daemon->wait_for(pb::FromRunner::kHello).hello();
  CHECK(hello.host_id() == host);
  REQUIRE(hello.held_size() == 1);
  CHECK(hello.held(0).replica() == "7.train");
  CHECK(daemon->wait_for(pb::FromRunner::kStarted).started().pid() == pid);
  std::ofstream(gate) << "go\n";
  CHECK(daemon->wait_for(pb::FromRunner::kExited).exited().status().code() == 5);
  daemon->wait_for(pb::FromRunner::kReleased);
  CHECK(daemon->output() == "two\n");
  daemon->send(forget_message());
}

TEST_CASE("usage is reported while somebody watches") {
  RunnerFolder folder;
  const fs::path gate = folder.path / "gate";
  REQUIRE(mkfifo(gate.c_str(), 0600) == 0);
  FakeDaemon daemon(folder.path / "socket");
  RunnerProcess runner(folder.path);
  daemon.wait_for(pb::FromRunner::kHello);
  // Busy, and then not.
  daemon.send(launch_of("i=0; while [ $i -lt 200000 ]; do i=$((i + 1)); done; echo up; read x < " + gate.string(), folder.path));
  daemon.wait_for(pb::FromRunner::kPrepared);
  daemon.send(start_message());
  daemon.wait_for(pb::FromRunner::kStarted);
  daemon.wait_for(pb::FromRunner::kLog);  // right after its exec a program owns next to no memory
  pb::ToRunner watch;
  watch.mutable_monitor()->add_experiments("7");
  daemon.send(watch);
  const pb::UsageReport usage = daemon.wait_for(pb::FromRunner::kUsage).usage();
  REQUIRE(usage.replicas_size() == 1);
  CHECK(usage.replicas(0).replica() == "7.train");
  CHECK(usage.replicas(0).live());
  CHECK(usage.replicas(0).memory_bytes() > 0);
  CHECK(usage.replicas(0).cpu_percent() < 30);
  CHECK(usage.replicas(0).host_memory_bytes() > usage.replicas(0).memory_bytes());
  std::ofstream(gate) << "go\n";
  daemon.wait_for(pb::FromRunner::kReleased);
  daemon.send(forget_message());
}

TEST_CASE("a runner that can't have the descriptors to begin with says so, and does not break") {
#ifdef __SANITIZE_ADDRESS__
  return tests::say_skipped("the sanitizer looks at memory through a pipe, and there is none");
#endif
  RunnerFolder folder;
  FakeDaemon daemon(folder.path / "socket");
  for (const int descriptors : {6, 8, 9, 10, 11, 13, 14}) {
    CAPTURE(descriptors);
    fs::remove(folder.path / "runner.log");
    RunnerProcess runner(folder.path, descriptors);
    const int status = runner.end(0);
    CHECK(WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 1);
    std::ifstream log(folder.path / "runner.log");
    const std::string said(std::istreambuf_iterator<char>(log), {});
    CHECK(said == "dtrain runner: open 32 descriptors, to begin with: Too many open files\n"
                  "  hint: raise the limit of open files (ulimit -n)\n");
  }
}

TEST_CASE("a runner that can't read which host it is on does not become another") {
  RunnerFolder folder;
  FakeDaemon daemon(folder.path / "socket");
  const fs::path id = folder.path / "home/host-id";
  fs::create_directory(folder.path / "home");
  fs::create_symlink(id, id);
  RunnerProcess runner(folder.path);
  const int status = runner.end(0);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 1);
  CHECK(fs::is_symlink(id));
}

TEST_CASE("a second runner of the same home is refused") {
  RunnerFolder folder;
  FakeDaemon daemon(folder.path / "socket");
  RunnerProcess first(folder.path);
  daemon.wait_for(pb::FromRunner::kHello);
  RunnerProcess second(folder.path);
  const int status = second.end(0);
  CHECK(WIFEXITED(status));
  CHECK(WEXITSTATUS(status) == 1);
}

}  // namespace
}  // namespace dtrain::runner
