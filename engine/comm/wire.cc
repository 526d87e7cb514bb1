#include "engine/comm/wire.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <map>
#include <string>

namespace dtrain::engine {
namespace {

// How often one who waits asks whether it is still worth it.
constexpr int kPoll_ms = 50;
// Of one frame before it is another's turn: what was copied is still in the cache when it is used.
constexpr size_t kTurn = size_t{256} << 10;  // bytes
constexpr size_t kTurnParts = 16;

void consume(std::vector<iovec>& parts, size_t& next, size_t bytes) {
  while (bytes > 0) {
    iovec& part = parts[next];
    const size_t taken = std::min(bytes, part.iov_len);
    part.iov_base = static_cast<char*>(part.iov_base) + taken;
    part.iov_len -= taken;
    bytes -= taken;
    if (part.iov_len == 0) ++next;
  }
}

}  // namespace

void Wire::prepare(Flow& flow, Op op, const Transfer& transfer, bool sending) {
  flow.process = transfer.process;
  flow.sending = sending;
  flow.next = 0;
  flow.header = {.magic = frame_magic(gang_.key()), .op = op, .sequence = sequence_};
  flow.header.bytes = 0;
  flow.parts.assign(1, {sending ? &flow.header : &flow.received, sizeof(FrameHeader)});
  for (const iovec& part : transfer.parts) {
    flow.header.bytes += part.iov_len;
    flow.parts.push_back(part);
  }
}

Status Wire::run(Op op, std::span<const Transfer> sends, std::span<const Transfer> receives,
                 Deadline deadline, const Moment& moment) {
  ++sequence_;
  struct Moving {
    Team& team;
    explicit Moving(Team& of) : team(of) { team.set_moving(team.gang().first(), true); }
    ~Moving() { team.set_moving(team.gang().first(), false); }
  } const moving(team_);
  // Sized once: the parts point into it.
  flows_.resize(sends.size() + receives.size());
  size_t count = 0;
  for (const Transfer& transfer : sends) {
    if (!transfer.parts.empty()) prepare(flows_[count++], op, transfer, true);
  }
  for (const Transfer& transfer : receives) {
    if (!transfer.parts.empty()) prepare(flows_[count++], op, transfer, false);
  }
  flows_.resize(count);

  std::vector<pollfd> waiting;
  Wait wait(deadline);
  auto looked = Deadline::Clock::now();
  while (true) {
    waiting.clear();
    for (Flow& flow : flows_) {
      if (!flow.done()) TRY(advance(flow, moment));
      if (flow.done()) continue;
      const short events = flow.sending ? POLLOUT : POLLIN;
      waiting.push_back({gang_.peer(flow.process).socket.fd(), events, 0});
    }
    if (waiting.empty()) return ok();
    if (wait.until.expired()) TRY(ask_who_is_missing(wait, moment));
    const int ready =
        ::poll(waiting.data(), waiting.size(), std::min(kPoll_ms, wait.until.remaining_ms()));
    if (ready < 0 && errno != EINTR) return errno_error("poll", errno);
    // Also while much is moving: someone may be lost whom this process does not talk to.
    if (Deadline::Clock::now() - looked > std::chrono::milliseconds(kPoll_ms)) {
      TRY(look(moment));
      looked = Deadline::Clock::now();
    }
  }
}

Status Wire::advance(Flow& flow, const Moment& moment) {
  Peer& peer = gang_.peer(flow.process);
  if (flow.sending) peer.in_frame = true;
  auto status = flow.sending ? send_more(flow) : receive_more(flow, moment);
  if (flow.sending && flow.done()) peer.in_frame = false;
  if (status.ok()) return status;
  peer.gone = peer.gone || status.error().code == Code::Unavailable;
  // Why it is gone may have been told, by itself or by another.
  TRY(team_.look(moment));
  return status;
}

Status Wire::send_more(Flow& flow) {
  Socket& socket = gang_.peer(flow.process).socket;
  // No more parts than a turn holds, and no more of the last.
  std::array<iovec, kTurnParts> parts;
  size_t count = 0, bytes = 0;
  for (size_t i = flow.next; i < flow.parts.size() && count < parts.size() && bytes < kTurn; ++i) {
    parts[count] = flow.parts[i];
    parts[count].iov_len = std::min(parts[count].iov_len, kTurn - bytes);
    bytes += parts[count++].iov_len;
  }
  TRY(const size_t sent, socket.write_some(std::span(parts).first(count)));
  if (sent > 0) gang_.asking().has_moved();
  consume(flow.parts, flow.next, sent);
  return ok();
}

Status Wire::receive_more(Flow& flow, const Moment& moment) {
  Socket& socket = gang_.peer(flow.process).socket;
  for (size_t left = kTurn; left > 0 && !flow.done();) {
    const iovec part = flow.parts[flow.next];
    TRY(const size_t got, socket.read_some(part.iov_base, std::min(part.iov_len, left)));
    if (got == 0) return ok();
    gang_.asking().has_moved();
    left -= got;
    const bool in_header = flow.next == 0;
    consume(flow.parts, flow.next, got);
    if (in_header && flow.next == 1) TRY(check(flow, moment));
  }
  return ok();
}

Status Wire::check(const Flow& flow, const Moment& moment) {
  const FrameHeader &due = flow.header, &came = flow.received;
  const std::string& name = gang_.peer(flow.process).name;
  if (came.magic != due.magic) {
    return moment.during({Code::DataLoss, name + " sends what is no frame", ""});
  }
  // Before it is seen that the process is gone, too.
  if (came.op == Op::Fail) return team_.fail(gang_.read_failure(flow.process, came));
  if (came.op == Op::Leave) {
    return moment.during({Code::Unavailable, name + " ended", "look at the log of that process"});
  }
  if (came.op != due.op || came.sequence != due.sequence || came.bytes != due.bytes) {
    return moment.during(
        {Code::Internal,
         fmt::format(
             "{} is out of step: it sends {} (exchange {}, {} bytes) where {} (exchange {}, "
             "{} bytes) are due",
             name, to_string(came.op), came.sequence, came.bytes, to_string(due.op), due.sequence,
             due.bytes),
         ""});
  }
  return ok();
}

Status Wire::ask_who_is_missing(Wait& wait, const Moment& moment) const {
  std::map<int, std::string> missed;
  for (const Flow& flow : flows_) {
    if (!flow.done()) missed.emplace(flow.process, gang_.peer(flow.process).name);
  }
  return team_.overdue(wait, missed, moment);
}

Status Wire::look(const Moment& moment) const {
  return team_.look(moment, [this] {
    int process = gang_.self();
    for (const Flow& flow : flows_) {  // receives come last
      if (!flow.done()) process = flow.process;
    }
    return process;
  });
}

}  // namespace dtrain::engine
