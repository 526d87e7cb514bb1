// A runner's objects in a temporary home, without a network: messages for the daemon are recorded, and
// those from it are said by the test. Destroying it is what a crash of the runner is.
#pragma once

#include <doctest/doctest.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runner/agent.h"
#include "tests/support/project.h"

namespace dtrain::runner {

namespace fs = std::filesystem;
namespace asio = boost::asio;

using test::TemporaryFolder;

// What the agent said, in order.
class Recorder : public Outbox {
 public:
  void send(pb::FromRunner message) override { said.push_back(std::move(message)); }
  std::vector<pb::FromRunner> said;
};

class NoBlobs : public BlobSource {
 public:
  Status fetch(const std::vector<std::string>&,
               const std::function<Status(const pb::BlobPart&)>&) override {
    if (on_fetch) on_fetch();
    return Error{Code::Unavailable, "no daemon", ""};
  }
  std::function<void()> on_fetch;   // on another thread
};

// One runner process's worth of objects. Destroying it is what a crash of the runner is: keepers go
// on.
class Runner {
 public:
  enum class Adopt { Now, Later };
  Runner(const fs::path& home, Recorder& recorder, Adopt adopt = Adopt::Now, AgentOptions options = {})
      : outbox(recorder) {
    LaunchSite site;
    site.home = home;
    site.host_name = "test";
    site.inherited = inherited_environment(own_process_environment());
    site.cgroups = claim_cgroups(CgroupChoice::None);
    auto trees = Trees::open(home / "trees");
    REQUIRE(trees.ok());
    site.trees = std::move(trees).value();
    site.blobs = &blobs;
    options.host_id = std::string(32, 'a');
    options.keeper_executable = fs::path(BIN_DIR) / "runner_program";
    agent = std::make_unique<Agent>(loop, options, std::move(site), outbox,
                                    [] { return pb::Inventory(); });
    if (adopt == Adopt::Now) REQUIRE(agent->adopt().ok());
  }

  void connect(const pb::Welcome& welcome = {}) {
    agent->on_connected();
    pb::ToRunner message;
    *message.mutable_welcome() = welcome;
    agent->on_message(message);
  }

  void tell(const std::function<void(pb::ToRunner&)>& fill) {
    pb::ToRunner message;
    fill(message);
    agent->on_message(message);
  }

  // Runs the loop until `done`; false after ten seconds.
  bool until(const std::function<bool()>& done) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!done()) {
      loop.restart();
      if (std::chrono::steady_clock::now() > deadline) return false;
      loop.run_one_until(deadline);
    }
    return true;
  }

  asio::io_context loop{1};
  NoBlobs blobs;
  Recorder& outbox;
  std::unique_ptr<Agent> agent;
};

struct Scene {
  TemporaryFolder folder;
  Recorder recorder;

  std::unique_ptr<Runner> runner() { return std::make_unique<Runner>(folder.path(), recorder); }

  pb::Launch launch(const std::string& run, uint32_t attempt = 1) const {
    pb::Launch message;
    message.set_experiment("4");
    message.set_attempt(attempt);
    message.set_spec_yaml(
        "project: testing\ntrain:\n  resources: {cpus: 1, mem: 64, gpus: 0}\n  run: |-\n    " +
        run + "\n");
    message.set_output_dir((folder.path() / "out").string());
    pb::SeatInfo& seat = *message.add_gang();
    seat.set_replica("4.train");
    seat.set_host_id(std::string(32, 'a'));
    seat.set_address("127.0.0.1");
    seat.set_cpus(1);
    seat.set_memory_bytes(64 << 20);
    message.add_replicas("4.train");
    return message;
  }

  size_t count(pb::FromRunner::WhatCase what) const {
    size_t n = 0;
    for (const auto& message : recorder.said) n += message.what_case() == what;
    return n;
  }
  const pb::FromRunner* last(pb::FromRunner::WhatCase what) const {
    const pb::FromRunner* found = nullptr;
    for (const auto& message : recorder.said) {
      if (message.what_case() == what) found = &message;
    }
    return found;
  }
  std::string output() const {
    std::string text;
    for (const auto& message : recorder.said) {
      if (message.has_log() && message.log().offset() == text.size()) text += message.log().data();
    }
    return text;
  }
};

inline void start(Runner& runner, uint32_t attempt = 1) {
  runner.tell([&](pb::ToRunner& message) {
    message.mutable_start()->set_experiment("4");
    message.mutable_start()->set_attempt(attempt);
  });
}

inline void acknowledge(Runner& runner, uint64_t offset) {
  runner.tell([&](pb::ToRunner& message) {
    message.mutable_log_ack()->set_replica("4.train");
    message.mutable_log_ack()->set_attempt(1);
    message.mutable_log_ack()->set_offset(offset);
  });
}

inline void stop(Runner& runner, uint64_t grace_ms, uint32_t attempt = 1) {
  runner.tell([&](pb::ToRunner& message) {
    message.mutable_stop()->set_experiment("4");
    message.mutable_stop()->set_grace_ms(grace_ms);
    pb::HeldReplica& held = *message.mutable_stop()->add_replicas();
    held.set_replica("4.train");
    held.set_attempt(attempt);
  });
}

inline void forget(Runner& runner) {
  runner.tell([&](pb::ToRunner& message) {
    message.mutable_forget()->set_experiment("4");
    pb::HeldReplica& held = *message.mutable_forget()->add_replicas();
    held.set_replica("4.train");
    held.set_attempt(1);
  });
}

// Ends whatever the case left behind, keeper included.
inline void finish(Scene& scene, Runner& runner) {
  forget(runner);
  CHECK(runner.until([&] { return runner.agent->launches_held() == 0; }));
  CHECK(runner.until([&] { return fs::is_empty(scene.folder.path() / "launches"); }));
}

}  // namespace dtrain::runner
