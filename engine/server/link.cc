#include "engine/server/link.h"

#include <sys/socket.h>

#include <algorithm>
#include <array>

namespace dtrain::engine::server {

Result<size_t> Link::read() {
  if (!has_header()) {
    TRY(const size_t count, socket.read_some(reinterpret_cast<char*>(&in) + header_read_,
                                             sizeof(Frame) - header_read_));
    header_read_ += count;
    return count;
  }
  TRY(const size_t count,
      socket.read_some(sink.data(), std::min<size_t>(sink.size(), payload_left)));
  sink = sink.subspan(count);
  payload_left -= count;
  if (count > 0) moved = std::chrono::steady_clock::now();
  return count;
}

void Link::answer(Frame frame, std::span<const char> bytes) {
  frame.payload = bytes.size();
  answers_.push_back({frame, {}, bytes, 0});
}

void Link::answer(Frame frame, std::vector<char> bytes) {
  frame.payload = bytes.size();
  answers_.push_back({frame, std::move(bytes), {}, 0});
  answers_.back().bytes = answers_.back().own;
}

void Link::refuse(const Error& error) {
  if (closing) return;
  const std::string text = error.message.substr(0, kLongestText);
  answer(Frame{.op = ServerOp::Failure, .code = static_cast<uint32_t>(error.code)},
         std::vector<char>(text.begin(), text.end()));
  wait = WaitFor::Nothing;
  closing = true;
  since = std::chrono::steady_clock::now();
}

Status Link::drain() {
  std::array<char, 1 << 16> room{};
  while (true) {
    TRY(const size_t count, socket.read_some(room.data(), room.size()));
    if (count == 0) return ok();
  }
}

Status Link::flush() {
  while (!answers_.empty()) {
    Answer& next = answers_.front();
    std::array<iovec, 2> parts{};
    size_t count = 0;
    if (next.sent < sizeof(Frame)) {
      parts[count++] = {reinterpret_cast<char*>(&next.frame) + next.sent,
                        sizeof(Frame) - next.sent};
    }
    const size_t bytes_sent = next.sent < sizeof(Frame) ? 0 : next.sent - sizeof(Frame);
    if (bytes_sent < next.bytes.size()) {
      parts[count++] = {const_cast<char*>(next.bytes.data()) + bytes_sent,
                        next.bytes.size() - bytes_sent};
    }
    TRY(const size_t sent, socket.write_some(std::span(parts.data(), count)));
    if (sent == 0) return ok();
    next.sent += sent;
    if (next.sent > sizeof(Frame)) moved = std::chrono::steady_clock::now();
    if (next.sent == sizeof(Frame) + next.bytes.size()) answers_.pop_front();
  }
  if (closing) ::shutdown(socket.fd(), SHUT_WR);
  return ok();
}

}  // namespace dtrain::engine::server
