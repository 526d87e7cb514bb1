#include "engine/server/lane.h"

#include <algorithm>
#include <array>

#include "engine/norm.h"
#include "engine/server/doors.h"

namespace dtrain::engine::server {
namespace {

Error strange_answer(const std::string& name) {
  return {Code::DataLoss, name + " gave an answer that does not fit the question",
          "run the same dtrain-engine on all hosts"};
}

}  // namespace

Lane::Lane(std::string address, std::string name, Range range)
    : address_(std::move(address)), name_(std::move(name)), range_(range) {}

Status Lane::connect(const Introduction& introduction, Deadline& deadline) {
  socket_.close();
  auto connected = Socket::connect(address_, deadline);
  if (!connected.ok()) return std::move(connected).error().with_context("connect to " + name_);
  socket_ = std::move(connected).value();
  if (introduction.local_sockets) {
    auto local = Socket::connect(unix_address(address_, introduction.job), Deadline::after(0));
    if (local.ok()) socket_ = std::move(local).value();
  }
  socket_.set_name(name_);
  watch_peer(socket_);

  const bool first = introduction.rank == 0;
  const Frame hello{.op = ServerOp::Hello,
                    .flags = first ? kMaster : uint16_t{0},
                    .job = introduction.job,
                    .generation = introduction.generation,
                    .payload = sizeof(introduction.data),
                    .rank = static_cast<uint32_t>(introduction.rank),
                    .attempt = introduction.attempt,
                    .threads = introduction.threads,
                    .layout = introduction.layout};
  const std::array<iovec, 2> parts{{{const_cast<Frame*>(&hello), sizeof(hello)},
                                    {const_cast<DataFacts*>(&introduction.data), sizeof(introduction.data)}}};
  TRY(socket_.write(parts, deadline));
  while (true) {
    TRY(socket_.read(&welcome_, sizeof(welcome_), deadline));
    TRY(check(welcome_, true));
    if (welcome_.op != ServerOp::Wait) break;
    deadline = Deadline::after(deadline.seconds());
  }
  if (welcome_.op == ServerOp::Failure && welcome_.payload <= kLongestText) {
    text_.resize(welcome_.payload);
    TRY(socket_.read(text_.data(), text_.size(), deadline));
    return Error{static_cast<Code>(welcome_.code), fmt::format("{}: {}", name_, text_), ""};
  }
  if (welcome_.op != ServerOp::Welcome || welcome_.payload != 0) return strange_answer(name_);
  if (!done()) start_at(0);
  return ok();
}

void Lane::ask(std::vector<Request> requests, size_t first) {
  requests_ = std::move(requests);
  if (first == 0) has_squares_ = false;
  start_at(first);
}

void Lane::start_at(size_t first) {
  next_ = next_answer_ = first;
  sent_ = received_ = 0;
  while (!done() && !requests_[next_answer_].answered) ++next_answer_;
}

Status Lane::advance(bool readable, bool writable) {
  // Answers first: a refusal comes while there is still something to send.
  if (readable) TRY(read());
  if (writable) TRY(write());
  return ok();
}

Status Lane::write() {
  while (writes()) {
    Request& request = requests_[next_];
    const size_t size = sizeof(Frame) + request.frame.payload;
    std::array<iovec, 2> parts{};
    size_t count = 0;
    if (sent_ < sizeof(Frame)) {
      parts[count++] = {reinterpret_cast<char*>(&request.frame) + sent_, sizeof(Frame) - sent_};
    }
    const size_t bytes_sent = sent_ < sizeof(Frame) ? 0 : sent_ - sizeof(Frame);
    if (bytes_sent < request.frame.payload) {
      parts[count++] = {static_cast<char*>(const_cast<void*>(request.payload)) + bytes_sent,
                        request.frame.payload - bytes_sent};
    }
    TRY(const size_t sent, socket_.write_some(std::span(parts.data(), count)));
    if (sent == 0) return ok();
    has_sent_ = true;
    sent_ += sent;
    if (sent_ == size) {
      ++next_;
      sent_ = 0;
    }
  }
  return ok();
}

Status Lane::read() {
  while (!done()) {
    size_t count = 0;
    if (received_ < sizeof(Frame)) {
      TRY(count, socket_.read_some(reinterpret_cast<char*>(&incoming_) + received_,
                                   sizeof(Frame) - received_));
    } else {
      const size_t so_far = received_ - sizeof(Frame);
      TRY(count, socket_.read_some(target_ + so_far, incoming_.payload - so_far));
    }
    if (count == 0) return ok();
    has_received_ = true;
    received_ += count;
    if (received_ == sizeof(Frame)) TRY(begin_answer());
    if (received_ >= sizeof(Frame) && received_ == sizeof(Frame) + incoming_.payload) {
      received_ = 0;
      if (incoming_.op == ServerOp::Failure) {
        return Error{static_cast<Code>(incoming_.code), fmt::format("{}: {}", name_, text_), ""};
      }
      if (incoming_.op != ServerOp::Wait) finish_answer();
    }
  }
  return ok();
}

// Where the answer's payload goes, if it is as long as it must be.
Status Lane::begin_answer() {
  TRY(check(incoming_, true));
  uint64_t expected = 0;
  if (incoming_.op == ServerOp::Data && data_ != nullptr) {
    expected = static_cast<uint64_t>(range_.size()) * sizeof(float);
    target_ = reinterpret_cast<char*>(data_ + range_.begin);
  } else if (incoming_.op == ServerOp::Squares) {
    squares_.resize(static_cast<size_t>(blocks_of(range_.size())));
    expected = squares_.size() * sizeof(double);
    target_ = reinterpret_cast<char*>(squares_.data());
  } else if (incoming_.op == ServerOp::Failure && incoming_.payload <= kLongestText) {
    expected = incoming_.payload;
    text_.resize(expected);
    target_ = text_.data();
  } else if (incoming_.op != ServerOp::Ack && incoming_.op != ServerOp::Wait) {
    return strange_answer(name_);
  }
  if (incoming_.payload != expected) return strange_answer(name_);
  return ok();
}

void Lane::finish_answer() {
  answer_ = incoming_;
  if (incoming_.op == ServerOp::Squares) {
    has_squares_ = true;
    samples_ = incoming_.samples;
  }
  if (incoming_.op == ServerOp::Data) {
    next_ = next_answer_ = requests_.size();
    return;
  }
  do {
    ++next_answer_;
  } while (!done() && !requests_[next_answer_].answered);
}

Status Lane::beat(const Introduction& introduction) {
  const Frame frame{.op = ServerOp::Heartbeat,
                    .generation = introduction.generation,
                    .rank = static_cast<uint32_t>(introduction.rank)};
  const iovec part{const_cast<Frame*>(&frame), sizeof(frame)};
  TRY(const size_t sent, socket_.write_some(std::span(&part, 1)));
  // A part of a frame would be out of step; the next call connects again.
  if (sent != 0 && sent != sizeof(frame)) socket_.close();
  return ok();
}

}  // namespace dtrain::engine::server
