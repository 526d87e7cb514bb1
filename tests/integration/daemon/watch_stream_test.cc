#include "daemon/watch_stream.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>

#include "tests/integration/daemon/served_daemon.h"
#include "tests/support/skipped.h"

namespace dtrain::daemon {
namespace {

// Somebody who follows experiment 1.
class Watcher : public grpc::ClientReadReactor<pb::WatchBatch> {
 public:
  explicit Watcher(ServedDaemon& daemon, pb::WatchRequest request = {})
      : daemon_(daemon), stub_(pb::Client::NewStub(daemon.channel)), request_(std::move(request)) {
    request_.set_id("1");
    request_.set_follow(true);
    stub_->async()->Watch(&context_, &request_, this);
    AddHold();  // the loop starts the next read: the call must be there still
    StartRead(&in_);
    StartCall();
  }
  ~Watcher() override {
    context_.TryCancel();
    daemon_.until([this] { return over_; });
  }
  bool over() const { return over_; }
  const grpc::Status& status() const { return status_; }
  const std::vector<pb::WatchBatch>& batches() const { return batches_; }
  std::string trouble() const {
    std::string trouble;
    for (const auto& batch : batches_) {
      if (batch.has_trouble()) trouble = batch.trouble();
    }
    return trouble;
  }
  std::string last_state() const {
    std::string state;
    for (const auto& batch : batches_) {
      for (const auto& item : batch.items()) state = item.state().state();
    }
    return state;
  }

 private:
  void OnReadDone(bool good) override {
    boost::asio::post(daemon_.loop, [this, good] {
      if (!good) return RemoveHold();
      batches_.push_back(in_);
      StartRead(&in_);
    });
  }
  void OnDone(const grpc::Status& status) override {
    boost::asio::post(daemon_.loop, [this, status] {
      status_ = status;
      over_ = true;
    });
  }

