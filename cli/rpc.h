// gRPC calls over one connection, as much of it as a command needs: no threads, nothing to bring
// up and nothing to take down, which is most of the time that a short command would take.
//
// RpcChannel is the connection, RpcCall one call on it; calls may overlap. Everything happens
// inside the functions that are called here; whoever waits for several things polls fd() and then
// asks the call what it has. HTTP/2 is nghttp2's; the wire format is gRPC's "PROTOCOL-HTTP2"
// document.
#pragma once

#include <google/protobuf/message_lite.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "cli/wire.h"
#include "schema/buffer.h"
#include "schema/result.h"

struct nghttp2_session;

namespace dtrain::cli {

class RpcCall;

class RpcChannel {
 public:
  // `wire`: to a gRPC server. Nothing is sent before the first call.
  explicit RpcChannel(std::unique_ptr<Wire> wire);
  ~RpcChannel();
  RpcChannel(const RpcChannel&) = delete;
  RpcChannel& operator=(const RpcChannel&) = delete;

  int fd() const { return wire_->fd(); }

  // For whoever polls fd() himself: what to wait for; sends what is due, and takes in what is there; sends only. Never wait.
  short events() const;
  void advance() { exchange(0); }
  void flush() {
    if (!broken_) send_due();
  }

 private:
  friend class RpcCall;
  struct Callbacks;

  // Sends what is due and takes in what is there. Waits for one of both for timeout_ms (-1: as long
  // as it takes, 0: not at all), or until a signal was handled.
  void exchange(int64_t timeout_ms);
  void send_due();
  bool receive();  // false: nothing was there, or the connection is broken
  void fail();     // the connection is of no more use: every call ends

  std::unique_ptr<Wire> wire_;
  nghttp2_session* session_ = nullptr;
  Buffer in_;            // what one read takes
  std::string out_;      // frames that the wire had no room for
  size_t out_sent_ = 0;  // how much of it is gone
  bool broken_ = false;
  std::unordered_map<int32_t, RpcCall*> calls_;  // those that have not ended, by stream
};

class RpcCall {
 public:
  // `path`: "/package.Service/Method". `channel` must outlive the call. After timeout_ms,
  // if it is more than 0, the call ends with DeadlineExceeded.
  RpcCall(RpcChannel& channel, std::string_view path, int64_t timeout_ms = 0);
  ~RpcCall();  // cancels a call that has not ended
  RpcCall(const RpcCall&) = delete;
  RpcCall& operator=(const RpcCall&) = delete;

  // Sends one message. Waits while more than a few hundred kilobytes are on their way. False: the
  // call has ended.
  bool write(const google::protobuf::MessageLite& message);
  // After the last write. What is sent from here on is seen by the server with the next read.
  void writes_done();

  // The next message, waited for. False: the call has ended, finish() says how.
  bool read(google::protobuf::MessageLite& message);
  // The next message if it has arrived; never waits.
  bool take(google::protobuf::MessageLite& message);
  // The next message of what the channel has taken in; for many calls of one channel.
  bool take_arrived(google::protobuf::MessageLite& message);
  // Whether write() of so many bytes does not wait.
  bool has_room(size_t bytes) const;
  // Readable when take() or ended() may have news, once both had none.
  int fd() const { return channel_.fd(); }

  // What to wait for on it: also for room where there is more to send.
  short events() const;

  // How the call ended, once take() has given out every message. Unavailable: the connection broke.
  // A refusal of the server carries its message, and its hint.
  std::optional<Status> ended() const;
  // The same, waited for; messages that were not read are dropped.
  Status finish();

 private:
  friend class RpcChannel;
  friend struct RpcChannel::Callbacks;

  bool has_message() const;
  void hand_back_window();
  void exchange();  // as the channel's, until this call's time is up
  void end(Status status);
  Status status_of_trailers(uint32_t http2_error) const;
  Error no_answer() const;

  RpcChannel& channel_;
  int32_t stream_ = -1;
  int64_t started_ms_;
  int64_t timeout_ms_;

  std::string out_;  // framed messages that nghttp2 has not taken yet
  size_t out_taken_ = 0;
  bool writes_done_ = false;
  bool starved_ = false;  // nghttp2 asked for more when there was nothing

  std::string in_;  // bytes of messages, the first from in_read_ on not read yet
  size_t in_read_ = 0;
  size_t unreturned_ = 0;  // bytes of the flow-control window that the server may not use again yet

  // From the answer's headers and trailers.
  std::string http_status_, grpc_status_, grpc_message_, grpc_details_;
  std::optional<Status> ended_;
};

}  // namespace dtrain::cli
