#include "runner/launch_facts.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "runner/record_frame.h"
#include "schema/small_file.h"
#include "schema/framing.h"
#include "schema/launch_record.pb.h"

namespace dtrain::runner {
namespace {

pb::ProcessFrame to_frame(const ProcessIdentity& process) {
  pb::ProcessFrame frame;
  frame.set_pid(process.pid);
  frame.set_start_ticks(process.start_ticks);
  frame.set_boot_id(process.boot_id);
  return frame;
}

ProcessIdentity from_frame(const pb::ProcessFrame& frame) {
  return {static_cast<pid_t>(frame.pid()), frame.start_ticks(), frame.boot_id()};
}

pb::StartFrame to_frame(const ReplicaId& id, const ReplicaStart& start) {
  pb::StartFrame frame;
  frame.set_id(to_string(id));
  *frame.mutable_process() = to_frame(start.process);
  frame.set_unix_ms(start.unix_ms);
  frame.set_pipe_inode(start.pipe_inode);
  frame.set_error(start.error);
  return frame;
}

ReplicaStart from_frame(const pb::StartFrame& frame) {
  return {from_frame(frame.process()), frame.unix_ms(), frame.pipe_inode(), frame.error()};
}

pb::ExitFrame to_frame(const ReplicaId& id, const ReplicaExit& exit) {
  pb::ExitFrame frame;
  frame.set_id(to_string(id));
  frame.set_code(exit.code);
  frame.set_signal(exit.signal);
  frame.set_memory_kill(exit.memory_kill);
  frame.set_cause(exit.cause);
  frame.set_ended_unix_ms(exit.ended_unix_ms);
  frame.set_cpu_seconds(exit.cpu_seconds);
  frame.set_memory_peak_bytes(exit.memory_peak_bytes);
  frame.set_read_bytes(exit.read_bytes);
  frame.set_written_bytes(exit.written_bytes);
  frame.set_log_bytes(exit.log_bytes);
  for (const PrintedLine& printed : exit.printed) {
    pb::ExitFrame::Printed& one = *frame.add_printed();
    one.set_rule(printed.rule);
    one.set_line(printed.line);
  }
  frame.set_ended_for_line(exit.ended_for_line);
  return frame;
}

ReplicaExit from_frame(const pb::ExitFrame& frame) {
  ReplicaExit exit;
  exit.code = frame.code();
  exit.signal = frame.signal();
  exit.memory_kill = frame.memory_kill();
  exit.cause = frame.cause();
  exit.ended_unix_ms = frame.ended_unix_ms();
  exit.cpu_seconds = frame.cpu_seconds();
  exit.memory_peak_bytes = frame.memory_peak_bytes();
  exit.read_bytes = frame.read_bytes();
  exit.written_bytes = frame.written_bytes();
  exit.log_bytes = frame.log_bytes();
  for (const auto& one : frame.printed()) exit.printed.push_back({one.rule(), one.line()});
  exit.ended_for_line = frame.ended_for_line();
  return exit;
}

// The frame's message and whose it is.
template <typename Message, typename Fact>
Status take(std::string_view payload, const std::string& path, std::map<ReplicaId, Fact>& facts) {
  TRY(const Message frame, parse_record_frame<Message>(payload, path));
  const auto id = parse_replica_id(frame.id());
  if (!id.ok()) return damaged_record(path, id.error().message);
  facts[*id] = from_frame(frame);
  return ok();
}

Status take_printed(std::string_view payload, const std::string& path, LaunchFacts& facts) {
  TRY(const auto frame, parse_record_frame<pb::PrintedFrame>(payload, path));
  const auto id = parse_replica_id(frame.id());
  if (!id.ok()) return damaged_record(path, id.error().message);
  facts.printed[*id].push_back({frame.rule(), frame.line()});
  return ok();
}

Status take(const Frame& frame, const std::string& path, LaunchFacts& facts) {
  if (frame.kind == kRecordStart) return take<pb::StartFrame>(frame.payload, path, facts.starts);
  if (frame.kind == kRecordPrinted) return take_printed(frame.payload, path, facts);
  if (frame.kind == kRecordExit) return take<pb::ExitFrame>(frame.payload, path, facts.exits);
  if (frame.kind != kRecordKeeper) return ok();
  TRY(const auto keeper, parse_record_frame<pb::ProcessFrame>(frame.payload, path));
  facts.keeper = from_frame(keeper);
  return ok();
}

}  // namespace

// ---- reading

Result<LaunchFacts> FactsReader::next() {
  LaunchFacts facts;
  const std::string path = directory_.record().string();
  TRY(const std::optional<std::string> text, read_file(path, offset_));
  std::string_view rest = text ? std::string_view(*text) : std::string_view();
  Frame frame;
  uint64_t end = offset_;
  for (; read_frame(rest, frame) == FrameStatus::Good; rest.remove_prefix(frame.size_bytes)) {
    end += frame.size_bytes;
    TRY(take(frame, path, facts));
  }
  offset_ = end;  // on an error all of it is read again
  return facts;
}

Result<LaunchFacts> read_facts(const LaunchDir& directory) { return FactsReader(directory).next(); }

// ---- writing

Result<FactsWriter> FactsWriter::open(const LaunchDir& directory) {
  FactsWriter writer;
  writer.path_ = directory.record().string();
  writer.file_.reset(::open(writer.path_.c_str(), O_RDWR | O_CLOEXEC));
  if (!writer.file_) return errno_error("open " + writer.path_, errno);
  TRY(writer.end_, scan_frames(writer.file_.get(), 0, {}));
  if (::ftruncate(writer.file_.get(), static_cast<off_t>(writer.end_)) != 0) {
    return errno_error("cut " + writer.path_, errno);
  }
  TRY(const auto text, read_file(writer.path_, 0));
  writer.unsynced_ = text.value_or("");
  return writer;
}

Status FactsWriter::add(const ProcessIdentity& keeper) {
  return append(kRecordKeeper, to_frame(keeper).SerializeAsString());
}

Status FactsWriter::add(const ReplicaId& id, const ReplicaStart& start) {
  return append(kRecordStart, to_frame(id, start).SerializeAsString());
}

Status FactsWriter::add(const ReplicaId& id, const PrintedLine& printed) {
  pb::PrintedFrame frame;
  frame.set_id(to_string(id));
  frame.set_rule(printed.rule);
  frame.set_line(printed.line);
  return append(kRecordPrinted, frame.SerializeAsString());
}

Status FactsWriter::add(const ReplicaId& id, const ReplicaExit& exit) {
  return append(kRecordExit, to_frame(id, exit).SerializeAsString());
}

Status FactsWriter::append(uint32_t kind, const std::string& record) {
  std::string frame;
  append_frame(frame, kind, record, {});
  const ssize_t written =
      ::pwrite(file_.get(), frame.data(), frame.size(), static_cast<off_t>(end_));
  if (written == static_cast<ssize_t>(frame.size())) {
    end_ += frame.size();
    unsynced_ += frame;
    return ok();
  }
  const int error = written < 0 ? errno : ENOSPC;
  (void)!::ftruncate(file_.get(), static_cast<off_t>(end_));
  return errno_error("write " + path_, error);
}

Status FactsWriter::sync() {
  if (sync_failed_) TRY(write_unsynced());
  sync_failed_ = fdatasync(file_.get()) != 0;
  if (sync_failed_) return errno_error("sync " + path_, errno);
  unsynced_.clear();
  return ok();
}

// The kernel takes pages that it could not write for written: only new writes bring them back.
Status FactsWriter::write_unsynced() {
  const auto at = static_cast<off_t>(end_ - unsynced_.size());
  const ssize_t written = ::pwrite(file_.get(), unsynced_.data(), unsynced_.size(), at);
  if (written == static_cast<ssize_t>(unsynced_.size())) return ok();
  return errno_error("write " + path_, written < 0 ? errno : ENOSPC);
}

}  // namespace dtrain::runner
