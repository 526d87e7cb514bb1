// The outputs of experiments on hosts that don't see DTRAIN_HOME/outputs: read for them, and written for them, by
// the runner of a host that has a part in the experiment. And read for people who are elsewhere.
//
// Thread: gRPC's, one a call, which waits for files; what concerns experiments is asked on the loop. So is each file
// given its name there: whoever has lost its part meanwhile changes nothing any more.
#pragma once

#include <grpcpp/grpcpp.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <atomic>
#include <filesystem>
#include <functional>
#include <future>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "daemon/caller.h"
#include "daemon/host_keys.h"
#include "daemon/scheduler.h"
#include "daemon/seldom.h"
#include "daemon/user_keys.h"
#include "schema/dtrain.grpc.pb.h"
#include "schema/output_tree.h"

namespace dtrain::daemon {

// Of the calls of a server that wait for files.
inline void bound_threads(grpc::ServerBuilder& builder) {
  constexpr int kThreadsMax = 64;
  builder.SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::MIN_POLLERS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::MAX_POLLERS, 1);
  builder.SetResourceQuota(grpc::ResourceQuota("outputs").SetMaxThreads(kThreadsMax));
}

class OutputsApi final : public pb::Outputs::Service {
 public:
  OutputsApi(boost::asio::io_context& loop, const std::filesystem::path& outputs, Scheduler& scheduler)
      : loop_(loop), outputs_(outputs), scheduler_(scheduler), watch_timer_(loop) {
    watch();
  }

  // No call is watched any more: the loop may end.
  void close() { watch_timer_.cancel(); }

  // Who comes by the network needs one of these keys. Set before anybody may come so.
  void guard(HostKeys* keys, UserKeys* users) {
    keys_ = keys;
    users_ = users;
  }

  grpc::Status List(grpc::ServerContext* call, const pb::OutputsRequest* request,
                    grpc::ServerWriter<pb::OutputList>* writer) override;
  grpc::Status Read(grpc::ServerContext* call, const pb::ReadOutputsRequest* request,
                    grpc::ServerWriter<pb::OutputPart>* writer) override;
  grpc::Status Write(grpc::ServerContext* call, grpc::ServerReader<pb::OutputParts>* reader,
                     pb::WriteOutputsReply* reply) override;
  grpc::Status Over(grpc::ServerContext* call, const pb::OverRequest* request, pb::OverReply* reply) override;

 private:
  class Turn;   // a call, as long as it goes on
  // To some outputs.
  struct Access {
    Caller caller;
    pb::OutputsRequest of;
    HostId host = {};          // none: a person
    int64_t admitted_ms = 0;   // of boottime_ms()
  };
  // Its key may have been revoked meanwhile: looked at each second.
  Status admit(Access& access) const;
  struct Place {
    std::filesystem::path folder;
    std::string file = {};   // the only one of it that is meant; empty: all
  };
  // On the loop. FailedPrecondition: it has no part in the experiment any more.
  Result<Place> place_of(const Access& access) const;
  Result<Place> own_place_of(const Access& access) const;
  Result<Place> place_for_person(const Access& access) const;
  Result<Place> resumed_place_of(const Experiment& experiment, const std::string& path) const;
  Status check_room(const OutputTree& tree, uint64_t bytes) const;
  void note_refusal(const std::string& experiment, const std::string& why);
  Status write(Access access, pb::OutputParts message, grpc::ServerReader<pb::OutputParts>& reader, Turn& turn,
               pb::WriteOutputsReply& reply);
  // A file that came whole, or what is no file.
  struct Change {
    pb::OutputEntry entry;
    bool removed = false;
    std::optional<UnnamedOutput> file = {};
  };
  Status make(std::vector<Change> changes, Access& access, const OutputTree& tree, pb::WriteOutputsReply& reply);

  template <class Ask>
  auto on_loop(const Ask& ask) -> decltype(ask()) {
    std::promise<decltype(ask())> answer;
    boost::asio::post(loop_, [&] { answer.set_value(ask()); });
    return answer.get_future().get();
  }

  boost::asio::io_context& loop_;
  const std::filesystem::path outputs_;
  Scheduler& scheduler_;
  HostKeys* keys_ = nullptr;
  UserKeys* users_ = nullptr;
  // Calls that go on, each of a thread that others can't have meanwhile.
  struct Running {
    grpc::ServerContext* call;
    Caller caller;
    std::atomic<int64_t> progress_ms;   // of boottime_ms(), when something went or came last
    bool is_host;                       // or of this machine; else a person
  };
  void watch();

  boost::asio::steady_timer watch_timer_;
  std::mutex mutex_;   // of:
  std::list<Running> running_;
  Seldom refusals_;    // as the log has them
};

}  // namespace dtrain::daemon
