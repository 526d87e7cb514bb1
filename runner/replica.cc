#include "runner/replica.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>

#include "runner/lost_keeper.h"
#include "schema/quote.h"

namespace dtrain::runner {
namespace {

pb::ExitStatus status_message(const ReplicaExit& exit) {
  pb::ExitStatus status;
  status.set_code(exit.code);
  status.set_signal(exit.signal);
  status.set_memory_kill(exit.memory_kill);
  status.set_cause(as_utf8(exit.cause));
  status.set_time_unix_ms(static_cast<uint64_t>(exit.ended_unix_ms));
  status.set_cpu_seconds(exit.cpu_seconds);
  status.set_memory_peak_bytes(exit.memory_peak_bytes);
  status.set_read_bytes(exit.read_bytes);
  status.set_written_bytes(exit.written_bytes);
  status.set_log_bytes(exit.log_bytes);
  for (const PrintedLine& printed : exit.printed) {
    pb::PrintedLine& one = *status.add_printed();
    one.set_rule(printed.rule);
    one.set_line(as_utf8(printed.line));
  }
  status.set_ended_for_line(exit.ended_for_line);
  status.set_lost_keeper(exit.cause == kKeeperDied || exit.cause == kHostRestarted);
  return status;
}

}  // namespace

Replica::Replica(SpoolListing& spools, const ReplicaId& id, uint32_t attempt, LogWindow& window)
    : spools_(spools), id_(id), attempt_(attempt), window_(window) {}

Replica::~Replica() {
  pause();
}

bool Replica::drained() const {
  return exit_ && acked_offset_ >= exit_->log_bytes;
}

void Replica::on_start(const ReplicaStart& start, Outbox& outbox) {
  if (start_ || !start.error.empty()) return;
  start_ = start;
  report_started(outbox);
}

void Replica::on_exit(const ReplicaExit& exit, Outbox& outbox) {
  if (exit_) return;
  // What it wrote is told before its end, as far as there is room: so it stands in the log.
  spools_.forget();
  while (pump(outbox)) {
  }
  exit_ = exit;
  report_exited(outbox);
}

void Replica::repeat(Outbox& outbox) const {
  if (start_) report_started(outbox);
  if (exit_) report_exited(outbox);
  if (released_) report_released(outbox);
}

void Replica::release(std::string left_behind, Outbox& outbox) {
  if (released_) return;
  INVARIANT(exit_.has_value(), "a replica is released after its exit");
  released_ = true;
  left_behind_ = std::move(left_behind);
  report_released(outbox);
}

void Replica::resume(std::optional<uint64_t> offset) {
  pause();
  acked_offset_ = offset.value_or(acked_offset_);
  sent_offset_ = acked_offset_;
  reader_ = std::make_unique<SpoolReader>(spools_, id_, acked_offset_);
}

void Replica::pause() {
  window_.unacked_bytes -= sent_offset_ - acked_offset_;
  sent_offset_ = acked_offset_;
  rest_.reset();
  reader_.reset();
}

bool Replica::pump(Outbox& outbox) {
  if (!reader_ || !window_.has_room()) return false;
  pb::FromRunner message;
  pb::LogData& log = *message.mutable_log();
  const bool more = fill(log);
  if (log.data().empty() && log.dropped_bytes() == 0) {
    if (more || !lacks_end()) return more;
    log.set_time_unix_ms(static_cast<uint64_t>(exit_->ended_unix_ms));
    log.set_offset(exit_->log_bytes);
    log.set_dropped_bytes(exit_->log_bytes - sent_offset_);
  }
  log.set_replica(to_string(id_));
  log.set_attempt(attempt_);
  const uint64_t end = log.offset() + log.data().size();
  window_.unacked_bytes += end - sent_offset_;
  sent_offset_ = end;
  outbox.send(std::move(message));
  return more || lacks_end();
}

// What one that has exited wrote is in its spool or declared lost: the rest could not be looked for.
bool Replica::is_hindered() const {
  if (!reader_ || !window_.has_room()) return false;
  return reader_->is_hindered() || (exit_ && sent_offset_ < exit_->log_bytes);
}

// All of the spool was sent, and it is less than the replica wrote: a full disk or damage took even
// the note of the loss.
bool Replica::lacks_end() const {
  return exit_ && !rest_ && sent_offset_ < exit_->log_bytes && reader_->is_last();
}

// A message is one hole at most, then the bytes that follow it, up to the limit. log.offset is that
// of the first byte after the hole. False: nothing more now.
bool Replica::fill(pb::LogData& log) {
  std::string& data = *log.mutable_data();
  uint64_t expected = sent_offset_;
  while (data.size() < kLogDataMaxBytes) {
    if (!rest_) {
      auto next = reader_->next();
      if (!next.ok()) {
        fmt::print(stderr, "{}: {}\n", to_string(id_), next.error().message);
        return true;  // what was damaged comes as a hole next
      }
      if (!*next) return false;
      rest_ = **next;
    }
    const bool first = data.empty() && log.dropped_bytes() == 0;
    const bool fits =
        first || (rest_->dropped_bytes == 0 && rest_->offset == expected &&
                  rest_->unix_ms - static_cast<int64_t>(log.time_unix_ms()) <= kLogMergeMs);
    if (!fits) return true;
    if (first) log.set_time_unix_ms(static_cast<uint64_t>(rest_->unix_ms));
    if (rest_->dropped_bytes != 0) {
      log.set_dropped_bytes(rest_->dropped_bytes);
      log.set_offset(rest_->end_offset());
      expected = rest_->end_offset();
      rest_.reset();
      continue;
    }
    if (first) log.set_offset(rest_->offset);
    const std::string_view part = rest_->bytes.substr(0, kLogDataMaxBytes - data.size());
    data.append(part);
    expected = rest_->offset + part.size();
    if (part.size() == rest_->bytes.size()) {
      rest_.reset();
    } else {
      rest_->bytes.remove_prefix(part.size());
      rest_->offset += part.size();
    }
  }
  return true;
}

bool Replica::acknowledge(uint64_t offset) {
  // Of what an earlier stream carried the daemon may have more than this one has sent by now.
  offset = std::min(offset, sent_offset_);
  if (offset <= acked_offset_) return false;
  window_.unacked_bytes -= offset - acked_offset_;
  acked_offset_ = offset;
  return true;
}

void Replica::report_started(Outbox& outbox) const {
  pb::FromRunner message;
  pb::Started& started = *message.mutable_started();
  started.set_replica(to_string(id_));
  started.set_attempt(attempt_);
  started.set_pid(static_cast<uint64_t>(start_->process.pid));
  started.set_time_unix_ms(static_cast<uint64_t>(start_->unix_ms));
  outbox.send(std::move(message));
}

void Replica::report_exited(Outbox& outbox) const {
  pb::FromRunner message;
  pb::Exited& exited = *message.mutable_exited();
  exited.set_replica(to_string(id_));
  exited.set_attempt(attempt_);
  *exited.mutable_status() = status_message(*exit_);
  outbox.send(std::move(message));
}

void Replica::report_released(Outbox& outbox) const {
  pb::FromRunner message;
  pb::Released& released = *message.mutable_released();
  released.set_replica(to_string(id_));
  released.set_attempt(attempt_);
  released.set_left_behind(as_utf8(left_behind_));
  outbox.send(std::move(message));
}

}  // namespace dtrain::runner
