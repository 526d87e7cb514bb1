// The bridge between gRPC's threads and the loop: callbacks only post, everything else runs on the
// loop thread. At most one read and one write are in flight; the next read starts when the loop has
// handled the last one, which is the back-pressure on the peer. What waits to be written is bounded.
#pragma once

#include <grpcpp/grpcpp.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "schema/result.h"

namespace dtrain::daemon {

// The hint travels in the status' details, so that the CLI can show both.
inline grpc::Status to_grpc(const Error& error) {
  return {static_cast<grpc::StatusCode>(error.code), error.message, error.hint};
}

// One bidirectional stream of a peer. Owner: itself until gRPC is done with it, and whoever holds the
// shared_ptr. Promises: on_message for each message in order, then on_closed once, all on the loop.
template <typename In, typename Out>
class BidiStream : public grpc::ServerBidiReactor<In, Out>,
                   public std::enable_shared_from_this<BidiStream<In, Out>> {
 public:
  // Past this much waiting the stream ends; the peer comes back and resumes by its cursor.
  static constexpr size_t kWaitingBytesMax = size_t{64} << 20;

  BidiStream(boost::asio::io_context& loop, grpc::CallbackServerContext& call)
      : loop_(loop), call_(call) {}

  std::function<void(In&)> on_message;
  std::function<void()> on_reads_done;   // the peer sends no more; may be empty
  std::function<void()> on_closed;

  // Call once, from the RPC method, with the callbacks set.
  void start() {
    self_ = this->shared_from_this();
    this->StartRead(&in_);
  }

  void send(Out message) {
    if (finish_) return;
    waiting_bytes_ += message.ByteSizeLong();
    waiting_.push_back(std::move(message));
    if (waiting_bytes_ > kWaitingBytesMax) {
      waiting_.clear();
      finish({grpc::StatusCode::RESOURCE_EXHAUSTED, "the peer reads too slowly"});
      return;
    }
    write_next();
  }

  // Ends the stream after what waits is written. Later calls change nothing.
  void finish(grpc::Status status) {
    if (finish_) return;
    finish_ = std::move(status);
    write_next();
  }

  // Ends the stream now: also to a peer that reads nothing any more.
  void cut() {
    if (!finished_) call_.TryCancel();   // gRPC keeps the call until Finish
  }

  bool is_open() const { return !finish_ && !cancelled_; }

 private:
  void OnReadDone(bool good) override {
    boost::asio::post(loop_, [this, good] {
      if (!good) {
        if (on_reads_done && is_open()) on_reads_done();
        return;
      }
      if (!is_open()) return;
      on_message(in_);
      if (!is_open()) return;
      in_.Clear();
      this->StartRead(&in_);
    });
  }
  void OnWriteDone(bool good) override {
    boost::asio::post(loop_, [this, good] {
      writing_ = false;
      waiting_bytes_ -= out_.ByteSizeLong();
      if (!good) waiting_.clear();
      write_next();
    });
  }
  void OnCancel() override {
    boost::asio::post(loop_, [this] {
      cancelled_ = true;
      waiting_.clear();
      finish(grpc::Status::CANCELLED);
    });
  }
  void OnDone() override {
    boost::asio::post(loop_, [this] {
      if (on_closed) on_closed();
      on_message = nullptr;
      on_reads_done = nullptr;
      on_closed = nullptr;
      self_.reset();   // may delete this
    });
  }

  void write_next() {
    if (writing_ || finished_) return;
    if (!waiting_.empty()) {
      out_ = std::move(waiting_.front());
      waiting_.pop_front();
      writing_ = true;
      this->StartWrite(&out_);
    } else if (finish_) {
      finished_ = true;
      this->Finish(*finish_);
    }
  }

  boost::asio::io_context& loop_;
  grpc::CallbackServerContext& call_;
  std::shared_ptr<BidiStream> self_;
  In in_;
  Out out_;
  std::deque<Out> waiting_;
  size_t waiting_bytes_ = 0;
  bool writing_ = false;
  bool cancelled_ = false;
  bool finished_ = false;
  std::optional<grpc::Status> finish_;
};

// One stream to a peer that asks once and reads. `on_writable` is called when the last write is done
// and nothing waits: the producer then makes the next message, never more than one ahead.
template <typename Out>
class WriteStream : public grpc::ServerWriteReactor<Out>,
                    public std::enable_shared_from_this<WriteStream<Out>> {
 public:
  // `call`: of a peer that may be cut() off; else null.
  explicit WriteStream(boost::asio::io_context& loop, grpc::CallbackServerContext* call = nullptr)
      : loop_(loop), call_(call) {}

  std::function<void()> on_writable;
  std::function<void()> on_closed;

  void start() {
    self_ = this->shared_from_this();
    boost::asio::post(loop_, [this] {
      if (is_open() && on_writable) on_writable();
    });
  }

  // Only when is_writable().
  void write(Out message) {
    INVARIANT(is_writable(), "one write at a time");
    out_ = std::move(message);
    writing_ = true;
    this->StartWrite(&out_);
  }
  void finish(grpc::Status status) {
    if (finish_) return;
    finish_ = std::move(status);
    if (!writing_) finish_now();
  }
  // Ends the stream now: also to a peer that reads nothing any more.
  void cut() {
    if (!finished_ && call_ != nullptr) call_->TryCancel();  // gRPC keeps the call until Finish
  }
  bool is_open() const { return !finish_; }
  bool is_writable() const { return is_open() && !writing_; }
  boost::asio::io_context& loop_of() const { return loop_; }

 private:
  void OnWriteDone(bool good) override {
    boost::asio::post(loop_, [this, good] {
      writing_ = false;
      if (finish_) return finish_now();
      if (!good) return finish(grpc::Status::CANCELLED);
      if (on_writable) on_writable();
    });
  }
  void OnCancel() override {
    boost::asio::post(loop_, [this] { finish(grpc::Status::CANCELLED); });
  }
  void OnDone() override {
    boost::asio::post(loop_, [this] {
      if (on_closed) on_closed();
      on_writable = nullptr;
      on_closed = nullptr;
      self_.reset();   // may delete this
    });
  }
  void finish_now() {
    if (std::exchange(finished_, true)) return;
    this->Finish(*finish_);
  }

  boost::asio::io_context& loop_;
  grpc::CallbackServerContext* const call_;
  std::shared_ptr<WriteStream> self_;
  Out out_;
  bool writing_ = false;
  bool finished_ = false;
  std::optional<grpc::Status> finish_;
};

// Streams that end at once, for that reason.
template <typename In, typename Out>
grpc::ServerBidiReactor<In, Out>* refuse_stream(boost::asio::io_context& loop, grpc::CallbackServerContext& call, const Error& why) {
  const auto stream = std::make_shared<BidiStream<In, Out>>(loop, call);
  stream->on_message = [](In&) {};
  stream->start();
  boost::asio::post(loop, [stream, why] { stream->finish(to_grpc(why)); });
  return stream.get();
}
template <typename Out>
grpc::ServerWriteReactor<Out>* refuse_stream(boost::asio::io_context& loop, const Error& why) {
  const auto stream = std::make_shared<WriteStream<Out>>(loop);
  stream->on_writable = [raw = stream.get(), why] { raw->finish(to_grpc(why)); };
  stream->start();
  return stream.get();
}

// The answer to a call that waits for something. Owner: itself until gRPC is done with it, and whoever
// holds the shared_ptr. The call ends without it when the server goes down, or its client is gone.
class LateAnswer final : public grpc::ServerUnaryReactor,
                         public std::enable_shared_from_this<LateAnswer> {
 public:
  static std::shared_ptr<LateAnswer> start(boost::asio::io_context& loop) {
    auto answer = std::make_shared<LateAnswer>(loop);
    answer->self_ = answer;
    return answer;
  }
  explicit LateAnswer(boost::asio::io_context& loop) : loop_(loop) {}

  // What belongs to gRPC, the request and the reply, is there as long as it is open.
  bool is_open() const { return !finished_; }
  void finish(const grpc::Status& status) {
    if (!std::exchange(finished_, true)) Finish(status);
  }

 private:
  void OnCancel() override {
    boost::asio::post(loop_, [this] { finish(grpc::Status::CANCELLED); });
  }
  void OnDone() override {
    boost::asio::post(loop_, [this] { self_.reset(); });   // may delete this
  }

  boost::asio::io_context& loop_;
  std::shared_ptr<LateAnswer> self_;
  bool finished_ = false;
};

}  // namespace dtrain::daemon