  ServedDaemon& daemon_;
  std::unique_ptr<pb::Client::Stub> stub_;
  grpc::ClientContext context_;
  pb::WatchRequest request_;
  pb::WatchBatch in_;
  std::vector<pb::WatchBatch> batches_;
  grpc::Status status_;
  bool over_ = false;
};

// Experiment 1, which waits for its host.
void submit_one(ServedDaemon& daemon) {
  daemon.scheduler.handle(HostConnected{a_host(), {}});
  REQUIRE(daemon.scheduler.submit(a_submission("a"), {}).ok());
  daemon.scheduler.handle(HostDisconnected{a_host().id});
  daemon.loop.poll();
}

TEST_CASE("a watch ends once the end is on disk, and has shown it") {
  test::TemporaryFolder folder;
  ServedDaemon daemon(home_below(folder.path()));
  submit_one(daemon);
  Watcher watcher(daemon);
  daemon.until([&] { return watcher.last_state() == "PENDING"; });
  {
    FullDisk full;
    daemon.scheduler.handle(KillWanted{{1, 0}, false});
    daemon.loop.poll();
    daemon.logs.wake(1);
    Watcher late(daemon);
    daemon.until([&] { return late.last_state() == "PENDING" && !late.trouble().empty(); });
    daemon.until([&] { return !watcher.trouble().empty(); });
    CHECK(!late.batches().back().end());
    CHECK(!watcher.batches().back().end());
  }
  daemon.scheduler.at_end_of_turn([](const Status&) {});   // rather than wait for it to try again by itself
  daemon.until([&] { return watcher.over(); });
  CHECK(watcher.last_state() == "KILLED");
  CHECK(watcher.trouble().empty());
  CHECK(watcher.batches().back().end());
  CHECK(watcher.batches().back().outcome().state() == "KILLED");
}

TEST_CASE("what a failed sync has lost is waited for, not called damaged") {
  test::TemporaryFolder folder;
  LogsDisk disk;
  // What Linux does to pages that it could not write: they count as clean, and may be dropped.
  disk.sync = [failed = std::make_shared<std::atomic_bool>(false)](int fd) {
    if (failed->exchange(true)) return ::fdatasync(fd);
    struct stat file = {};
    ::fstat(fd, &file);
    const std::string zeros(static_cast<size_t>(file.st_size), '\0');
    (void)!::pwrite(fd, zeros.data(), zeros.size(), 0);
    return -1;
  };
  disk.retry_after = std::chrono::milliseconds(300);
  ServedDaemon daemon(home_below(folder.path()), std::chrono::minutes(1), disk);
  submit_one(daemon);
  FakeRunner runner(daemon);
  pb::FromRunner output;
  output.mutable_log()->set_replica("1.train");
  output.mutable_log()->set_attempt(1);
  output.mutable_log()->set_data("hello\n");
  runner.say(std::move(output));
  daemon.until([&] { return !daemon.logs.trouble().empty(); });
  Watcher watcher(daemon);
  const auto heard = [&] {
    for (const auto& batch : watcher.batches()) {
      for (const auto& item : batch.items()) {
        if (item.log().data() == "hello\n") return true;
      }
    }
    return false;
  };
  daemon.until([&] { return watcher.over() || heard(); });
  CHECK(!watcher.over());
}

TEST_CASE("whoever watches from the end on is told where that is, before anything follows") {
  test::TemporaryFolder folder;
  ServedDaemon daemon(home_below(folder.path()));
  submit_one(daemon);
  Watcher all(daemon);
  daemon.until([&] { return all.last_state() == "PENDING"; });
  const uint64_t end = all.batches().back().items().rbegin()->cursor();
  CHECK(all.batches().front().cursor() == 0);
  pb::WatchRequest request;
  SUBCASE("what is new") {
    request.set_cursor(UINT64_MAX);
  }
  SUBCASE("the last lines, of which there are none") {
    request.set_tail_lines(5);
  }
  Watcher watcher(daemon, request);
  daemon.until([&] { return !watcher.batches().empty() && watcher.batches().back().has_cursor(); });
  CHECK(watcher.batches().back().cursor() == end);
  CHECK(watcher.last_state().empty());
}

TEST_CASE("a large set of large gangs can be watched") {
  test::TemporaryFolder folder;
  ServedDaemon daemon(home_below(folder.path()));
  Host host = a_host(1'000);
  host.memory_bytes = uint64_t{1} << 40;
  daemon.scheduler.handle(HostConnected{std::move(host), {}});
  Submission submission = a_submission("set");
  submission.spec_yaml =
      "project: testing\ntrain:\n  framework: tensorflow\n  resources: {cpus: 0.1, mem: 16}\n"
      "  tensorflow: {distributed: {worker: 200}}\n  concurrency: 1\n"
      "  parameters: {n: {range: {min: 1, max: 1000, step: 1}}}\n  run: 'true'\n";
  submission.spec = parse_spec(submission.spec_yaml, {}).value();
  REQUIRE(daemon.scheduler.submit(std::move(submission), {}).ok());
  daemon.loop.poll();
  Watcher watcher(daemon);
  daemon.until([&] { return watcher.over() || !watcher.batches().empty(); });
  REQUIRE(!watcher.over());
  CHECK(watcher.batches().front().ByteSizeLong() < kMessageBytesMax);
  const auto& ids = watcher.batches().front().ids();
  CHECK(std::find(ids.begin(), ids.end(), "1.1000.worker.199") != ids.end());
}

TEST_CASE("a watch of what is over ends at the torn end of its journal") {
  test::TemporaryFolder folder;
  ServedDaemon daemon(home_below(folder.path()));
  submit_one(daemon);
  daemon.scheduler.handle(KillWanted{{1, 0}, false});
  daemon.until([&] { return !daemon.scheduler.model().experiments.contains({1, 0}); });
  const auto journal = daemon.logs.path(1);
  std::filesystem::resize_file(journal, std::filesystem::file_size(journal) - 3);
  Watcher watcher(daemon);
  daemon.until([&] { return watcher.over(); });
  CHECK(watcher.batches().back().end());
  CHECK(watcher.batches().back().outcome().state() == "KILLED");
}

TEST_CASE("a journal that can't be opened is not shown as an empty one") {
#ifdef __SANITIZE_ADDRESS__
  return tests::say_skipped("the sanitizer looks at memory through a pipe, and there is none");
#endif
  test::TemporaryFolder folder;
  ServedDaemon daemon(home_below(folder.path()));
  submit_one(daemon);
  daemon.scheduler.handle(KillWanted{{1, 0}, false});
  daemon.until([&] { return !daemon.scheduler.model().experiments.contains({1, 0}); });
  const auto watched = [&daemon] {
    auto watcher = std::make_unique<Watcher>(daemon);
    daemon.until([&] { return watcher->over(); });
    return watcher;
  };
  REQUIRE(watched()->last_state() == "KILLED");   // from here on there is a connection
  daemon.until([&] { return !daemon.logs.durable_end(1); });   // no descriptor is closed once there are none
  {
    const FewDescriptors none;
    const auto starved = watched();
    CHECK(starved->status().error_code() == grpc::StatusCode::RESOURCE_EXHAUSTED);
    CHECK(starved->batches().empty());
  }
  CHECK(watched()->last_state() == "KILLED");
}

}  // namespace
}  // namespace dtrain::daemon
