// Between who runs a command beside a replica, or has a connection to its port, or fetches what it left, and the host that has it: each such session is two streams, whose messages
// are passed on as they come. How much is on its way, the two ends keep to themselves (schema/exec_limits.h).
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "daemon/reactor.h"
#include "daemon/rights.h"
#include "daemon/scheduler.h"
#include "schema/dtrain.pb.h"

namespace dtrain::daemon {

// Owner: daemon main. Thread: gRPC calls in, everything else on the loop. Promises: whichever stream ends, the other ends
// with it.
class ExecRelay {
 public:
  ExecRelay(boost::asio::io_context& loop, Scheduler& scheduler, RunnerOutbox& runners);
  ExecRelay(const ExecRelay&) = delete;
  ExecRelay& operator=(const ExecRelay&) = delete;

  using PersonStream = BidiStream<pb::ExecInput, pb::ExecOutput>;
  using HostStream = BidiStream<pb::ExecOutput, pb::ExecInput>;
  std::shared_ptr<PersonStream> from_person(grpc::CallbackServerContext& call, const Person& who);
  // Who claims a session knows it from what its host was sent.
  grpc::ServerBidiReactor<pb::ExecOutput, pb::ExecInput>* from_host(grpc::CallbackServerContext& call);

  // Ends what is there: the host was cut off, or is out of reach.
  void leave(const HostId& host);
  // Ends every session: the daemon stops.
  void close();

 private:
  struct Session {
    Session(boost::asio::io_context& loop, std::shared_ptr<PersonStream> stream) : person(std::move(stream)), patience(loop) {}
    std::shared_ptr<PersonStream> person;
    std::shared_ptr<HostStream> host_stream = nullptr;   // null: not claimed yet
    HostId host = {};
    bool is_connection = false;                          // to a port or to files, else a command
    pb::ExecStarted started = {};
    std::vector<pb::ExecInput> waiting = {};             // for whoever claims it
    bool ended = false;
    boost::asio::steady_timer patience;
  };

  void on_input(const std::shared_ptr<PersonStream>& person, const Person& who, std::string& session_id,
                pb::ExecInput& message);
  Status open(const std::shared_ptr<PersonStream>& person, const Person& who, std::string& session_id, const pb::ExecInput& first);
  void on_output(const std::shared_ptr<HostStream>& host_stream, std::string& session_id, pb::ExecOutput& message);
  void claim(const std::shared_ptr<HostStream>& host_stream, std::string& session_id, const std::string& wanted);
  void await_claim(const std::weak_ptr<HostStream>& host_stream, const std::shared_ptr<std::string>& session_id);
  void give_up(const std::string& session_id, const Error& why);

  boost::asio::io_context& loop_;
  Scheduler& scheduler_;
  RunnerOutbox& runners_;
  std::map<std::string, std::shared_ptr<Session>> sessions_;
};

}  // namespace dtrain::daemon
