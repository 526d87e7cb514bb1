#include "cli/rpc.h"

#include <nghttp2/nghttp2.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <utility>
#include <vector>

#include "schema/base64.h"
#include "schema/clock.h"

namespace dtrain::cli {

namespace {

// How far a server may send ahead of the reader: what bounds the memory of a stalled follower.
constexpr uint32_t kStreamWindowBytes = 1u << 20;
constexpr int32_t kConnectionWindowBytes = 1 << 30;  // calls don't hold up each other
constexpr uint32_t kFrameMaxBytes = 1u << 20;
constexpr size_t kSendAheadBytes = 256u << 10;
constexpr size_t kReceiveBytes = 256u << 10;

// A list of 200,000 members is a large answer.
constexpr size_t kMessageMaxBytes = 256u << 20;

// Before each message: a byte that says whether it is compressed, and its length, big-endian.
constexpr size_t kPrefixBytes = 5;

size_t length_in(const char* prefix) {
  const auto* bytes = reinterpret_cast<const unsigned char*>(prefix);
  return size_t{bytes[1]} << 24 | size_t{bytes[2]} << 16 | size_t{bytes[3]} << 8 | bytes[4];
}

Error broken_connection() {
  return {Code::Unavailable, "the connection to the daemon broke",
          "dtrain daemon status tells whether it runs; training is not affected"};
}

// gRPC's own table of what an RST_STREAM without a status stands for.
Code code_of_reset(uint32_t http2_error) {
  switch (http2_error) {
    case NGHTTP2_REFUSED_STREAM:
      return Code::Unavailable;
    case NGHTTP2_CANCEL:
      return Code::Cancelled;
    case NGHTTP2_ENHANCE_YOUR_CALM:
      return Code::ResourceExhausted;
    case NGHTTP2_INADEQUATE_SECURITY:
      return Code::PermissionDenied;
    default:
      return Code::Internal;
  }
}

std::string percent_decoded(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    unsigned value = 0;
    const bool escaped =
        text[i] == '%' && i + 2 < text.size() &&
        std::from_chars(&text[i + 1], &text[i + 1] + 2, value, 16).ptr == &text[i + 1] + 2;
    decoded += escaped ? static_cast<char>(value) : text[i];
    if (escaped) i += 2;
  }
  return decoded;
}

nghttp2_nv header(std::string_view name, std::string_view value) {
  // nghttp2 copies both and changes neither.
  const auto bytes = [](std::string_view text) {
    return reinterpret_cast<uint8_t*>(const_cast<char*>(text.data()));
  };
  return {bytes(name), bytes(value), name.size(), value.size(), NGHTTP2_NV_FLAG_NONE};
}

}  // namespace

// What nghttp2 calls while it reads a frame or makes one.
struct RpcChannel::Callbacks {
  static RpcCall* call_of(nghttp2_session* session, int32_t stream) {
    return static_cast<RpcCall*>(nghttp2_session_get_stream_user_data(session, stream));
  }

  static int on_header(nghttp2_session* session, const nghttp2_frame* frame, const uint8_t* name,
                       size_t name_size, const uint8_t* value, size_t value_size, uint8_t, void*) {
    RpcCall* call = call_of(session, frame->hd.stream_id);
    if (call == nullptr) return 0;
    const std::string_view key(reinterpret_cast<const char*>(name), name_size);
    const std::string_view text(reinterpret_cast<const char*>(value), value_size);
    if (key == ":status") call->http_status_ = text;
    if (key == "grpc-status") call->grpc_status_ = text;
    if (key == "grpc-message") call->grpc_message_ = text;
    if (key == "grpc-status-details-bin") call->grpc_details_ = text;
    return 0;
  }

  static int on_data(nghttp2_session* session, uint8_t, int32_t stream, const uint8_t* data,
                     size_t size, void*) {
    nghttp2_session_consume_connection(session, size);
    RpcCall* call = call_of(session, stream);
    if (call == nullptr) return 0;
    call->in_.append(reinterpret_cast<const char*>(data), size);
    call->unreturned_ += size;
    call->hand_back_window();
    return 0;
  }

  static int on_close(nghttp2_session* session, int32_t stream, uint32_t error, void*) {
    RpcCall* call = call_of(session, stream);
    if (call != nullptr) call->end(call->status_of_trailers(error));
    return 0;
  }

