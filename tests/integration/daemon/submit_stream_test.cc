#include "daemon/submit_stream.h"

#include <fstream>
#include <map>

#include "daemon/blob_sweep.h"
#include "schema/manifest.h"
#include "tests/integration/daemon/served_daemon.h"

namespace dtrain::daemon {
namespace {

using Files = std::map<std::string, std::string>;   // name -> bytes

std::string manifest_of(const Files& files) {
  std::string manifest;
  for (const auto& [name, bytes] : files) {
    const std::string hash = to_bytes(sha256(bytes));
    ManifestEntry entry;
    entry.path = name;
    entry.mode = 0644;
    entry.size = bytes.size();
    entry.sha256 = hash;
    append_entry(manifest, entry);
  }
  return manifest;
}

// Submits a project as the CLI does.
class Submitter : public grpc::ClientBidiReactor<pb::SubmitRequest, pb::SubmitReply> {
 public:
  // Of one empty file.
  Submitter(ServedDaemon& daemon, const std::string& file_name) : Submitter(daemon, Files{{file_name, ""}}) {}
  Submitter(ServedDaemon& daemon, const Files& files)
      : daemon_(daemon), stub_(pb::Client::NewStub(daemon.channel)), manifest_(manifest_of(files)) {
    blobs_[to_bytes(root())] = manifest_;
    for (const auto& [name, bytes] : files) blobs_[to_bytes(sha256(bytes))] = bytes;
    pb::SubmitRequest request;
    header_ = request.mutable_header();
    header_->set_submission_id(std::string(32, 'a'));
    header_->set_spec_yaml(a_submission("").spec_yaml);
    header_->set_snapshot(to_bytes(sha256(manifest_)));
    waiting_.push_back(std::move(request));
  }
  ~Submitter() override {
    if (!started_) return;
    context_.TryCancel();
    daemon_.until([this] { return ended_; });
  }

  pb::SubmitHeader& header() { return *header_; }
  // Returns once the call has ended.
  const grpc::Status& run() {
    started_ = true;
    stub_->async()->Submit(&context_, this);
    AddHold();  // the loop starts the next read: the call must be there still
    StartRead(&in_);
    StartWrite(&waiting_.front());
    StartCall();
    daemon_.until([this] { return ended_; });
    return status_;
  }
  Sha256 root() const { return sha256(manifest_); }
  size_t blobs_asked_for() const { return asked_; }
  const pb::Accepted& accepted() const { return accepted_; }
  std::function<void(const std::string& name)> on_asked = [](const std::string&) {};
  std::string besides;      // what it sends without being asked
  uint64_t larger_by = 0;   // than a blob is, it says

 private:
  void OnReadDone(bool good) override {
    boost::asio::post(daemon_.loop, [this, good] {
      if (!good) {
        over_ = true;
        return RemoveHold();
      }
      if (in_.has_accepted()) accepted_ = in_.accepted();
      if (in_.has_missing()) answer(in_.missing());
      StartRead(&in_);
    });
  }
  void OnWriteDone(bool good) override {
    boost::asio::post(daemon_.loop, [this, good] {
      waiting_.pop_front();
      if (good && !over_ && !waiting_.empty()) StartWrite(&waiting_.front());
    });
  }
  void OnDone(const grpc::Status& status) override {
    boost::asio::post(daemon_.loop, [this, status] {
      status_ = status;
      ended_ = true;
    });
  }

  void answer(const pb::MissingBlobs& missing) {
    for (const std::string& name : missing.sha256()) {
      ++asked_;
      on_asked(name);
      send_blob(name, blobs_.at(name));
    }
    if (!besides.empty()) send_blob(to_bytes(sha256(besides)), besides);
    pb::SubmitRequest request;
    request.mutable_blobs_done();
    say(std::move(request));
  }
  void send_blob(const std::string& name, const std::string& bytes) {
    BlobEncoder encoder;
    const Status encoded = encoder.encode(bytes, [&](std::string_view part, bool last) -> Status {
      pb::SubmitRequest request;
      pb::BlobPart& blob = *request.mutable_blob();
      blob.set_sha256(name);
      blob.set_size(bytes.size() + larger_by);
      blob.set_data(std::string(part));
      blob.set_last(last);
      say(std::move(request));
      return ok();
    });
    REQUIRE(encoded.ok());
  }
  void say(pb::SubmitRequest request) {
    waiting_.push_back(std::move(request));
    if (waiting_.size() == 1) StartWrite(&waiting_.front());
  }

