// The runner's connection to its daemon: one stream that is dialled again for ever.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "runner/outbox.h"
#include "schema/access_key.h"

namespace grpc {
class Channel;
class ClientContext;
}  // namespace grpc

namespace dtrain::runner {

// Where the daemon is: on this machine, or where a key leads.
struct DaemonPlace {
  std::string socket;          // the path of its Unix socket; "unix:" in front is allowed
  std::optional<AccessKey> key;  // then over the network, by TLS
};

// Link keeps a stream open and hands what comes to the loop, message by message.
// Owner: main. Thread: loop, except fetch() and calls; gRPC's threads only decode and post.
// Promises: connected, messages in order, disconnected, and so on again; at most one read and one
// write in flight, the next read after the last message was handled. What waits to be written is
// bounded: past the bound the stream ends and the daemon's Welcome says where to resume.
// Never: gives up.
class Link : public Outbox, public BlobSource {
 public:
  struct Callbacks {
    std::function<void()> connected;  // the first message must be Hello
    std::function<void(const pb::ToRunner&)> message;
    std::function<void()> disconnected;
  };

  Link(boost::asio::io_context& loop, DaemonPlace daemon);
  ~Link() override;
  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;

  void open(Callbacks callbacks);
  // Ends the stream and every call in progress; no callback follows.
  void close();

  // A call beside the stream, which close() ends. Thread: not gRPC's; of a call that waits not the loop's either.
  class Call {
   public:
    explicit Call(Link& link);
    ~Call();
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

    grpc::ClientContext& context() { return *context_; }

   private:
    Link& link_;
    const std::unique_ptr<grpc::ClientContext> context_;
  };
  std::shared_ptr<grpc::Channel> channel() const;

  void send(pb::FromRunner message) override;
  // Thread: any but the loop's and gRPC's.
  Status fetch(const std::vector<std::string>& sha256,
               const std::function<Status(const pb::BlobPart&)>& part) override;

 private:
  struct Channel;
  class Stream;

  void dial();
  void redial(const std::string& reason);
  void on_message(const pb::ToRunner& message);
  void on_stream_end(const std::string& reason);

  boost::asio::io_context& loop_;
  const DaemonPlace daemon_;
  Callbacks callbacks_;
  std::unique_ptr<Channel> channel_;
  std::shared_ptr<Stream> stream_;  // null between streams
  boost::asio::steady_timer timer_;
  int64_t backoff_ms_ = 0;
  std::string last_reason_;
  bool closed_ = false;
};

}  // namespace dtrain::runner
