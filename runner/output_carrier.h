// Carries the outputs of one launch to the daemon while it runs and when its replicas end.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <string>

#include "runner/carried_outputs.h"
#include "runner/file_worker.h"
#include "runner/outbox.h"

namespace dtrain::runner {

// Owner: HeldLaunch. Thread: loop; what takes time is the worker's.
// Promises: finish() comes to an end once the daemon has all, or wants nothing of this launch any more.
class OutputCarrier {
 public:
  // `store` outlives it. `brings`: what others write comes here meanwhile.
  OutputCarrier(boost::asio::io_context& loop, OutputStore& store, CarriedPlace place, pb::OutputsRequest of, bool brings);

  // From now on now and then.
  void begin();
  // All that is there, for who has ended: then `then`, with what could not be carried, for people.
  void finish(const std::string& who, std::function<void(std::string)> then);
  // Nothing more is carried now and then.
  void end();

 private:
  // What jobs share, which may outlive this.
  struct Work {
    OutputStore& store;
    CarriedPlace place;
    pb::OutputsRequest of;
    bool brings;
    CarryMemory memory = {};   // the worker's
    std::string said = {};     // why it has to wait; the worker's
  };
  static void carry_some(Work& work, Which which, bool& more);
  static bool carry_all(Work& work, const std::string& who, std::string& remarks);
  void later(std::chrono::seconds after);
  void carry(Which which);

  std::shared_ptr<Work> work_;
  boost::asio::steady_timer timer_;
  int rounds_ = 0;
  bool ended_ = false;
  std::shared_ptr<int> alive_ = std::make_shared<int>(0);
  FileWorker worker_;   // a large file holds up nobody else
};

}  // namespace dtrain::runner
