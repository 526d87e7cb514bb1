// The files of a launch made ready beside the loop: what is lacking here, what has to be brought, and then all the rest.
#pragma once

#include <atomic>
#include <boost/asio/io_context.hpp>
#include <functional>
#include <memory>
#include <optional>

#include "runner/file_worker.h"
#include "runner/preparation.h"

namespace dtrain::runner {

// Owner: HeldLaunch. Thread: loop. `files` and `site` outlive it, and it outlives what it is asked for.
// Promises: `then` of make_ready() is called once, on the loop.
class LaunchFiles {
 public:
  struct Made {
    bool unfit = false;  // then `record` is the error that says what is lacking
    Result<std::optional<LaunchRecord>> record;  // as prepare_launch() has it
  };
  LaunchFiles(boost::asio::io_context& loop, FileWorker& files, const LaunchSite& site)
      : loop_(loop), files_(files), site_(site) {}

  void make_ready(const pb::Launch& message, const LaunchDir& directory, std::function<void(Made)> then);
  // Nobody wants it any more: what is brought is left off, which fails it.
  void give_up() { *wanted_ = false; }

 private:
  using Then = std::function<void(Made)>;
  struct Job {
    pb::Launch message;
    LaunchDir directory;
    Then then;
    std::optional<Made> made = {};  // none yet: outputs have to be brought first
  };
  void bring_outputs(const std::shared_ptr<Job>& job);
  void prepare(const std::shared_ptr<Job>& job, PlacedOutputs placed);

  boost::asio::io_context& loop_;
  FileWorker& files_;
  const LaunchSite& site_;
  std::shared_ptr<std::atomic<bool>> wanted_ = std::make_shared<std::atomic<bool>>(true);
  std::unique_ptr<FileWorker> bringing_;  // a thread of its own: it may take long, and the daemon's host be slow
};

}  // namespace dtrain::runner