  // The server's last word on a call may come before the call has said its own.
  static int on_frame(nghttp2_session* session, const nghttp2_frame* frame, void*) {
    if ((frame->hd.flags & NGHTTP2_FLAG_END_STREAM) == 0) return 0;
    if (frame->hd.type != NGHTTP2_HEADERS && frame->hd.type != NGHTTP2_DATA) return 0;
    RpcCall* call = call_of(session, frame->hd.stream_id);
    if (call != nullptr) call->end(call->status_of_trailers(NGHTTP2_NO_ERROR));
    return 0;
  }

  static ssize_t on_send_data(nghttp2_session* session, int32_t stream, uint8_t* buffer,
                              size_t room, uint32_t* flags, nghttp2_data_source*, void*) {
    RpcCall* call = call_of(session, stream);
    if (call == nullptr) return NGHTTP2_ERR_TEMPORAL_CALLBACK_FAILURE;
    const size_t size = std::min(room, call->out_.size() - call->out_taken_);
    std::memcpy(buffer, call->out_.data() + call->out_taken_, size);
    call->out_taken_ += size;
    if (call->out_taken_ == call->out_.size()) {
      call->out_.clear();
      call->out_taken_ = 0;
      if (call->writes_done_) {
        *flags |= NGHTTP2_DATA_FLAG_EOF;
      } else if (size == 0) {
        call->starved_ = true;
        return NGHTTP2_ERR_DEFERRED;
      }
    }
    return static_cast<ssize_t>(size);
  }
};

RpcChannel::RpcChannel(std::unique_ptr<Wire> wire) : wire_(std::move(wire)), in_(kReceiveBytes) {
  nghttp2_session_callbacks* callbacks = nullptr;
  nghttp2_option* option = nullptr;
  INVARIANT(nghttp2_session_callbacks_new(&callbacks) == 0, "memory for nghttp2's callbacks");
  INVARIANT(nghttp2_option_new(&option) == 0, "memory for nghttp2's options");
  nghttp2_session_callbacks_set_on_header_callback(callbacks, Callbacks::on_header);
  nghttp2_session_callbacks_set_on_data_chunk_recv_callback(callbacks, Callbacks::on_data);
  nghttp2_session_callbacks_set_on_frame_recv_callback(callbacks, Callbacks::on_frame);
  nghttp2_session_callbacks_set_on_stream_close_callback(callbacks, Callbacks::on_close);
  nghttp2_option_set_no_auto_window_update(option, 1);
  const int made = nghttp2_session_client_new2(&session_, callbacks, this, option);
  nghttp2_option_del(option);
  nghttp2_session_callbacks_del(callbacks);
  INVARIANT(made == 0, "memory for an HTTP/2 session");
  const std::array<nghttp2_settings_entry, 3> settings = {{
      {NGHTTP2_SETTINGS_ENABLE_PUSH, 0},
      {NGHTTP2_SETTINGS_INITIAL_WINDOW_SIZE, kStreamWindowBytes},
      {NGHTTP2_SETTINGS_MAX_FRAME_SIZE, kFrameMaxBytes},
  }};
  nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, settings.data(), settings.size());
  nghttp2_session_set_local_window_size(session_, NGHTTP2_FLAG_NONE, 0, kConnectionWindowBytes);
}

RpcChannel::~RpcChannel() {
  INVARIANT(calls_.empty(), "a channel outlives its calls");
  nghttp2_session_del(session_);
}

void RpcChannel::exchange(int64_t timeout_ms) {
  if (broken_) return;
  send_due();
  if (broken_) return;
  pollfd event = {fd(), events(), 0};
  if (poll(&event, 1, static_cast<int>(timeout_ms)) <= 0) return;
  if ((event.revents & ~POLLOUT) != 0) receive();
  if (!broken_) send_due();
}

short RpcChannel::events() const {
  return static_cast<short>(out_.empty() ? POLLIN : POLLIN | POLLOUT);
}

