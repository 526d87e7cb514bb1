// What workers ask a server for.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/norm.h"
#include "engine/server/server.h"

namespace dtrain::engine {

using server::Frame;
using server::ServerOp;
using server::WaitFor;

namespace {

constexpr int64_t kStagedBlocks = 16;

std::span<const char> bytes_of(const float* values, size_t bytes) {
  return {reinterpret_cast<const char*>(values), bytes};
}

std::span<char> room_of(float* values, size_t bytes) {
  return {reinterpret_cast<char*>(values), bytes};
}

Error out_of_turn(const Frame& frame) {
  return {Code::InvalidArgument,
          fmt::format("a request of kind {} out of turn, or with {} bytes",
                      static_cast<int>(frame.op), frame.payload),
          ""};
}

}  // namespace

// What the worker has been dealt; nothing in sync, where all have a part of each step.
uint64_t Server::deal_of(const Link& link) {
  return sync_ || link.rank < 0 || !shard_->state().filled() ? 0 : shard_->state().deal(link.rank);
}

void Server::answer(Link& link, ServerOp op) {
  link.end_wait();
  link.answer(Frame{.op = op,
                    .flags = shard_->state().filled() ? server::kFilled : uint16_t{0},
                    .generation = shard_->state().generation(),
                    .updates = shard_->state().blocks() > 0 ? shard_->state().updates(0) : 0,
                    .deal = deal_of(link),
                    .loss = shard_->state().learned().loss,
                    .rows = shard_->state().learned().rows});
}

void Server::answer_data(Link& link, int arena) {
  link.end_wait();
  Frame frame{.op = ServerOp::Data,
              .generation = shard_->state().generation(),
              .sequence = sync_ ? step_->steps() : clocks_.clock(link.rank),
              .updates = shard_->state().blocks() > 0 ? shard_->state().updates(0) : 0,
              .deal = deal_of(link),
              .loss = shard_->state().learned().loss,
              .rows = shard_->state().learned().rows};
  if (const ShardState::Applied& applied = shard_->state().applied(); sync_ && applied.step == frame.sequence) {
    frame.gradient_scale = applied.gradient_scale;
    frame.samples = applied.samples;
  }
  link.answer(frame, bytes_of(shard_->state().arena(arena), shard_->bytes()));
}

void Server::answer_squares(Link& link) {
  link.end_wait();
  const std::vector<double>& squares = step_->squares();
  std::vector<char> bytes(squares.size() * sizeof(double));
  std::memcpy(bytes.data(), squares.data(), bytes.size());
  link.answer(Frame{.op = ServerOp::Squares,
                    .generation = shard_->state().generation(),
                    .sequence = step_->steps() + 1,
                    .samples = step_->samples()},
              std::move(bytes));
}

Status Server::begin(Link& link) {
  const Frame& in = link.in;
  if (in.op == ServerOp::Hello) {
    if (in.payload != sizeof(DataFacts) || link.rank >= 0 || link.wait != WaitFor::Nothing) return out_of_turn(in);
    link.sink = link.room_of_data();
    return ok();
  }
  if (link.rank < 0) return out_of_turn(in);
  if (!link.left) clocks_.put_back(link.rank);
  // A worker that waits sends nothing but that it lives.
  if (link.wait != WaitFor::Nothing && in.op != ServerOp::Heartbeat) return out_of_turn(in);
  const bool filling = in.op == ServerOp::Write || in.op == ServerOp::Ready;
  if (in.op != ServerOp::Heartbeat && in.op != ServerOp::Leave && in.op != ServerOp::Finish &&
      filling == shard_->state().filled()) {
    return out_of_turn(in);
  }
  if ((filling || in.op == ServerOp::Finish || in.op == ServerOp::GoOn) && link.rank != 0) return out_of_turn(in);
  const bool of_sync = in.op == ServerOp::Node || in.op == ServerOp::Apply || in.op == ServerOp::GoOn;
  if ((of_sync && !sync_) || (in.op == ServerOp::Push && sync_)) return out_of_turn(in);
  const bool carries = in.op == ServerOp::Push || in.op == ServerOp::Node || in.op == ServerOp::Write;
  if (in.payload != (carries ? shard_->bytes() : 0)) return out_of_turn(in);
  if (!std::isfinite(in.learning_rate) || !std::isfinite(in.gradient_scale) || !std::isfinite(in.loss)) {
    return Error{Code::InvalidArgument, "a learning rate, scale or loss that is not finite", ""};
  }

  if (in.op == ServerOp::Push) return begin_push(link);
  if (in.op == ServerOp::Node) return begin_node(link);
  if (in.op == ServerOp::Write || in.op == ServerOp::Read) {
    if (in.arena > static_cast<uint32_t>(kernel_.states())) return out_of_turn(in);
    link.sink = room_of(shard_->state().arena(static_cast<int>(in.arena)), shard_->bytes());
  }
  return ok();
}

Status Server::receive(Link& link) {
  if (link.in.op == ServerOp::Push) return receive_push(link);
  // Discarded: the same room again.
  if (link.sink.empty() && link.payload_left > 0)
    link.sink = room_of(discarded_.data(), discarded_.size() * sizeof(float));
  return ok();
}

Status Server::finish(Link& link) {
  const Frame& in = link.in;
  switch (in.op) {
    case ServerOp::Hello:
      return hello(link);
    case ServerOp::Ready:
      shard_->state().set_filled(in.updates, in.begun_at);
      answer(link, ServerOp::Ack);  // first: worker 0 begins where the training does, and is dealt what is first
      admit();
      return ok();
    case ServerOp::Read:
      answer_data(link, static_cast<int>(in.arena));
      return ok();
    case ServerOp::Pull:
      clocks_.advance(link.rank, in.sequence);  // else it might wait for itself, being further at another server
      if ((in.flags & server::kEnds) != 0) {
        forget(link);
        wait(link, WaitFor::End);
        look_at_end(link.since);
        return ok();
      }
      wait(link, WaitFor::Gate);
      look_at_gate();
      return ok();
    case ServerOp::Push:
      return finish_push(link);
    case ServerOp::Node:
      return finish_node(link);
    case ServerOp::Apply:
      return apply(link);
    case ServerOp::GoOn:
      step_->let_go();
      look_at_step();
      answer(link, ServerOp::Ack);
      return ok();
    case ServerOp::Write:
      answer(link, ServerOp::Ack);
      return ok();
    case ServerOp::Leave:
      forget(link);
      answer(link, ServerOp::Ack);
      look_at_end(Deadline::Clock::now());
      return ok();
    case ServerOp::Finish:
      shard_->state().set_finished();
      answer(link, ServerOp::Ack);
      return ok();
    case ServerOp::Heartbeat:  // the rest no worker sends
    case ServerOp::Welcome:
    case ServerOp::Data:
    case ServerOp::Squares:
    case ServerOp::Ack:
    case ServerOp::Wait:
    case ServerOp::Failure:
      return ok();
  }
  return ok();
}

Status Server::begin_push(Link& link) {
  if (link.in.sequence == 0) return out_of_turn(link.in);
  link.staging.resize(kStagedBlocks * kBlock);
  link.applied = link.filled = 0;
  link.block = 0;
  link.sink = room_of(link.staging.data(), link.staging.size() * sizeof(float));
  return ok();
}

// Applies each block that is there, and makes room for more.
Status Server::receive_push(Link& link) {
  char* const staging = reinterpret_cast<char*>(link.staging.data());
  const size_t room = link.staging.size() * sizeof(float);
  link.filled = static_cast<size_t>(link.sink.data() - staging);
  const Frame& in = link.in;
  const server::Rates rates{in.learning_rate, in.gradient_scale};
  const int64_t next = shard_->next_block(link.rank, in.sequence);
  while (link.block < shard_->state().blocks()) {
    const auto bytes =
        static_cast<size_t>(shard_->state().block(link.block).size()) * sizeof(float);
    if (link.filled - link.applied < bytes) break;
    if (link.block >= next) {
      const auto* grads = reinterpret_cast<const float*>(staging + link.applied);
      if (Status status = shard_->check(link.block, grads); !status.ok()) {
        return std::move(status).error().with_context(
            fmt::format("push {} of {}", in.sequence, name(static_cast<size_t>(link.rank))));
      }
      shard_->apply(link.rank, in.sequence, link.block, grads, rates);
    }
    link.applied += bytes;
    ++link.block;
  }
  if (link.applied == link.filled) {
    link.applied = link.filled = 0;
  } else if (link.filled == room) {
    std::memmove(staging, staging + link.applied, link.filled - link.applied);
    link.filled -= link.applied;
    link.applied = 0;
  }
  link.sink = {staging + link.filled, room - link.filled};
  return ok();
}

Status Server::finish_push(Link& link) {
  clocks_.advance(link.rank, link.in.sequence);
  if (shard_->state().deal_next(link.rank, link.in.deal)) {
    shard_->state().add_learned({link.in.loss, link.in.rows});
  }
  if ((link.in.flags & server::kWantsParams) != 0) {
    wait(link, WaitFor::Gate);
  } else {
    answer(link, ServerOp::Ack);
  }
  look_at_gate();
  return ok();
}

Status Server::begin_node(Link& link) {
  const Frame& in = link.in;
  if (in.sequence == 0) return out_of_turn(in);
  // Of a step that is summed already, here or with the sums that this process lost.
  if (in.sequence <= step_->steps() || (in.sequence == step_->steps() + 1 && step_->summed())) {
    discarded_.resize(kStagedBlocks * kBlock);
    link.sink = room_of(discarded_.data(), discarded_.size() * sizeof(float));
    return ok();
  }
  TRY(float* const values, step_->node(link.rank, in.sequence, in.leaf_begin, in.leaf_end));
  link.sink = room_of(values, shard_->bytes());
  return ok();
}

Status Server::finish_node(Link& link) {
  const Frame& in = link.in;
  if ((in.flags & server::kLast) == 0) return ok();
  if (in.sequence > step_->steps() && !(in.sequence == step_->steps() + 1 && step_->summed())) {
    step_->complete(link.rank, {in.loss, in.samples}, in.learning_rate, (in.flags & server::kNeedsFirst) != 0);
  }
  wait(link, WaitFor::Step);
  look_at_step();
  return ok();
}

Status Server::apply(Link& link) {
  const uint64_t steps = step_->steps();
  if (link.in.sequence > steps) {
    if (link.in.sequence != steps + 1 || !step_->summed() || link.in.gradient_scale == 0) return out_of_turn(link.in);
    step_->apply(link.in.gradient_scale);
  }
  wait(link, WaitFor::Step);  // of which it is the end
  look_at_step();
  return ok();
}

}  // namespace dtrain::engine
