#include "daemon/watch_stream.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "daemon/summary.h"
#include "schema/clock.h"

namespace dtrain::daemon {

namespace {

constexpr size_t kBatchBytes = size_t{512} << 10;

class WatchStream final : public WriteStream<pb::WatchBatch>, public JournalListener {
 public:
  WatchStream(boost::asio::io_context& loop, grpc::CallbackServerContext& call, Scheduler& scheduler, Logs& logs,
              const pb::WatchRequest& request)
      : WriteStream(loop, &call), scheduler_(scheduler), logs_(logs), request_(request) {
    on_writable = [this] { next(); };
    on_closed = [this] { logs_.unlisten(number_, this); };
  }

  void journal_grew() override {
    if (is_writable() && !looking_) next();
  }

 private:
  void next() {
    const auto status = !opened_ ? open() : tail_ ? find_tail() : write_items();
    if (!status.ok()) close(to_grpc(status.error()));
  }

  // The journal is closed before the reader is told, however long that one takes to hear it.
  void close(grpc::Status status) {
    reader_.reset();
    finish(std::move(status));
  }

  // The first batch: who takes part, so that the reader knows how wide the names are.
  Status open() {
    opened_ = true;
    TRY(filter_.pattern, parse_id_pattern(request_.id()));
    number_ = filter_.pattern.experiment.number;
    filter_.with_logs = !request_.states_only();
    filter_.attempt = request_.attempt();
    filter_.since_unix_ms = request_.since_unix_ms();
    TRY(const uint64_t end, logs_.end(number_));
    cursor_ = std::min(request_.cursor(), end);
    TRY(const auto known, scheduler_.find(filter_.pattern.experiment));
    TRY(check_exists(known, filter_.pattern));
    logs_.listen(number_, this);
    pb::WatchBatch batch;
    for (const std::string& id : watched_ids(known, filter_.pattern)) batch.add_ids(id);
    TRY(open_reader());   // before anything is said, so that who comes again comes less and less often
    if (request_.tail_lines() > 0 && cursor_ == 0 && reader_) {
      tail_.emplace(end, request_.tail_lines());
    } else {
      batch.set_cursor(cursor_);
    }
    write(std::move(batch));
    return ok();
  }

  Status find_tail() {
    TRY(const bool found, reader_->find(*tail_, filter_));
    if (found) {
      cursor_ = tail_->cursor;
      skip_bytes_ = tail_->skip_bytes;
      tail_.reset();
    }
    if (found && skip_bytes_ == 0) {  // else its item follows at once
      pb::WatchBatch batch;
      batch.set_cursor(cursor_);
      write(std::move(batch));
    } else {
      look_further();
    }
    return ok();
  }

  // Without holding up the loop.
  void look_further() {
    looking_ = true;
    boost::asio::post(loop_of(), [self = shared_from_this(), this] {
      looking_ = false;
      if (is_writable()) next();
    });
  }

  // None when there is no journal.
  Status open_reader() {
    if (reader_) return ok();
    auto reader = JournalReader::open(logs_.path(number_));
    if (reader.ok()) {
      reader_ = std::move(*reader);
    } else if (reader.error().code != Code::NotFound) {
      return reader.error();
    }
    return ok();
  }

  Status write_items() {
    // Asked before reading: what is in the journal once it is over is everything.
    const bool over = scheduler_.is_over(filter_.pattern.experiment);
    pb::WatchBatch batch;
    if (const std::string trouble = scheduler_.trouble(); trouble != told_trouble_) {
      batch.set_trouble(trouble);
      told_trouble_ = trouble;
    }
    TRY(const uint64_t end, logs_.end(number_));
    TRY(open_reader());
    const uint64_t before = cursor_;
    bool waits = false;
    if (reader_ && cursor_ < end) {
      const auto read = reader_->read(cursor_, end, kBatchBytes, filter_, batch);
      waits = !read.ok() && may_pass(read.error());
      if (!read.ok() && !waits) return read.error();
      if (read.ok()) cursor_ = *read;
      skip_head(batch);
    }
    // The torn end of a journal that nobody writes any more is no output.
    const bool torn = over && !waits && cursor_ == before && batch.items_size() == 0;
    const bool drained = (cursor_ >= end || torn) && logs_.is_settled(number_);
    if (drained && (over || !request_.follow())) {
      batch.set_end(true);
      TRY(const auto known, scheduler_.find(filter_.pattern.experiment));
      *batch.mutable_outcome() = summary_of(known, filter_.pattern.experiment,
                                            scheduler_.model(), boottime_ms());
      write(std::move(batch));
      close(grpc::Status::OK);
    } else if (batch.items_size() > 0 || batch.has_trouble()) {
      write(std::move(batch));
    } else if (cursor_ < end && cursor_ != before) {
      look_further();   // a stretch without anything of interest
    }
    return ok();
  }

  // What a failed sync has lost reads as damaged until it is written again, which wakes us.
  bool may_pass(const Error& error) const {
    const auto durable_end = logs_.durable_end(number_);
    return error.code == Code::DataLoss && durable_end && cursor_ >= *durable_end;
  }

  // The chunk where `--tail` begins starts with lines that are not among the last ones.
  void skip_head(pb::WatchBatch& batch) {
    for (auto& item : *batch.mutable_items()) {
      if (skip_bytes_ == 0) return;
      if (!item.has_log()) continue;
      pb::LogChunk& log = *item.mutable_log();
      log.mutable_data()->erase(0, skip_bytes_);
      log.set_offset(log.offset() + skip_bytes_);
      skip_bytes_ = 0;
    }
  }

  Scheduler& scheduler_;
  Logs& logs_;
  const pb::WatchRequest request_;
  JournalReader::Filter filter_;
  uint32_t number_ = 0;
  bool opened_ = false;
  std::unique_ptr<JournalReader> reader_;
  uint64_t cursor_ = 0;
  uint64_t skip_bytes_ = 0;
  std::optional<JournalReader::Tail> tail_;   // being looked for
  bool looking_ = false;                      // further, in a moment
  std::string told_trouble_;
};

}  // namespace

std::shared_ptr<WriteStream<pb::WatchBatch>> start_watch(boost::asio::io_context& loop, grpc::CallbackServerContext& call,
                                                         Scheduler& scheduler, Logs& logs,
                                                         const pb::WatchRequest& request) {
  auto stream = std::make_shared<WatchStream>(loop, call, scheduler, logs, request);
  stream->start();
  return stream;
}

}  // namespace dtrain::daemon
