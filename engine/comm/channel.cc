#include "engine/comm/channel.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace dtrain::engine {
namespace {

// So that one end copies in while the other copies out.
constexpr uint32_t kMostAtOnce = kRingElements / 4;
constexpr int kSlice_ms = 50;

}  // namespace

Result<Channel> Channel::open(Team& team, int me, int other, Deadline deadline, int line) {
  Channel channel(team, me, other);
  if (team.gang().participant(other).host != team.gang().host()) {
    auto socket = team.gang().connect_channel(me, other, deadline, line);
    if (!socket.ok()) return team.fail(std::move(socket).error());
    channel.socket_ = std::move(*socket);
  }
  return channel;
}

// A message is its count and its values.
Status Channel::send(std::span<const float> values, Deadline deadline, const Moment& moment) {
  const auto count = static_cast<uint32_t>(values.size());
  INVARIANT(count == values.size(), "a message has fewer than 2^32 elements");
  if (!socket_) {
    float header;
    std::memcpy(&header, &count, sizeof(count));
    TRY(send_ring(&header, 1, deadline, moment));
    return send_ring(values.data(), count, deadline, moment);
  }
  uint32_t header = count;
  TRY(move_stream(true, &header, sizeof(header), deadline, moment));
  return move_stream(true, const_cast<float*>(values.data()), values.size_bytes(), deadline,
                     moment);
}

Status Channel::receive(std::span<float> values, Deadline deadline, const Moment& moment) {
  uint32_t came = 0;
  if (!socket_) {
    float header = 0;
    TRY(receive_ring(&header, 1, deadline, moment));
    std::memcpy(&came, &header, sizeof(came));
    TRY(check_count(came, values.size(), moment));
    return receive_ring(values.data(), came, deadline, moment);
  }
  TRY(move_stream(false, &came, sizeof(came), deadline, moment));
  TRY(check_count(came, values.size(), moment));
  return move_stream(false, values.data(), values.size_bytes(), deadline, moment);
}

Status Channel::check_count(uint32_t came, size_t due, const Moment& moment) {
  if (came == due) return ok();
  return team_->fail(
      moment.during({Code::Internal,
                     fmt::format("{} is out of step: it sends {} values where {} are due",
                                 team_->gang().participant_name(other_), came, due),
                     ""}));
}

int Channel::process() const { return team_->gang().participant(other_).process; }

Status Channel::look(const Moment& moment) const {
  return team_->look(moment, [this] { return process(); });
}

Status Channel::ask(Wait& wait, const Moment& moment) const {
  return team_->overdue(wait, {{process(), team_->gang().participant_name(other_)}}, moment);
}

Status Channel::send_ring(const float* values, uint32_t count, Deadline deadline,
                          const Moment& moment) {
  Ring& ring = team_->ring(me_, other_);
  const std::function<Status()> watch = [&] { return look(moment); };
  Wait wait(deadline);
  // Only this end changes it.
  uint32_t sent = ring.sent.value.load(std::memory_order_relaxed);
  while (count > 0) {
    TRY(const bool space,
        wait_for(ring.received, team_->patience(wait.until, watch),
                 [sent](uint32_t received) { return sent - received < kRingElements; }));
    if (!space) {
      TRY(ask(wait, moment));
      continue;
    }
    // Acquired: the other end has copied out what lay there.
    const uint32_t free = static_cast<uint32_t>(kRingElements) -
                          (sent - ring.received.value.load(std::memory_order_acquire));
    const uint32_t at = sent % kRingElements;
    const uint32_t taken =
        std::min({count, free, kMostAtOnce, static_cast<uint32_t>(kRingElements) - at});
    std::memcpy(ring.data + at, values, taken * sizeof(float));
    sent += taken;
    ring.sent.set(sent);  // releases the values
    team_->gang().asking().has_moved();
    values += taken;
    count -= taken;
  }
  return ok();
}

Status Channel::receive_ring(float* values, uint32_t count, Deadline deadline,
                             const Moment& moment) {
  Ring& ring = team_->ring(other_, me_);
  const std::function<Status()> watch = [&] { return look(moment); };
  Wait wait(deadline);
  uint32_t received = ring.received.value.load(std::memory_order_relaxed);
  while (count > 0) {
    TRY(const bool some, wait_for(ring.sent, team_->patience(wait.until, watch),
                                  [received](uint32_t sent) { return sent != received; }));
    if (!some) {
      TRY(ask(wait, moment));
      continue;
    }
    const uint32_t there = ring.sent.value.load(std::memory_order_acquire) - received;
    const uint32_t at = received % kRingElements;
    const uint32_t taken = std::min({count, there, static_cast<uint32_t>(kRingElements) - at});
    std::memcpy(values, ring.data + at, taken * sizeof(float));
    received += taken;
    ring.received.set(received);
    team_->gang().asking().has_moved();
    values += taken;
    count -= taken;
  }
  return ok();
}

Status Channel::move_stream(bool sending, void* data, size_t bytes, Deadline deadline,
                            const Moment& moment) {
  char* at = static_cast<char*>(data);
  Wait wait(deadline);
  auto looked = Deadline::Clock::now();
  while (bytes > 0) {
    // Also while much is moving: others may ask, or be lost.
    if (const auto now = Deadline::Clock::now(); now - looked > std::chrono::milliseconds(kSlice_ms)) {
      TRY(look(moment));
      looked = now;
    }
    const iovec part{at, bytes};
    auto moved = sending ? socket_.write_some(std::span(&part, 1)) : socket_.read_some(at, bytes);
    if (!moved.ok()) {
      // It may have said why on the gang's connection.
      TRY(team_->look(moment));
      return team_->fail(moment.during(std::move(moved).error()));
    }
    at += *moved;
    bytes -= *moved;
    if (*moved > 0) {
      team_->gang().asking().has_moved();
      continue;
    }
    if (wait.until.expired()) TRY(ask(wait, moment));
    pollfd waiting{socket_.fd(), static_cast<short>(sending ? POLLOUT : POLLIN), 0};
    const int ready = ::poll(&waiting, 1, std::min(kSlice_ms, wait.until.remaining_ms()));
    if (ready < 0 && errno != EINTR) return errno_error("poll", errno);
  }
  return ok();
}

}  // namespace dtrain::engine
