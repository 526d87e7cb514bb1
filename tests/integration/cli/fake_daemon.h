// A daemon of canned answers on a home's socket, that remembers what it was asked.
#pragma once

#include <doctest/doctest.h>
#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "schema/dtrain.grpc.pb.h"
#include "schema/home.h"
#include "schema/version.h"

namespace dtrain::cli {

// A home of its own that DTRAIN_HOME names until scope exit.
class ScratchHome {
 public:
  ScratchHome() {
    std::string pattern = std::filesystem::temp_directory_path() / "dtrain-cli-XXXXXX";
    root_ = mkdtemp(pattern.data());
    if (const char* before = std::getenv("DTRAIN_HOME")) before_ = before;
    setenv("DTRAIN_HOME", root_.c_str(), 1);
    home_ = open_home(root_).value();
  }
  ~ScratchHome() {
    if (before_.empty()) {
      unsetenv("DTRAIN_HOME");
    } else {
      setenv("DTRAIN_HOME", before_.c_str(), 1);
    }
    std::error_code failed;
    std::filesystem::remove_all(root_, failed);
    CHECK_MESSAGE(!failed, root_ << " stays: " << failed.message());
  }
  ScratchHome(const ScratchHome&) = delete;
  ScratchHome& operator=(const ScratchHome&) = delete;
  const Home& home() const { return home_; }

 private:
  std::string root_, before_;
  Home home_;
};

class FakeDaemon : public pb::Client::Service {
 public:
  explicit FakeDaemon(const Home& home) {
    info.set_version(kVersion);
    info.set_protocol(kProtocol);
    info.set_pid(static_cast<uint64_t>(getpid()));
    grpc::ServerBuilder builder;
    builder.AddListeningPort("unix:" + home.socket().string(), grpc::InsecureServerCredentials());
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~FakeDaemon() override { server_->Shutdown(); }

  grpc::Status Info(grpc::ServerContext*, const pb::InfoRequest*, pb::InfoReply* reply) override {
    *reply = info;
    return grpc::Status::OK;
  }
  grpc::Status List(grpc::ServerContext*, const pb::ListRequest* request,
                    pb::ListReply* reply) override {
    asked_list = *request;
    *reply = list;
    return grpc::Status::OK;
  }
  grpc::Status Show(grpc::ServerContext*, const pb::ShowRequest* request,
                    pb::ShowReply* reply) override {
    asked_show = *request;
    asked_shows.push_back(*request);
    *reply = show;
    if (dies_at_show-- > 0) return {grpc::StatusCode::UNAVAILABLE, "the connection broke"};
    return show_status;
  }
  grpc::Status Kill(grpc::ServerContext*, const pb::KillRequest* request,
                    pb::KillReply* reply) override {
    asked_kill = *request;
    for (const std::string& id : request->ids()) reply->add_items()->set_id(id);
    return grpc::Status::OK;
  }

  // Set before a call, read after it: the call itself orders the two.
  pb::InfoReply info;
  pb::ListReply list;
  pb::ShowReply show;
  grpc::Status show_status;
  int dies_at_show = 0;  // so many times
  pb::ListRequest asked_list;
  pb::ShowRequest asked_show;  // the last of them
  std::vector<pb::ShowRequest> asked_shows;
  pb::KillRequest asked_kill;

 private:
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace dtrain::cli
