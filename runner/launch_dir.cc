#include "runner/launch_dir.h"

#include <sys/stat.h>

#include "runner/record_frame.h"
#include "schema/small_file.h"
#include "schema/framing.h"
#include "schema/launch_record.pb.h"

namespace dtrain::runner {
namespace {

// Of a launch. A reader knows this one and the one before.
constexpr uint32_t kRecordFormat = 3;  // 3: an image for each replica

pb::ReplicaFrame to_frame(const ReplicaLaunch& replica) {
  pb::ReplicaFrame frame;
  frame.set_id(to_string(replica.id));
  frame.set_attempt(replica.attempt);
  for (const std::string& argument : replica.argv) frame.add_argv(argument);
  frame.set_cwd(replica.cwd);
  for (const auto& [name, value] : replica.env) {
    pb::ReplicaFrame::Variable& variable = *frame.add_env();
    variable.set_name(name);
    variable.set_value(value);
  }
  for (const std::string& group : replica.cgroups) frame.add_cgroups(group);
  for (const int processor : replica.processors) frame.add_processors(static_cast<uint32_t>(processor));
  frame.set_image(replica.image);
  return frame;
}

Result<ReplicaLaunch> from_frame(const pb::ReplicaFrame& frame) {
  ReplicaLaunch replica;
  TRY(replica.id, parse_replica_id(frame.id()));
  replica.attempt = frame.attempt();
  replica.argv = {frame.argv().begin(), frame.argv().end()};
  replica.cwd = frame.cwd();
  for (const auto& variable : frame.env()) replica.env[variable.name()] = variable.value();
  replica.cgroups = {frame.cgroups().begin(), frame.cgroups().end()};
  for (const uint32_t processor : frame.processors()) replica.processors.push_back(static_cast<int>(processor));
  replica.image = frame.image();
  return replica;
}

pb::LaunchFrame to_frame(const LaunchRecord& launch) {
  pb::LaunchFrame frame;
  frame.set_format(kRecordFormat);
  frame.set_experiment(to_string(launch.experiment));
  frame.set_attempt(launch.attempt);
  frame.set_key(launch.key);
  frame.set_ctl(launch.ctl);
  frame.set_lease_ms(launch.lease_ms);
  frame.set_grace_ms(launch.grace_ms);
  frame.set_spool_limit_bytes(launch.spool_limit_bytes);
  frame.set_work_root(launch.work_root);
  frame.set_tree(launch.tree);
  for (const std::string& lock : launch.gpu_locks) frame.add_gpu_locks(lock);
  frame.set_data_mount(launch.data.point);
  for (const DataSet& set : launch.data.sets) {
    pb::LaunchFrame::DataSet& data = *frame.add_data();
    data.set_name(set.name);
    data.set_path(set.path);
  }
  for (const HostMount& shown : launch.shown) {
    pb::LaunchFrame::HostMount& one = *frame.add_shown();
    one.set_source(shown.source);
    one.set_path(shown.path);
    one.set_read_only(shown.read_only);
  }
  for (const WatchedLine& watched : launch.watched) {
    pb::LaunchFrame::WatchedLine& one = *frame.add_watched();
    one.set_rule(watched.rule);
    one.set_pattern(watched.pattern);
    one.set_at_once(watched.at_once);
  }
  return frame;
}

Result<LaunchRecord> from_frame(const pb::LaunchFrame& frame) {
  if (frame.format() > kRecordFormat || frame.format() + 1 < kRecordFormat || frame.format() < 1) {
    return Error{Code::DataLoss,
                 fmt::format("it has format {}, this dtrain reads {}: use the version that wrote it "
                             "until its experiments have ended",
                             frame.format(), kRecordFormat),
                 ""};
  }
  LaunchRecord launch;
  TRY(launch.experiment, parse_experiment_id(frame.experiment()));
  launch.attempt = frame.attempt();
  launch.key = frame.key();
  launch.ctl = frame.ctl();
  launch.lease_ms = frame.lease_ms();
  launch.grace_ms = frame.grace_ms();
  launch.spool_limit_bytes = frame.spool_limit_bytes();
  launch.work_root = frame.work_root();
  launch.tree = frame.tree();
  launch.gpu_locks = {frame.gpu_locks().begin(), frame.gpu_locks().end()};
  launch.data.point = frame.data_mount();
  for (const auto& set : frame.data()) launch.data.sets.push_back({set.name(), set.path()});
  for (const auto& one : frame.watched()) launch.watched.push_back({one.rule(), one.pattern(), one.at_once()});
  for (const auto& one : frame.shown()) launch.shown.push_back({one.source(), one.path(), one.read_only()});
  return launch;
}

// The frame's message, and what it stands for.
template <typename Message>
auto read_record_frame(std::string_view payload, const std::string& path)
    -> decltype(from_frame(Message())) {
  TRY(const Message message, parse_record_frame<Message>(payload, path));
  auto read = from_frame(message);
  if (!read.ok()) return damaged_record(path, read.error().message);
  return read;
}

// Empty: not known.
std::string inode_of(const std::filesystem::path& directory) {
  struct stat found = {};
  return ::stat(directory.c_str(), &found) == 0 ? std::to_string(found.st_ino) : "";
}

}  // namespace

std::filesystem::path LaunchRecord::place_of(const ReplicaId& id) const {
  return std::filesystem::path(work_root) / fmt::format("{}@{}", to_string(id), attempt);
}

std::filesystem::path LaunchRecord::image_layer_of(const ReplicaId& id) const {
  return image_layer_in(place_of(id));
}

Status LaunchDir::begin(const std::string& key) const {
  std::string frame;
  append_frame(frame, kRecordBegun, key, {});
  return write_file(record(), frame);
}

std::optional<std::string> LaunchDir::begun_key() const {
  const auto text = read_small_file(record());
  Frame frame;
  if (!text || read_frame(*text, frame) != FrameStatus::Good || frame.kind != kRecordBegun) {
    return std::nullopt;
  }
  return std::string(frame.payload);
}

Status LaunchDir::write_launch(const LaunchRecord& launch) const {
  std::string frames;
  append_frame(frames, kRecordLaunch, to_frame(launch).SerializeAsString(), {});
  for (const ReplicaLaunch& replica : launch.replicas) {
    const std::string text = to_frame(replica).SerializeAsString();
    if (text.size() > kFramePayloadMaxBytes) {
      return Error{Code::FailedPrecondition,
                   fmt::format("the command and environment of {} take {} MiB",
                               to_string(replica.id), text.size() >> 20),
                   "a program can be given a few MiB at most"};
    }
    append_frame(frames, kRecordReplica, text, {});
  }
  append_frame(frames, kRecordWhole, inode_of(path_), {});
  // Behind what begin() wrote: a file that is cut and written anew goes to the disk at once.
  return append_file(record(), frames);
}

bool LaunchDir::is_copy() const {
  const auto text = read_file(record());
  std::string_view rest = text.ok() && *text ? std::string_view(**text) : std::string_view();
  Frame frame;
  for (; read_frame(rest, frame) == FrameStatus::Good; rest.remove_prefix(frame.size_bytes)) {
    if (frame.kind != kRecordWhole) continue;
    const std::string here = inode_of(path_);
    return !frame.payload.empty() && !here.empty() && frame.payload != here;   // an older dtrain wrote none
  }
  return false;
}

Result<std::optional<LaunchRecord>> LaunchDir::read_launch() const {
  TRY(const std::optional<std::string> text, read_file(record()));
  std::string_view rest = text ? std::string_view(*text) : std::string_view();
  std::optional<LaunchRecord> launch;
  std::string image_of_all;   // of format 2
  Frame frame;
  for (; read_frame(rest, frame) == FrameStatus::Good; rest.remove_prefix(frame.size_bytes)) {
    if (frame.kind == kRecordBegun) continue;
    if (frame.kind == kRecordWhole) return launch;
    if (frame.kind == kRecordLaunch) {
      TRY(launch, read_record_frame<pb::LaunchFrame>(frame.payload, record().string()));
      TRY(const auto as_written, parse_record_frame<pb::LaunchFrame>(frame.payload, record().string()));
      image_of_all = as_written.image();
    } else if (frame.kind == kRecordReplica && launch) {
      TRY(ReplicaLaunch replica,
          read_record_frame<pb::ReplicaFrame>(frame.payload, record().string()));
      if (replica.image.empty()) replica.image = image_of_all;
      launch->replicas.push_back(std::move(replica));
    } else {
      break;
    }
  }
  return std::optional<LaunchRecord>();
}

Status LaunchDir::sync_names() const {
  TRY(sync_directory(path_));
  return sync_directory(path_.parent_path());
}

std::filesystem::path LaunchDir::spool(const ReplicaId& id, uint64_t sequence) const {
  return path_ / fmt::format("spool.{}.{}", to_string(id), sequence);
}

}  // namespace dtrain::runner
