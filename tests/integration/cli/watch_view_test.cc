// Submit and Watch against a daemon that breaks off: a small gRPC server on a Unix socket.
#include "cli/watch_view.h"

#include <doctest/doctest.h>
#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "cli/submit.h"
#include "schema/dtrain.grpc.pb.h"
#include "schema/random_id.h"
#include "schema/version.h"

using namespace dtrain;
using namespace dtrain::cli;

namespace {

class FalteringDaemon final : public pb::Client::Service {
 public:
  FalteringDaemon() {
    std::string folder = std::filesystem::temp_directory_path() / "dtrain-watch-XXXXXX";
    REQUIRE(mkdtemp(folder.data()) != nullptr);
    auto opened = open_home(folder);
    REQUIRE(opened.ok());
    home = opened.value();
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix:" + home.socket().string(), grpc::InsecureServerCredentials());
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
    REQUIRE(server_ != nullptr);
  }
  ~FalteringDaemon() override {
    server_->Shutdown();
    std::filesystem::remove_all(home.root);
  }

  grpc::Status Info(grpc::ServerContext*, const pb::InfoRequest*, pb::InfoReply* reply) override {
    reply->set_protocol(kProtocol);
    return grpc::Status::OK;
  }

  // Breaks off the first time; the second time asks for nothing and accepts.
  grpc::Status Submit(
      grpc::ServerContext*,
      grpc::ServerReaderWriter<pb::SubmitReply, pb::SubmitRequest>* stream) override {
    pb::SubmitRequest request;
    stream->Read(&request);
    submission_ids.push_back(request.header().submission_id());
    if (submission_ids.size() == 1) return {grpc::StatusCode::UNAVAILABLE, "going down"};
    pb::SubmitReply reply;
    reply.mutable_accepted()->set_number(7);
    stream->Write(reply);
    return grpc::Status::OK;
  }

  // One item a stream, then a break; the end once the reader asks past the last.
  grpc::Status Watch(grpc::ServerContext*, const pb::WatchRequest* request,
                     grpc::ServerWriter<pb::WatchBatch>* stream) override {
    cursors.push_back(request->cursor());
    pb::WatchBatch batch;
    batch.add_ids("7");
    if (request->cursor() == UINT64_MAX) {  // only what is new
      batch.set_cursor(2);
      stream->Write(batch);
      return {grpc::StatusCode::UNAVAILABLE, "going down"};
    }
    if (request->cursor() >= 3) {
      batch.set_end(true);
      batch.mutable_outcome()->set_id("7");
      batch.mutable_outcome()->set_state("FAILED");
      batch.mutable_outcome()->set_exit_code(3);
      stream->Write(batch);
      return grpc::Status::OK;
    }
    pb::WatchItem& item = *batch.add_items();
    item.set_cursor(request->cursor() + 1);
    item.mutable_state()->set_id("7");
    item.mutable_state()->set_state("RUNNING");
    stream->Write(batch);
    return {grpc::StatusCode::UNAVAILABLE, "going down"};
  }

  Home home;
  std::vector<std::string> submission_ids;
  std::vector<uint64_t> cursors;

 private:
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace

TEST_CASE("a submission that broke off is sent again under its id") {
  FalteringDaemon daemon;
  CommandContext context;
  auto connection = connect(daemon.home, Autostart::No, context);
  REQUIRE(connection.ok());
  pb::SubmitHeader header;
  auto id = random_id();
  REQUIRE(id.ok());
  header.set_submission_id(*id);
  auto accepted = submit(connection.value(), context, header, nullptr, {});
  REQUIRE(accepted.ok());
  CHECK(accepted->number() == 7);
  CHECK(daemon.submission_ids == std::vector<std::string>{*id, *id});
}

TEST_CASE("a watch that broke off goes on at its cursor, to the end") {
  FalteringDaemon daemon;
  CommandContext context;
  auto connection = connect(daemon.home, Autostart::No, context);
  REQUIRE(connection.ok());
  WatchOptions options;
  options.request.set_id("7");
  options.request.set_follow(true);
  auto end = watch(connection.value(), context, std::move(options));
  REQUIRE(end.ok());
  CHECK(end->how == WatchHow::Over);
  CHECK(daemon.cursors == std::vector<uint64_t>{0, 1, 2, 3});
  CHECK(exit_code_of(end->outcome) == 3);
}

TEST_CASE("a watch of what is new that broke off before there was any misses nothing") {
  FalteringDaemon daemon;
  CommandContext context;
  auto connection = connect(daemon.home, Autostart::No, context);
  REQUIRE(connection.ok());
  WatchOptions options;
  options.request.set_id("7");
  options.request.set_follow(true);
  options.request.set_cursor(UINT64_MAX);
  const auto end = watch(connection.value(), context, std::move(options));
  REQUIRE(end.ok());
  CHECK(daemon.cursors == std::vector<uint64_t>{UINT64_MAX, 2, 3});
}

TEST_CASE("the exit code is the outcome's") {
  pb::ExperimentInfo info;
  info.set_state("KILLED");
  CHECK(exit_code_of(info) == 130);
  info.set_state("FAILED");
  CHECK(exit_code_of(info) == 1);
  info.set_state("FINISHED");
  CHECK(exit_code_of(info) == 0);
  info.set_members(3);
  info.set_members_finished(2);
  CHECK(exit_code_of(info) == 1);
  info.set_state("RUNNING");
  CHECK(exit_code_of(info) == 0);
}
