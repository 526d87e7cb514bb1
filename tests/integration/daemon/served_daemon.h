// A daemon's objects behind a real server on a home's socket. The test turns its loop, and everything
// a client is told comes in on that same loop.
#pragma once

#include <grpcpp/grpcpp.h>

#include <boost/asio/post.hpp>
#include <csignal>
#include <deque>
#include <optional>
#include <thread>

#include "daemon/client_api.h"
#include "daemon/listener.h"
#include "daemon/monitor.h"
#include "daemon/outputs_api.h"
#include "daemon/runner_api.h"
#include "schema/clock.h"
#include "schema/version.h"
#include "tests/integration/daemon/one_daemon.h"

namespace dtrain::daemon {

class ServedDaemon {
 public:
  explicit ServedDaemon(const Home& below,
                        std::chrono::milliseconds silence = std::chrono::minutes(1), LogsDisk disk = {},
                        std::chrono::milliseconds submission_patience = std::chrono::minutes(5))
      : home(below),
        store(Store::open(home.database()).value()),
        blobs(Blobs::open(home.blobs()).value()),
        runner_api(loop, *blobs, silence),
        logs(loop, home.logs(), *store,
             [this](const LogKey& key, uint64_t offset) { runner_api.log_durable(key, offset); }, std::move(disk)),
        metrics(*store, logs),
        scheduler(loop, home, *store, logs, metrics, runner_api, Policy{}, 1 << 20),
        outputs_api(loop, home.outputs(), scheduler),
        monitor(loop, scheduler, runner_api),
        pruner(loop, home, *store, *blobs, logs, scheduler, Config{}),
        exec(loop, scheduler, runner_api),
        client_api({loop, home, *store, *blobs, logs, metrics, scheduler, runner_api, monitor, pruner, exec, nullptr, nullptr, {}, nullptr,
                    submission_patience}) {
    runner_api.on_left = [this](const HostId& host) { exec.leave(host); };
    runner_api.on_exec = [this](grpc::CallbackServerContext& call) { return exec.from_host(call); };
    std::signal(SIGPIPE, SIG_IGN);   // as the daemon does: gRPC writes to peers that are gone
    runner_api.wire(&scheduler, &logs, &metrics);
    REQUIRE(scheduler.load().ok());
    grpc::ServerBuilder builder;
    builder.RegisterService(&client_api);
    builder.RegisterService(&runner_api);
    builder.RegisterService(&outputs_api);
    bound_threads(builder);
    server_ = builder.BuildAndStart();
    listener_.emplace(loop, *server_);
    REQUIRE(listener_->listen(home.socket()).ok());
    channel = grpc::CreateChannel("unix:" + home.socket().string(),
                                  grpc::InsecureChannelCredentials());
  }
  ~ServedDaemon() {
    listener_->close();
    bool down = false;
    std::thread shutdown([&] {
      server_->Shutdown(std::chrono::system_clock::now());
      boost::asio::post(loop, [&] { down = true; });
    });
    until([&] { return down; });   // its streams end on the loop
    shutdown.join();
  }
  ServedDaemon(const ServedDaemon&) = delete;
  ServedDaemon& operator=(const ServedDaemon&) = delete;

  void until(const std::function<bool()>& done) {
    while (!done()) REQUIRE(loop.run_one_for(std::chrono::seconds(10)) == 1);
  }

  const Home home;
  boost::asio::io_context loop{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work{loop.get_executor()};
  std::unique_ptr<Store> store;
  std::unique_ptr<Blobs> blobs;
  RunnerApi runner_api;
  Logs logs;
  Metrics metrics;
  Scheduler scheduler;
  OutputsApi outputs_api;
  Monitor monitor;
  Pruner pruner;
  ExecRelay exec;
  ClientApi client_api;
  std::shared_ptr<grpc::Channel> channel;

 private:
  std::unique_ptr<grpc::Server> server_;
  std::optional<Listener> listener_;
};

// A runner's stream: says what it is told to, and keeps what it hears.
class FakeRunner : public grpc::ClientBidiReactor<pb::FromRunner, pb::ToRunner> {
 public:
  // `channel`: null for the daemon's Unix socket.
  explicit FakeRunner(ServedDaemon& daemon, uint64_t dialled_ms = 0,
                      const std::shared_ptr<grpc::Channel>& channel = nullptr, const std::string& host = "h1")
      : daemon_(daemon), stub_(pb::Runner::NewStub(channel ? channel : daemon.channel)) {
    stub_->async()->Connect(&context_, this);
    AddHold();  // the loop starts the next read: the call must be there still
    StartRead(&in_);
    StartCall();
    pb::FromRunner message;
    pb::Hello& hello = *message.mutable_hello();
    hello.set_version(kVersion);
    hello.set_protocol(kProtocol);
    hello.set_host_id(host);
    hello.set_boot_id(boot_id());
    hello.set_dialled_ms(dialled_ms);
    hello.mutable_inventory()->set_name("h1");
    hello.mutable_inventory()->set_cpus(4);
    hello.mutable_inventory()->set_memory_bytes(uint64_t{1} << 30);
    say(std::move(message));
    daemon_.until([this] { return ended_ || last(pb::ToRunner::kWelcome) != nullptr; });
  }
  ~FakeRunner() override {
    context_.TryCancel();
    daemon_.until([this] { return ended_; });
  }

  void say(pb::FromRunner message) {
    waiting_.push_back(std::move(message));
    if (waiting_.size() == 1) StartWrite(&waiting_.front());
  }
  size_t count(pb::ToRunner::WhatCase what) const {
    size_t n = 0;
    for (const auto& message : heard_) n += message.what_case() == what;
    return n;
  }
  bool ended() const { return ended_; }
  const grpc::Status& status() const { return status_; }   // once it has ended
  const pb::ToRunner* last(pb::ToRunner::WhatCase what) const {
    const pb::ToRunner* found = nullptr;
    for (const auto& message : heard_) {
      if (message.what_case() == what) found = &message;
    }
    return found;
  }

 private:
  void OnReadDone(bool good) override {
    boost::asio::post(daemon_.loop, [this, good] {
      if (!good) return RemoveHold();
      heard_.push_back(in_);
      StartRead(&in_);
    });
  }
  void OnWriteDone(bool) override {
    boost::asio::post(daemon_.loop, [this] {
      waiting_.pop_front();
      if (!waiting_.empty()) StartWrite(&waiting_.front());
    });
  }
  void OnDone(const grpc::Status& status) override {
    boost::asio::post(daemon_.loop, [this, status] {
      status_ = status;
      ended_ = true;
    });
  }

  ServedDaemon& daemon_;
  std::unique_ptr<pb::Runner::Stub> stub_;
  grpc::ClientContext context_;
  pb::ToRunner in_;
  std::deque<pb::FromRunner> waiting_;   // the first is being written
  std::deque<pb::ToRunner> heard_;
  bool ended_ = false;
  grpc::Status status_;
};

}  // namespace dtrain::daemon
