#include "daemon/metrics.h"

#include <cstdio>
#include <utility>

namespace dtrain::daemon {

namespace {

constexpr size_t kScanBytes = size_t{1} << 20;

// What makes an environment, or shows curves, says nothing about the training.
bool counts(const ReplicaId& replica) {
  return replica.role != Role::Build && replica.role != Role::Tensorboard;
}

// Each end had its last_record().
bool is_all_read(const Submission& submission, const Store::StoredMetrics& stored) {
  for (uint32_t member = submission.first_member(); member <= submission.last_member(); ++member) {
    if (submission.spec_of(member).metrics.empty()) continue;
    const auto found = stored.members.find(member);
    if (found == stored.members.end() || !found->second.over()) return false;
  }
  return true;
}

}  // namespace

Result<Metrics::Open*> Metrics::open(const Submission& submission) {
  const uint32_t number = submission.number;
  if (const auto found = open_.find(number); found != open_.end()) return found->second.get();
  TRY(const auto stored, store_.metrics(number));
  auto opened = std::make_unique<Open>(submission.spec);
  std::set<uint32_t> over;
  for (const auto& [member, record] : stored.members) {
    if (record.over()) {
      over.insert(member);
    } else {
      opened->members.emplace(member, MetricFold::from(record, opened->reader));
    }
  }
  TRY(read_journal(number, stored.journal_bytes, over, *opened));
  return open_.emplace(number, std::move(opened)).first->second.get();
}

// What the last daemon read after it last told the store.
Status Metrics::read_journal(uint32_t number, uint64_t from, const std::set<uint32_t>& over,
                             Open& open) {
  const auto reader = JournalReader::open(logs_.path(number));
  if (!reader.ok() && reader.error().code == Code::NotFound) return ok();
  if (!reader.ok()) return reader.error();
  TRY(const uint64_t end, (*reader)->size());
  while (from < end) {
    pb::WatchBatch batch;
    const auto next = (*reader)->read(from, end, kScanBytes, {{{number, 0}, {}, {}}}, batch);
    // The torn end of a file that nobody has mended yet. Its bytes will be sent again.
    if (!next.ok() && next.error().code != Code::DataLoss) return next.error();
    for (const pb::WatchItem& item : batch.items()) {
      if (!item.has_log()) continue;
      const pb::LogChunk& log = item.log();
      const auto replica = parse_replica_id(log.replica());
      if (!replica.ok() || !counts(*replica) || over.contains(replica->experiment.member)) continue;
      const uint32_t member = replica->experiment.member;
      open.members[member].take(open.reader, *replica, log.attempt(), log.offset(), log.data());
      open.unsaved.insert(member);
    }
    if (!next.ok() || *next == from) break;
    open.unsaved_bytes += *next - from;
    from = *next;
  }
  return ok();
}

// Null: it can't be read now. What is taken meanwhile is in the journal, for when it can.
Metrics::Open* Metrics::open_or_say(const Submission& submission) {
  const auto opened = open(submission);
  if (opened.ok()) return *opened;
  if (unopened_.insert(submission.number).second) {
    std::fprintf(stderr, "metrics of %u: %s\n", submission.number, opened.error().message.c_str());
  }
  return nullptr;
}

const std::vector<double>& Metrics::take(const Experiment& experiment, const ReplicaId& replica,
                                         const pb::LogData& data) {
  static const std::vector<double> none;
  if (!counts(replica)) return none;
  Open* const open = open_or_say(*experiment.submission);
  if (open == nullptr) return none;
  MetricFold& fold = open->members[experiment.id.member];
  fold.take(open->reader, replica, data.attempt(), data.offset(), data.data());
  open->unsaved.insert(experiment.id.member);
  open->unsaved_bytes += data.data().size();
  if (open->unsaved_bytes >= save_bytes_) save(experiment.id.number, *open);
  return fold.rungs();
}

std::vector<double> Metrics::last_rungs(const Experiment& experiment, const ReplicaId& replica) {
  const Open* const open = open_or_say(*experiment.submission);
  if (open == nullptr) return {};
  const auto found = open->members.find(experiment.id.member);
  if (found == open->members.end()) return {};
  MetricFold whole = found->second;
  whole.finish(open->reader, replica);
  return whole.rungs();
}

// The place is one that the disk has for ever, though more than that was read: the rest may be cut
// off and come again, in other pieces.
void Metrics::save(uint32_t number, Open& open) {
  open.unsaved_bytes = 0;
  const auto durable = logs_.durable_end(number);
  if (!durable) return;
  std::map<uint32_t, pb::MetricsRecord> records;
  for (const uint32_t member : open.unsaved) {
    const auto found = open.members.find(member);
    if (found != open.members.end()) records[member] = found->second.record(open.reader);
  }
  if (const auto saved = store_.put_metrics(number, *durable, records); !saved.ok()) {
    // The journal still has all of it; the next time is soon enough.
    std::fprintf(stderr, "metrics of %u: %s\n", number, saved.error().message.c_str());
    return;
  }
  open.unsaved.clear();
}

std::optional<pb::MetricsRecord> Metrics::last_record(const Experiment& experiment) {
  const Open* const open = open_or_say(*experiment.submission);
  if (open == nullptr) return std::nullopt;
  pb::MetricsRecord record;
  if (const auto found = open->members.find(experiment.id.member); found != open->members.end()) {
    MetricFold whole = found->second;  // as long as the commit may fail, there may be more to come
    whole.finish(open->reader);
    record = whole.record(open->reader);
  }
  record.set_over(true);
  return record;
}

void Metrics::forget(const ExperimentId& id) {
  const auto found = open_.find(id.number);
  if (found == open_.end()) return;
  found->second->members.erase(id.member);
  found->second->unsaved.erase(id.member);
}

void Metrics::close(uint32_t number) {
  open_.erase(number);
  unopened_.erase(number);
}

Result<Metrics::Values> Metrics::values(const Submission& submission, bool live) {
  // First: what it reads of the journal is newer than what is stored.
  Open* open = nullptr;
  if (live) {
    TRY(open, this->open(submission));
  }
  TRY(auto stored, store_.metrics(submission.number));
  Values values;
  const bool all_read = live || is_all_read(submission, stored);
  if (!all_read) {
    TRY(open, this->open(submission));
  }
  for (auto& [member, record] : stored.members) {
    if (record.metrics().empty()) continue;
    auto& metrics = *record.mutable_metrics();
    values[member].assign(std::make_move_iterator(metrics.begin()),
                          std::make_move_iterator(metrics.end()));
  }
  if (open == nullptr) return values;
  for (auto& [member, fold] : open->members) {
    if (!live) fold.finish(open->reader);   // no more output will come
    values[member] = fold.values(open->reader);
  }
  if (!live) close(submission.number);
  return values;
}

}  // namespace dtrain::daemon
