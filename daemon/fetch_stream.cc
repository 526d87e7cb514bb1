#include "daemon/fetch_stream.h"

#include <sys/types.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>
#include <string>
#include <vector>

namespace dtrain::daemon {

namespace {

class FetchStream final : public WriteStream<pb::BlobPart> {
 public:
  FetchStream(boost::asio::io_context& loop, grpc::CallbackServerContext& call, Blobs& blobs,
              const pb::FetchRequest& request)
      : WriteStream(loop, &call),
        blobs_(blobs),
        names_(request.sha256().begin(), request.sha256().end()) {
    on_writable = [this] {
      if (const auto status = next(); !status.ok()) finish(to_grpc(status.error()));
    };
  }

 private:
  Status next() {
    if (!current_ && next_name_ == names_.size()) {
      finish(grpc::Status::OK);
      return ok();
    }
    if (!current_) {
      TRY(name_, sha256_from_bytes(names_[next_name_]));
      TRY(current_, blobs_.find(name_));
      sent_ = 0;
      checksum_ = Checksum();
    }
    pb::BlobPart part;
    part.set_sha256(names_[next_name_]);
    part.set_size(current_->size_bytes);
    std::string& data = *part.mutable_data();
    data.resize(std::min<uint64_t>(kBlobPartBytes, current_->stored_bytes - sent_));
    // A page that the disk can't give is as damaged as one that it gives wrongly.
    if (!read_part(data)) return blobs_.forget(name_);
    checksum_.add(data);
    sent_ += data.size();
    part.set_last(sent_ == current_->stored_bytes);
    if (part.last() && checksum_.value() != current_->checksum) return blobs_.forget(name_);
    if (part.last()) {
      current_.reset();
      ++next_name_;
    }
    write(std::move(part));
    return ok();
  }

  bool read_part(std::string& data) const {
    size_t done = 0;
    while (done < data.size()) {
      const ssize_t n = pread(current_->fd.get(), data.data() + done, data.size() - done,
                              static_cast<off_t>(current_->offset + sent_ + done));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return false;   // 0: the pack is shorter than its table says
      done += static_cast<size_t>(n);
    }
    return true;
  }

  Blobs& blobs_;
  const std::vector<std::string> names_;
  size_t next_name_ = 0;
  Sha256 name_ = {};   // of current_
  Checksum checksum_;
  std::optional<Blobs::Stored> current_;
  uint64_t sent_ = 0;
};

}  // namespace

std::shared_ptr<WriteStream<pb::BlobPart>> start_fetch(boost::asio::io_context& loop,
                                                       grpc::CallbackServerContext& call,
                                                       Blobs& blobs,
                                                       const pb::FetchRequest& request) {
  auto stream = std::make_shared<FetchStream>(loop, call, blobs, request);
  stream->start();
  return stream;
}

}  // namespace dtrain::daemon
