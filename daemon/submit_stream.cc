#include "daemon/submit_stream.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <map>
#include <optional>
#include <utility>

#include "daemon/incoming_messages.h"
#include "schema/manifest.h"

namespace dtrain::daemon {

namespace {

constexpr size_t kNamesPerMessage = 16'000;   // 32 bytes each: half a message

class SubmitStream final : public BidiStream<pb::SubmitRequest, pb::SubmitReply> {
 public:
  SubmitStream(boost::asio::io_context& loop, grpc::CallbackServerContext& call,
               Scheduler& scheduler, Blobs& blobs, Person person, std::chrono::milliseconds patience)
      : BidiStream(loop, call), scheduler_(scheduler), blobs_(blobs), person_(std::move(person)), patience_(patience), silence_(loop) {
    on_message = [this](pb::SubmitRequest& request) {
      heard_ = true;
      if (const auto status = step(request); !status.ok()) end(to_grpc(status.error()));
    };
    on_reads_done = [this] {
      end({grpc::StatusCode::CANCELLED, "the submission ended in the middle"});
    };
    on_closed = [this] { silence_.cancel(); };
  }

  // Within twice its patience of the last word it is over: while it goes on nothing is removed of what was sent.
  void await_words() {
    silence_.expires_after(patience_);
    silence_.async_wait([this, weak = weak_from_this()](boost::system::error_code stopped) {
      const auto live = weak.lock();
      if (stopped || !live) return;
      if (!std::exchange(heard_, false)) return end({grpc::StatusCode::CANCELLED, "the submission went silent"});   // it may come again
      await_words();
    });
  }

 private:
  Status step(const pb::SubmitRequest& request) {
    if (request.has_header()) return on_header(request.header());
    if (!submission_) return Error{Code::FailedPrecondition, "a submission starts with its header", ""};
    if (request.has_blob()) return on_blob(request.blob());
    if (request.has_blobs_done()) return on_blobs_done();
    return Error{Code::InvalidArgument, "an empty step of a submission", ""};
  }

  Status on_header(const pb::SubmitHeader& header) {
    if (submission_) return Error{Code::FailedPrecondition, "a second header in one submission", ""};
    TRY(submission_, submission_from_message(header));
    if (!person_.user.empty()) submission_->user = person_.user;
    TRY(root_, sha256_from_bytes(header.snapshot()));
    extras_.secrets = {header.secrets().begin(), header.secrets().end()};
    extras_.user_env = {header.user_env().begin(), header.user_env().end()};
    extras_.rebuild = header.rebuild();
    TRY(scheduler_.check(*submission_, extras_));   // before anything is sent in vain
    TRY(pack_, blobs_.begin());
    if (!blobs_.missing({root_}).empty()) {   // not has(): a sweep is to know that it comes
      ask_for({root_});
      return ok();
    }
    have_manifest_ = true;
    if (blobs_.is_whole(root_)) return accept();
    Status asked = ask_for_files();
    if (asked.ok() || asked.error().code != Code::DataLoss) return asked;
    have_manifest_ = false;   // damaged where it lies: one that comes anew counts
    ask_for({root_});
    return ok();
  }

  // What is sent in few bytes may be made of many, all on this loop: so only what was asked for is, as large as the manifest says.
  Status on_blob(const pb::BlobPart& part) {
    TRY(const Sha256 name, sha256_from_bytes(part.sha256()));
    const bool is_manifest = !have_manifest_ && name == root_ && part.size() <= kManifestBytesMax;
    const auto file = sizes_.find(name);
    if (!is_manifest && (file == sizes_.end() || file->second != part.size())) {
      return Error{Code::InvalidArgument, fmt::format("{} of {} bytes was not asked for", to_hex(name), part.size()), ""};
    }
    return pack_->add(name, part.size(), part.data(), part.last());
  }

  Status on_blobs_done() {
    if (have_manifest_) {
      for (const Sha256& name : asked_) {
        if (pack_->has(name) || blobs_.has(name)) continue;
        return Error{Code::InvalidArgument, "a file of the snapshot did not come: " + to_hex(name), ""};
      }
      return ask_for_missing();
    }
    if (!pack_->has(root_)) return Error{Code::InvalidArgument, "the manifest did not come", ""};
    have_manifest_ = true;
    return ask_for_files();
  }

  Status ask_for_files() {
    TRY(const std::string bytes, pack_->has(root_) ? pack_->read(root_, kManifestBytesMax)
                                                   : blobs_.read(root_, kManifestBytesMax));
    TRY(const pb::Manifest manifest, parse_manifest(bytes));
    for (const auto& entry : manifest.entry()) {
      if (entry.kind() != pb::Entry::FILE) continue;
      TRY(files_.emplace_back(), sha256_from_bytes(entry.sha256()));
      sizes_.insert_or_assign(files_.back(), entry.size());
    }
    return ask_for_missing();
  }

  // Again once they came: what was here by then may have been found damaged meanwhile.
  Status ask_for_missing() {
    asked_ = blobs_.missing(files_);
    std::erase_if(asked_, [this](const Sha256& name) { return pack_->has(name); });
    if (asked_.empty()) return accept();
    ask_for(asked_);
    return ok();
  }

  void ask_for(const std::vector<Sha256>& names) {
    for (size_t first = 0; first < names.size(); first += kNamesPerMessage) {
      const size_t last = std::min(first + kNamesPerMessage, names.size());
      pb::SubmitReply reply;
      for (size_t i = first; i < last; ++i) reply.mutable_missing()->add_sha256(to_bytes(names[i]));
      reply.mutable_missing()->set_more(last < names.size());
      send(std::move(reply));
    }
  }

  Status accept() {
    TRY(pack_->store());
    TRY(auto accepted, scheduler_.submit(std::move(*submission_), extras_));
    pack_->publish();
    blobs_.set_whole(root_);
    pb::SubmitReply reply;
    *reply.mutable_accepted() = std::move(accepted);
    send(std::move(reply));
    end(grpc::Status::OK);
    return ok();
  }

  // Before the client hears of it the submission is over: what was not published is gone, and a sweep may begin.
  void end(const grpc::Status& how) {
    pack_.reset();
    finish(how);
  }

  Scheduler& scheduler_;
  Blobs& blobs_;
  const Person person_;
  std::optional<Submission> submission_;
  SubmissionExtras extras_;
  Sha256 root_{};
  bool have_manifest_ = false;
  std::vector<Sha256> files_;   // of the manifest
  std::map<Sha256, uint64_t> sizes_;   // of them
  std::vector<Sha256> asked_;   // of them
  std::unique_ptr<PackWriter> pack_;
  const std::chrono::milliseconds patience_;
  boost::asio::steady_timer silence_;
  bool heard_ = false;   // since it last began
};

}  // namespace

std::shared_ptr<BidiStream<pb::SubmitRequest, pb::SubmitReply>> start_submit(
    boost::asio::io_context& loop, grpc::CallbackServerContext& call, Scheduler& scheduler,
    Blobs& blobs, const Person& person, std::chrono::milliseconds patience) {
  auto stream = std::make_shared<SubmitStream>(loop, call, scheduler, blobs, person, patience);
  stream->start();
  boost::asio::post(loop, [weak = std::weak_ptr(stream)] {
    if (const auto live = weak.lock()) live->await_words();
  });
  return stream;
}

}  // namespace dtrain::daemon
