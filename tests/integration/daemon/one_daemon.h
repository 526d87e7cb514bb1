// One daemon process's worth of objects below a home, without a network: what it says to hosts is
// recorded, and its loop turns when the test says so. Destroying it is what a crash is.
#pragma once

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <chrono>
#include <csignal>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "daemon/logs.h"
#include "daemon/scheduler.h"
#include "daemon/store.h"
#include "tests/support/few_descriptors.h"
#include "tests/support/project.h"

namespace dtrain::daemon {

// No file of this process grows beyond `bytes` while this lives: a commit fails.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes = 0) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    REQUIRE(getrlimit(RLIMIT_FSIZE, &before_) == 0);
    const rlimit nothing{bytes, before_.rlim_max};
    REQUIRE(setrlimit(RLIMIT_FSIZE, &nothing) == 0);
  }
  ~FullDisk() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  void (*handler_)(int);
  rlimit before_{};
};

using test::FewDescriptors;

class RecordingOutbox : public RunnerOutbox {
 public:
  void send(const HostId&, pb::ToRunner message) override { sent.push_back(std::move(message)); }
  size_t count(pb::ToRunner::WhatCase what) const {
    size_t n = 0;
    for (const auto& message : sent) n += message.what_case() == what;
    return n;
  }
  std::vector<pb::ToRunner> sent;
};

inline Home home_below(const std::filesystem::path& root) {
  Home home{root, root / "socket"};
  for (const auto& folder : {home.blobs(), home.logs(), home.outputs(), home.runner()}) {
    std::filesystem::create_directories(folder);
  }
  return home;
}

inline const HostId kHost{"h1"};

inline Host a_host(double cpus = 4) {
  Host host;
  host.id = kHost;
  host.name = "h1";
  host.address = "127.0.0.1";
  host.cpus = cpus;
  host.memory_bytes = uint64_t{1} << 30;
  host.connected = true;
  host.same_machine = true;
  return host;
}

// Of one replica, 1.train, that takes half of a_host().
inline Submission a_submission(const std::string& id) {
  Submission submission;
  submission.submission_id = id;
  submission.spec_yaml =
      "project: testing\ntrain:\n  resources: {cpus: 2, mem: 64}\n  run: 'true'\n";
  submission.spec = parse_spec(submission.spec_yaml, {}).value();
  return submission;
}

// Changes what is stored, behind the daemon's back.
inline void spoil(const Home& home, const char* sql) {
  auto database = Database::open(home.database());
  REQUIRE(database.ok());
  REQUIRE(database->execute(sql).ok());
}

struct OneDaemon {
  explicit OneDaemon(const Home& below, LogsDisk disk = {},
                     uint64_t metrics_save_bytes = Metrics::kSaveBytes)
      : home(below),
        store(Store::open(home.database()).value()),
        logs(loop, home.logs(), *store, [](const LogKey&, uint64_t) {}, std::move(disk)),
        metrics(*store, logs, metrics_save_bytes),
        scheduler(loop, home, *store, logs, metrics, outbox, Policy{}, 1 << 20) {
    REQUIRE(scheduler.load().ok());
    turn();
  }

  // Everything posted by now, and what follows from it on the loop.
  void turn() {
    loop.poll();
    loop.restart();
  }
  void until(const std::function<bool()>& done) {
    while (!done()) REQUIRE(loop.run_one_for(std::chrono::seconds(10)) == 1);
  }

  Result<pb::Accepted> submit(const std::string& id) {
    return scheduler.submit(a_submission(id), {});
  }
  bool is_open_in_store(uint32_t number) {
    const auto open = store->open_numbers();
    REQUIRE(open.ok());
    return std::ranges::count(*open, number) > 0;
  }
  pb::ExperimentRecord row(const ExperimentId& id) {
    const auto rows = store->experiments(id.number);
    REQUIRE(rows.ok());
    for (const auto& row : *rows) {
      if (row.id == id) return row.record;
    }
    return {};
  }

  const Home home;
  boost::asio::io_context loop{1};
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work{loop.get_executor()};
  std::unique_ptr<Store> store;
  RecordingOutbox outbox;
  Logs logs;
  Metrics metrics;
  Scheduler scheduler;
};

// What a daemon leaves that took these, of which the first can't be read any more.
inline void leave_unreadable(const Home& home, const std::vector<std::string>& submissions) {
  {
    OneDaemon before(home);
    before.scheduler.handle(HostConnected{a_host(), {}});
    for (const std::string& id : submissions) REQUIRE(before.submit(id).ok());
    before.turn();
  }
  spoil(home, "update experiment set facts = x'ff' where number = 1");
}

}  // namespace dtrain::daemon
