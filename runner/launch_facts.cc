#include "runner/launch_facts.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>

#include "runner/record_json.h"
#include "runner/small_file.h"
#include "schema/framing.h"

namespace dtrain::runner {
namespace {

using nlohmann::json;

json to_json(const ReplicaId& id, const ReplicaStart& start) {
  return {{"id", to_string(id)},
          {"process", from_identity(start.process)},
          {"unix_ms", start.unix_ms},
          {"pipe_inode", start.pipe_inode},
          {"error", from_bytes(start.error)}};
}

ReplicaStart to_start(const json& record) {
  return {to_identity(record.at("process")), record.at("unix_ms").get<int64_t>(),
          record.at("pipe_inode").get<uint64_t>(), to_bytes(record.at("error"))};
}

json to_json(const ReplicaId& id, const ReplicaExit& exit) {
  return {{"id", to_string(id)},
          {"code", exit.code},
          {"signal", exit.signal},
          {"memory_kill", exit.memory_kill},
          {"cause", from_bytes(exit.cause)},
          {"ended_unix_ms", exit.ended_unix_ms},
          {"cpu_seconds", exit.cpu_seconds},
          {"memory_peak_bytes", exit.memory_peak_bytes},
          {"read_bytes", exit.read_bytes},
          {"written_bytes", exit.written_bytes},
          {"log_bytes", exit.log_bytes}};
}

ReplicaExit to_exit(const json& record) {
  ReplicaExit exit;
  exit.code = record.at("code").get<int>();
  exit.signal = record.at("signal").get<int>();
  exit.memory_kill = record.at("memory_kill").get<bool>();
  exit.cause = to_bytes(record.at("cause"));
  exit.ended_unix_ms = record.at("ended_unix_ms").get<int64_t>();
  exit.cpu_seconds = record.at("cpu_seconds").get<double>();
  exit.memory_peak_bytes = record.at("memory_peak_bytes").get<uint64_t>();
  exit.read_bytes = record.at("read_bytes").get<uint64_t>();
  exit.written_bytes = record.at("written_bytes").get<uint64_t>();
  exit.log_bytes = record.at("log_bytes").get<uint64_t>();
  return exit;
}

ReplicaId id_of(const json& record) {
  return valid(parse_replica_id(record.at("id").get<std::string>()));
}

bool is_fact(uint32_t kind) {
  return kind == kRecordKeeper || kind == kRecordStart || kind == kRecordExit;
}

void take(uint32_t kind, const json& record, LaunchFacts& facts) {
  if (kind == kRecordKeeper) facts.keeper = to_identity(record.at("process"));
  if (kind == kRecordStart) facts.starts[id_of(record)] = to_start(record);
  if (kind == kRecordExit) facts.exits[id_of(record)] = to_exit(record);
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
    if (!is_fact(frame.kind)) continue;
    TRY(parse_record(frame.payload, path, [&](const json& record) {
      take(frame.kind, record, facts);
      return true;
    }));
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
  return append(kRecordKeeper, record_text({{"process", from_identity(keeper)}}));
}

Status FactsWriter::add(const ReplicaId& id, const ReplicaStart& start) {
  return append(kRecordStart, record_text(to_json(id, start)));
}

Status FactsWriter::add(const ReplicaId& id, const ReplicaExit& exit) {
  return append(kRecordExit, record_text(to_json(id, exit)));
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
