// Forgets what ended: when somebody asks (`dtrain prune`), and by itself what config.yml lets go.
//
// Owner: daemon main. Thread: loop; files of people's results are deleted on one other thread.
// Promises: an experiment's row goes last, so that whatever a crash interrupts is done by the next
// prune; a submission that goes on meanwhile loses nothing it relies on. Never: touches what has not
// ended, a result that nobody named, or more of a project than its link to results that are gone.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <vector>

#include "daemon/blob_sweep.h"
#include "daemon/blobs.h"
#include "daemon/logs.h"
#include "daemon/scheduler.h"
#include "daemon/store.h"
#include "schema/config.h"
#include "schema/dtrain.pb.h"
#include "schema/home.h"
#include "schema/wall_pace.h"

namespace dtrain::daemon {

class Pruner {
 public:
  using Done = std::function<void(Result<pb::PruneReply>)>;

  Pruner(boost::asio::io_context& loop, const Home& home, Store& store, Blobs& blobs, Logs& logs,
         const Scheduler& scheduler, const Config& config, std::chrono::milliseconds first_look = std::chrono::minutes(1));
  Pruner(const Pruner&) = delete;
  Pruner& operator=(const Pruner&) = delete;

  // From `first_look` after the start on, each hour. Nothing is too old while the wall clock may be wrong.
  void keep_limits();
  // Nothing goes when one of the numbers is refused: NotFound, or FailedPrecondition for what has not
  // ended, or whose results, if they are to go, are named by what has not. One whose files can't be deleted is an
  // error, too, and stays alone. One request after the other.
  void prune(pb::PruneRequest request, Done done);
  // The daemon ends: what is being done is left for the next prune, Aborted.
  void stop();

 private:
  struct Work {
    pb::PruneRequest request;
    Done done;
    pb::PruneReply reply;
    std::vector<Store::Closed> chosen;
    int waits = 0;   // for what has just ended
    Status kept;     // why the first stays of which not all could be deleted
    bool has_rows = false;  // a full disk took not even their deletion, so far
  };

  void begin_next();
  bool is_being_closed(const pb::PruneRequest& request) const;
  Result<std::vector<Store::Closed>> choose(const pb::PruneRequest& request);
  std::map<uint32_t, uint32_t> results_in_use() const;
  Result<std::vector<uint32_t>> beyond_limits();
  void remove_files();
  void remove_rows();
  Status try_to_remove_rows();
  void begin_sweep(int tries_left);
  void sweep();
  void end(Status status);
  uint64_t log_bytes(uint32_t number) const;

  boost::asio::io_context& loop_;
  const Home home_;
  Store& store_;
  Blobs& blobs_;
  Logs& logs_;
  const Scheduler& scheduler_;
  const Config config_;
  std::deque<Work> waiting_;   // the first is being done
  std::unique_ptr<BlobSweep> sweep_;
  WallPace pace_;
  bool stopping_ = false;
  boost::asio::steady_timer hourly_;
  boost::asio::steady_timer again_;
  boost::asio::thread_pool files_{1};
};

}  // namespace dtrain::daemon
