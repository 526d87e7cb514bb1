#include "runner/exec_call.h"

#include <grpcpp/grpcpp.h>

#include <boost/asio/post.hpp>
#include <deque>
#include <utility>

#include "schema/dtrain.grpc.pb.h"

namespace dtrain::runner {
namespace {

namespace asio = boost::asio;

// gRPC holds it through self_ until the call is done. What waits to be sent is bounded by whoever sends: by the window of
// schema/exec_limits.h.
class ExecCall final : public ExecPeer,
                       public grpc::ClientBidiReactor<pb::ExecOutput, pb::ExecInput>,
                       public std::enable_shared_from_this<ExecCall> {
 public:
  ExecCall(asio::io_context& loop, Link& link) : loop_(loop), call_(link), stub_(pb::Runner::NewStub(link.channel())) {}

  void start(const std::string& session) {
    self_ = shared_from_this();
    stub_->async()->Exec(&call_.context(), this);
    AddHold();
    StartRead(&incoming_);
    StartCall();
    pb::ExecOutput claim;
    claim.mutable_claim()->set_session(session);
    send(std::move(claim));
  }

  void send(pb::ExecOutput message) override {
    if (ended_) return;
    waiting_.push_back(std::move(message));
    write_next();
  }

  void end() override {
    on_input = nullptr;
    on_closed = nullptr;
    ending_ = true;
    write_next();
  }

 private:
  void write_next() {
    if (writing_ || ended_) return;
    if (!waiting_.empty()) {
      outgoing_ = std::move(waiting_.front());
      waiting_.pop_front();
      writing_ = true;
      StartWrite(&outgoing_);
    } else if (ending_ && !std::exchange(said_all_, true)) {
      StartWritesDone();
    }
  }

  void OnReadDone(bool good) override {
    asio::post(loop_, [self = shared_from_this(), good] {
      if (!good) return self->on_end();
      // By a copy: it may end() in there.
      if (const auto hear = self->on_input) hear(self->incoming_);
      self->incoming_.Clear();
      self->StartRead(&self->incoming_);
    });
  }

  void OnWriteDone(bool good) override {
    asio::post(loop_, [self = shared_from_this(), good] {
      self->writing_ = false;
      if (good) self->write_next();
    });
  }

  void OnDone(const grpc::Status&) override {
    asio::post(loop_, [self = std::move(self_)] {});   // it ends on the loop
  }

  void on_end() {
    ended_ = true;
    RemoveHold();
    on_input = nullptr;
    if (const auto tell = std::exchange(on_closed, nullptr)) tell();
  }

  asio::io_context& loop_;
  Link::Call call_;
  const std::unique_ptr<pb::Runner::Stub> stub_;
  std::shared_ptr<ExecCall> self_;
  pb::ExecInput incoming_;
  pb::ExecOutput outgoing_;
  std::deque<pb::ExecOutput> waiting_;
  bool writing_ = false;
  bool ending_ = false;
  bool said_all_ = false;
  bool ended_ = false;   // gRPC takes no more
};

}  // namespace

DialExec dial_exec_over(asio::io_context& loop, Link& link) {
  return [&loop, &link](const std::string& session) {
    const auto call = std::make_shared<ExecCall>(loop, link);
    call->start(session);
    return call;
  };
}

}  // namespace dtrain::runner
