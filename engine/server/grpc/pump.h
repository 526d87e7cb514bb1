// Bytes from a socket into a gRPC stream and back, until either ends.
#pragma once

#include <sys/socket.h>

#include <string>

#include "engine/comm/socket.h"
#include "engine/server/grpc/parameter_service.pb.h"

namespace dtrain::engine {

inline constexpr size_t kChunk = 1 << 20;
// A pump has no deadline of its own: those whose bytes these are do.
inline constexpr double kForever_seconds = 1e7;

// Into the stream until the socket's end, of which the other side is told by an empty chunk.
template <typename Stream>
void pump_out(Socket& socket, Stream& stream) {
  Chunk chunk;
  std::string& bytes = *chunk.mutable_bytes();
  while (true) {
    bytes.resize(kChunk);
    if (!socket.wait_readable(Deadline::after(kForever_seconds)).ok()) break;
    const auto count = socket.read_some(bytes.data(), bytes.size());
    if (!count.ok()) break;
    bytes.resize(*count);
    if (*count > 0 && !stream.Write(chunk)) return;
  }
  stream.Write(Chunk());
}

// Into the socket until the stream's end, or its sender's.
template <typename Stream>
void pump_in(Stream& stream, Socket& socket) {
  Chunk chunk;
  while (stream.Read(&chunk) && !chunk.bytes().empty()) {
    const std::string& bytes = chunk.bytes();
    if (!socket.write(bytes.data(), bytes.size(), Deadline::after(kForever_seconds)).ok()) break;
  }
}

}  // namespace dtrain::engine
