// What workers and parameter servers send each other: a header of 144 bytes, little endian, and a
// payload of so many bytes as it says. A worker asks, the server answers in order.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>

#include "engine/comm/socket.h"
#include "schema/result.h"

namespace dtrain::engine::server {

enum class ServerOp : uint8_t {
  // A worker's.
  Hello = 1,  // layout, attempt, threads, payload: DataFacts; kMaster -> Welcome
  Write,      // arena, payload: one arena of the shard, before Ready -> Ack
  Ready,      // updates: that the written state has seen, begun_at -> Ack
  Read,       // arena -> Data
  Pull,       // sequence: of the worker's last push, for the gate of ssp; kEnds: once the others have left -> Data
  Push,       // sequence, rates, deal, loss, rows, payload: a gradient; kWantsParams -> Data, else Ack
  Node,       // sequence, leaves, samples, rates, loss, payload: a node of a step's tree; kLast, kNeedsFirst: the step
              // is not done without worker 0 -> Squares when the norm is asked for, Data when the step is applied,
              // else no answer
  Apply,      // sequence, gradient_scale -> Data
  GoOn,       // worker 0 has read what it saves: the next step may be done without it -> Ack
  Heartbeat,  // no answer
  Leave,      // the worker is done -> Ack
  Finish,     // the experiment is done: no state is needed once the server ends -> Ack
  // A server's.
  Welcome,  // generation, sequence: the worker's last, updates, begun_at, deal; kFilled
  Data,     // updates, deal, loss, rows, sequence: how far the worker counts as being, payload: the shard's elements of
            // an arena;
            // gradient_scale, samples: with which the last step was applied, 0: the mean
  Squares,  // samples, payload: the sums of squares of its blocks
  Ack,      // updates, deal, loss, rows
  Wait,     // the answer takes longer, for a reason
  Failure,  // code, payload: text
};

inline constexpr uint16_t kMaster = 1, kFilled = 2, kWantsParams = 4, kLast = 8, kNeedsFirst = 16, kEnds = 32;

struct Frame {
  uint32_t magic = kMagic;
  uint8_t version = kVersion;
  ServerOp op = ServerOp::Heartbeat;
  uint16_t flags = 0;
  uint64_t job = 0;         // of the experiment and its configuration: server_job()
  uint64_t generation = 0;  // which start of worker 0; 0: not known yet
  uint64_t sequence = 0;    // of a worker's pushes, from 1
  uint64_t updates = 0;     // that were applied
  uint64_t payload = 0;     // bytes
  uint32_t rank = 0;        // of the worker
  uint32_t arena = 0;       // 0: parameters, 1 and 2: optimiser state
  double learning_rate = 0;
  double gradient_scale = 0;
  uint64_t samples = 0;
  uint16_t leaf_begin = 0, leaf_end = 0;
  uint32_t code = 0;      // of a Failure
  uint64_t attempt = 0;   // of the worker
  uint64_t threads = 0;   // of the worker
  uint64_t begun_at = 0;  // the step that worker 0 began at
  uint64_t deal = 0;      // async, ssp: what the worker has been dealt; in a Push what it is of
  double loss = 0;        // summed over rows: of what is sent; of answers, all that the parameters have learned from
  uint64_t rows = 0;
  uint64_t layout = 0;  // Layout::hash()

  static constexpr uint32_t kMagic = 0x53507464;  // "dtPS"
  static constexpr uint8_t kVersion = 5;
};
static_assert(sizeof(Frame) == 144 && std::endian::native == std::endian::little);

inline constexpr uint64_t kLongestText = 4096;  // of a Failure

// What a worker of another job is told.
Error other_job();

// InvalidArgument unless it is a frame that a worker or, `from_server`, a server sends.
Status check(const Frame& frame, bool from_server);

// Lets the kernel notice within seconds that a silent peer's host is gone.
void watch_peer(const Socket& socket);

}  // namespace dtrain::engine::server