void RpcChannel::send_due() {
  while (true) {
    while (out_.size() - out_sent_ < kSendAheadBytes) {
      const uint8_t* frame = nullptr;
      const ssize_t size = nghttp2_session_mem_send(session_, &frame);
      if (size < 0) return fail();
      if (size == 0) break;
      out_.append(reinterpret_cast<const char*>(frame), static_cast<size_t>(size));
    }
    if (out_.empty()) return;
    const ssize_t sent = wire_->send(out_.data() + out_sent_, out_.size() - out_sent_);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EAGAIN) return;
    if (sent < 0) {
      // What the server said before it went is still there to be read: that it ended, and how.
      while (receive()) {
      }
      return fail();
    }
    out_sent_ += static_cast<size_t>(sent);
    if (out_sent_ == out_.size()) {
      out_.clear();
      out_sent_ = 0;
    }
  }
}

bool RpcChannel::receive() {
  const ssize_t size = wire_->receive(in_.data(), in_.size());
  if (size < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  const auto* bytes = reinterpret_cast<const uint8_t*>(in_.data());
  const bool good =
      size > 0 && nghttp2_session_mem_recv(session_, bytes, static_cast<size_t>(size)) >= 0;
  if (!good) fail();
  return good;
}

void RpcChannel::fail() {
  broken_ = true;
  while (!calls_.empty()) calls_.begin()->second->end(broken_connection());
}

RpcCall::RpcCall(RpcChannel& channel, std::string_view path, int64_t timeout_ms)
    : channel_(channel), started_ms_(boottime_ms()), timeout_ms_(timeout_ms) {
  if (channel_.broken_) {
    ended_ = broken_connection();
    return;
  }
  std::vector<nghttp2_nv> headers = {
      header(":method", "POST"),
      header(":scheme", "http"),
      header(":path", path),
      header(":authority", "localhost"),
      header("te", "trailers"),
      header("content-type", "application/grpc"),
      header("user-agent", "dtrain/" DTRAIN_VERSION),
  };
  std::string timeout;
  if (timeout_ms > 0) {
    timeout = fmt::format("{}m", timeout_ms);
    headers.push_back(header("grpc-timeout", timeout));
  }
  nghttp2_data_provider body = {};
  body.read_callback = RpcChannel::Callbacks::on_send_data;
  stream_ = nghttp2_submit_request(channel_.session_, nullptr, headers.data(), headers.size(),
                                   &body, this);
  if (stream_ < 0) {  // the server said that it takes no more calls on this connection
    ended_ = broken_connection();
    return;
  }
  channel_.calls_.emplace(stream_, this);
}

RpcCall::~RpcCall() {
  if (ended_) return;
  end(Error{Code::Cancelled, "", ""});
  channel_.send_due();
}

bool RpcCall::write(const google::protobuf::MessageLite& message) {
  if (ended_) return false;
  if (out_taken_ >= kSendAheadBytes) out_.erase(0, std::exchange(out_taken_, 0));   // else of a steady stream nothing ever goes
  const size_t size = message.ByteSizeLong();
  const size_t at = out_.size();
  out_.resize(at + kPrefixBytes + size);
  char* prefix = out_.data() + at;
  prefix[0] = 0;
  for (size_t i = 0; i < 4; ++i) prefix[1 + i] = static_cast<char>(size >> (24 - 8 * i));
  message.SerializeWithCachedSizesToArray(reinterpret_cast<uint8_t*>(prefix + kPrefixBytes));
  if (std::exchange(starved_, false)) nghttp2_session_resume_data(channel_.session_, stream_);
  if (out_.size() - out_taken_ >= kSendAheadBytes) channel_.send_due();
  while (!ended_ && out_.size() - out_taken_ >= kSendAheadBytes) exchange();
  return !ended_;
}

void RpcCall::writes_done() {
  if (ended_) return;
  writes_done_ = true;
  if (std::exchange(starved_, false)) nghttp2_session_resume_data(channel_.session_, stream_);
}

bool RpcCall::read(google::protobuf::MessageLite& message) {
  while (!take(message)) {
    if (ended_) return false;
    exchange();
  }
  return true;
}

bool RpcCall::take(google::protobuf::MessageLite& message) {
  if (!has_message() && !ended_) channel_.exchange(0);
  return take_arrived(message);
}

bool RpcCall::take_arrived(google::protobuf::MessageLite& message) {
  if (!has_message()) return false;
  const char* prefix = in_.data() + in_read_;
  const size_t size = length_in(prefix);
  const bool good =
      prefix[0] == 0 && message.ParseFromArray(prefix + kPrefixBytes, static_cast<int>(size));
  in_read_ += kPrefixBytes + size;
  if (in_read_ == in_.size() || in_read_ >= kStreamWindowBytes) {
    in_.erase(0, in_read_);
    in_read_ = 0;
  }
  if (!good) {
    end(Error{Code::Internal, "the daemon sent a message that can't be read", ""});
    return false;
  }
  if (!ended_) hand_back_window();
  return true;
}

bool RpcCall::has_room(size_t bytes) const { return out_.size() - out_taken_ + bytes + kPrefixBytes < kSendAheadBytes; }

short RpcCall::events() const {
  return channel_.events();
}

std::optional<Status> RpcCall::ended() const {
  return has_message() ? std::nullopt : ended_;
}

Status RpcCall::finish() {
  while (!ended_) {
    in_.clear();
    in_read_ = 0;
    hand_back_window();
    exchange();
  }
  return *ended_;
}

bool RpcCall::has_message() const {
  const size_t here = in_.size() - in_read_;
  return here >= kPrefixBytes && here - kPrefixBytes >= length_in(in_.data() + in_read_);
}

// The server may send on as long as no whole message waits to be read: then as much as it likes,
// for a message may be larger than the window.
void RpcCall::hand_back_window() {
  if (unreturned_ == 0 || has_message()) return;
  const size_t here = in_.size() - in_read_;
  if (here >= kPrefixBytes && length_in(in_.data() + in_read_) > kMessageMaxBytes) {
    return end(Error{Code::ResourceExhausted, "the daemon's answer is too large", ""});
  }
  nghttp2_session_consume_stream(channel_.session_, stream_, unreturned_);
  unreturned_ = 0;
}

void RpcCall::exchange() {
  int64_t wait_ms = -1;
  if (timeout_ms_ > 0) {
    wait_ms = started_ms_ + timeout_ms_ - boottime_ms();
    if (wait_ms <= 0) {
      return end(no_answer());
    }
  }
  channel_.exchange(wait_ms);
}

Error RpcCall::no_answer() const {
  return {Code::DeadlineExceeded,
          fmt::format("the daemon did not answer within {} s", timeout_ms_ / 1000),
          "dtrain daemon status tells more; training is not affected"};
}

void RpcCall::end(Status status) {
  if (ended_) return;
  ended_ = std::move(status);
  channel_.calls_.erase(stream_);
  // Nothing, when the stream has closed already.
  nghttp2_session_set_stream_user_data(channel_.session_, stream_, nullptr);
  nghttp2_submit_rst_stream(channel_.session_, NGHTTP2_FLAG_NONE, stream_, NGHTTP2_CANCEL);
}

Status RpcCall::status_of_trailers(uint32_t http2_error) const {
  int code = 0;
  const char* end = grpc_status_.data() + grpc_status_.size();
  if (grpc_status_.empty() || std::from_chars(grpc_status_.data(), end, code).ptr != end) {
    if (http2_error == NGHTTP2_NO_ERROR && http_status_ != "200") {
      return Error{Code::Internal, fmt::format("the daemon answered with HTTP {}", http_status_),
                   ""};
    }
    const Code reset = code_of_reset(http2_error);
    if (reset == Code::Unavailable) return broken_connection();
    return Error{reset, "the daemon broke off the call", ""};
  }
  if (code == 0) return ok();
  if (code == static_cast<int>(Code::Unavailable)) return broken_connection();
  // Its clock may be the faster one.
  if (code == static_cast<int>(Code::DeadlineExceeded) && timeout_ms_ > 0) return no_answer();
  // The rest are Code's own values, but for three that the daemon never sends.
  constexpr int kUnknown = 2, kOutOfRange = 11, kUnauthenticated = 16;
  const bool known = code > 0 && code < kUnauthenticated && code != kUnknown && code != kOutOfRange;
  return Error{known ? static_cast<Code>(code) : Code::Internal, percent_decoded(grpc_message_),
               base64_decoded(grpc_details_).value_or("")};
}

}  // namespace dtrain::cli