  ServedDaemon& daemon_;
  std::unique_ptr<pb::Client::Stub> stub_;
  grpc::ClientContext context_;
  const std::string manifest_;
  std::map<std::string, std::string> blobs_;   // by SHA-256
  pb::SubmitHeader* header_;
  std::deque<pb::SubmitRequest> waiting_;   // the first is being written
  pb::SubmitReply in_;
  pb::Accepted accepted_;
  grpc::Status status_;
  size_t asked_ = 0;
  bool started_ = false;
  bool over_ = false;    // there is nothing more to read
  bool ended_ = false;
};

size_t packs_in(const ServedDaemon& daemon) {
  const std::filesystem::directory_iterator files(daemon.home.blobs());
  return static_cast<size_t>(std::distance(begin(files), end(files)));
}

TEST_CASE("what is submitted while a sweep marks what is needed stays") {
  test::TemporaryFolder folder;
  ServedDaemon daemon(home_below(folder.path()));
  daemon.scheduler.handle(HostConnected{a_host(), {}});
  Submitter first(daemon, "before");
  REQUIRE(first.run().ok());
  BlobSweep sweep(*daemon.blobs, {first.root()}, false);
  // All is known of it but its manifest.
  Submitter second(daemon, "meanwhile");
  second.header().set_submission_id(std::string(32, 'b'));
  REQUIRE(second.run().ok());
  CHECK(second.blobs_asked_for() == 1);
  CHECK(second.accepted().number() == 2);
  while (*sweep.step(std::chrono::seconds(10))) {
  }
  CHECK(daemon.blobs->has(second.root()));
  CHECK(daemon.blobs->has(sha256("")));
}

TEST_CASE("a manifest that was damaged since is asked for again") {
  test::TemporaryFolder folder;
  const Home home = home_below(folder.path());
  Sha256 root{};
  {
    ServedDaemon daemon(home);
    daemon.scheduler.handle(HostConnected{a_host(), {}});
    Submitter first(daemon, "file");
    REQUIRE(first.run().ok());
    root = first.root();
    const auto stored = daemon.blobs->find(root);
    REQUIRE(stored.ok());
    std::fstream pack(home.blobs() / "1.pack", std::ios::in | std::ios::out | std::ios::binary);
    pack.seekp(static_cast<std::streamoff>(stored->offset + stored->stored_bytes / 2));
    pack.write("DAMAGED", 7);
    REQUIRE(pack.flush().good());
  }
  ServedDaemon daemon(home);
  daemon.scheduler.handle(HostConnected{a_host(), {}});
  REQUIRE(daemon.blobs->read(root, 1 << 20).error().code == Code::DataLoss);
  Submitter again(daemon, "file");
  again.header().set_submission_id(std::string(32, 'b'));
  CHECK(again.run().ok());
  CHECK(again.blobs_asked_for() == 1);
  CHECK(daemon.blobs->read(root, 1 << 20).ok());
}

TEST_CASE("a file that is found damaged while the others come is asked for, too") {
  test::TemporaryFolder folder;
  ServedDaemon daemon(home_below(folder.path()));
  daemon.scheduler.handle(HostConnected{a_host(), {}});
  REQUIRE(Submitter(daemon, Files{{"old", "old"}}).run().ok());
  Submitter both(daemon, Files{{"new", "new"}, {"old", "old"}});
  both.header().set_submission_id(std::string(32, 'b'));
  both.on_asked = [&](const std::string& name) {
    if (name == to_bytes(sha256("new"))) (void)daemon.blobs->forget(sha256("old"));
  };
  CHECK(both.run().ok());
  CHECK(both.accepted().number() == 2);
  CHECK(both.blobs_asked_for() == 3);
  CHECK(daemon.blobs->has(sha256("old")));
}

TEST_CASE("blobs that nobody asked for, or of another size than the manifest says, are refused") {
  test::TemporaryFolder folder;
  ServedDaemon daemon(home_below(folder.path()));
  daemon.scheduler.handle(HostConnected{a_host(), {}});
  Submitter generous(daemon, "file");
  generous.besides = std::string(1 << 20, '0');
  CHECK(generous.run().error_code() == grpc::StatusCode::INVALID_ARGUMENT);
  Submitter boastful(daemon, "file");
  boastful.on_asked = [&](const std::string& name) { boastful.larger_by = name == to_bytes(sha256("")) ? 1 : 0; };
  CHECK(boastful.run().error_message().find("of 1 bytes was not asked for") != std::string::npos);
  CHECK(packs_in(daemon) == 0);
}

TEST_CASE("what no host could take is refused before anything is sent") {
  test::TemporaryFolder folder;
  ServedDaemon daemon(home_below(folder.path()));
  daemon.scheduler.handle(HostConnected{a_host(), {}});
  Submitter submitter(daemon, "file");
  submitter.header().set_spec_yaml("project: testing\ntrain:\n  resources: {gpus: 4}\n  run: 'true'\n");
  CHECK(submitter.run().error_code() == grpc::StatusCode::INVALID_ARGUMENT);
  CHECK(submitter.blobs_asked_for() == 0);
  CHECK(packs_in(daemon) == 0);
}

TEST_CASE("what is too large to be told to a host is refused, and says what makes it so") {
  test::TemporaryFolder folder;
  ServedDaemon daemon(home_below(folder.path()));
  daemon.scheduler.handle(HostConnected{a_host(), {}});
  Submitter small(daemon, "file");
  (*small.header().mutable_secrets())["BIG"] = std::string(1'900'000, 'x');
  CHECK(small.run().ok());
  Submitter large(daemon, "file");
  large.header().set_submission_id(std::string(32, 'b'));
  (*large.header().mutable_secrets())["BIG"] = std::string(2'085'000, 'x');
  const grpc::Status& refused = large.run();
  CHECK(refused.error_code() == grpc::StatusCode::INVALID_ARGUMENT);
  CHECK(refused.error_message().find("2.0 MB of variables from your shell") != std::string::npos);
  CHECK(large.blobs_asked_for() == 0);
}

TEST_CASE("nothing stays of a submission that the database has no room for") {
  test::TemporaryFolder folder;
  ServedDaemon daemon(home_below(folder.path()));
  daemon.scheduler.handle(HostConnected{a_host(), {}});
  for (int i = 0; i < 10; ++i) REQUIRE(daemon.scheduler.submit(a_submission(fmt::format("{}", i)), {}).ok());
  Submitter submitter(daemon, "file");
  {
    const FullDisk full(8'000);   // room for a pack, and less than the database has already
    CHECK(!submitter.run().ok());
  }
  CHECK(submitter.blobs_asked_for() == 2);
  CHECK(packs_in(daemon) == 0);
  CHECK(!daemon.blobs->has(submitter.root()));
  CHECK(!daemon.blobs->has(sha256("")));
  Submitter again(daemon, "file");
  CHECK(again.run().ok());
  CHECK(again.accepted().number() == 11);
  CHECK(packs_in(daemon) == 1);
}

TEST_CASE("a submission that goes silent ends, and holds up nobody who removes what is not needed") {
  test::TemporaryFolder folder;
  ServedDaemon daemon(home_below(folder.path()), std::chrono::minutes(1), {}, std::chrono::milliseconds(500));
  grpc::Status status;
  bool done = false;
  size_t replies = 0;
  std::thread caller([&] {
    const auto stub = pb::Client::NewStub(daemon.channel);
    grpc::ClientContext context;
    const auto stream = stub->Submit(&context);
    pb::SubmitRequest request;
    request.mutable_header()->set_submission_id(std::string(32, 'a'));
    request.mutable_header()->set_spec_yaml(a_submission("").spec_yaml);
    request.mutable_header()->set_snapshot(to_bytes(sha256(manifest_of({{"file", ""}}))));
    stream->Write(request);
    for (pb::SubmitReply reply; stream->Read(&reply);) ++replies;   // what is missing, and not another word
    status = stream->Finish();
    boost::asio::post(daemon.loop, [&] { done = true; });
  });
  daemon.until([&] { return done; });
  caller.join();
  CHECK(replies == 1);
  CHECK(status.error_code() == grpc::StatusCode::CANCELLED);
  CHECK(status.error_message() == "the submission went silent");
}

}  // namespace
}  // namespace dtrain::daemon
