#include "cli/submit.h"
#include "cli/active_python.h"
#include "cli/escapes.h"
#include "cli/remote.h"

#include <fmt/format.h>
#include <poll.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "schema/quote.h"
#include "schema/random_id.h"

namespace dtrain::cli {

namespace {

constexpr int kTriesMax = 10;
constexpr int64_t kRetryFirstMs = 50;
constexpr int64_t kRetryMaxMs = 2'000;

// One try over one stream.
class Attempt {
 public:
  Attempt(Connection& connection, SnapshotBlobs* blobs, const SubmitProgress& progress,
          Signals* tied)
      : blobs_(blobs),
        progress_(progress),
        tied_(tied),
        call_(connection.channel(), kSubmitMethod) {}

  Result<pb::Accepted> run(const pb::SubmitHeader& header) {
    pb::SubmitRequest request;
    *request.mutable_header() = header;
    if (!call_.write(request)) return broken();
    list_ = header.snapshot();
    std::vector<Sha256> missing;
    pb::SubmitReply reply;
    while (call_.read(reply)) {
      // Accepted is accepted, however the stream ends.
      if (reply.has_accepted()) return std::move(*reply.mutable_accepted());
      for (const std::string& name : reply.missing().sha256()) {
        TRY(const Sha256 digest, sha256_from_bytes(name));
        missing.push_back(digest);
      }
      if (reply.missing().more()) continue;
      auto sent = send(missing);
      if (!sent.ok()) {
        return call_.ended() ? broken() : std::move(sent).error();
      }
      missing.clear();
    }
    return broken();
  }

 private:
  Status send(const std::vector<Sha256>& missing) {
    if (blobs_ == nullptr && !missing.empty()) {
      return Error{Code::NotFound, "the daemon no longer has the snapshot of that experiment",
                   "dtrain train syncs the project and starts it anew"};
    }
    std::vector<uint64_t> sizes;
    for (const Sha256& name : missing) {
      TRY(const uint64_t size_bytes, blobs_->size(name));
      sizes.push_back(size_bytes);
      if (!is_list(name)) total_bytes_ += size_bytes;
    }
    for (size_t i = 0; i < missing.size(); ++i) {
      TRY(send_blob(missing[i], sizes[i]));
      if (is_list(missing[i])) continue;
      sent_bytes_ += sizes[i];
      if (progress_) progress_(sent_bytes_, total_bytes_);
    }
    pb::SubmitRequest request;
    request.mutable_blobs_done();
    return write(request);
  }

  Status send_blob(const Sha256& name, uint64_t size_bytes) {
    pb::SubmitRequest request;
    uint64_t frame_bytes = 0;
    return blobs_->send(name, [&](std::string_view part, bool last) -> Status {
      pb::BlobPart& blob = *request.mutable_blob();
      blob.set_sha256(to_bytes(name));
      blob.set_size(size_bytes);
      blob.set_data(part.data(), part.size());
      blob.set_last(last);
      TRY(write(request));
      // How much of a blob a part of its frame stands for is not known; for the bar a guess is
      // enough.
      frame_bytes = std::min(frame_bytes + part.size(), size_bytes);
      if (progress_ && !is_list(name)) progress_(sent_bytes_ + frame_bytes, total_bytes_);
      return ok();
    });
  }

  // The list of files goes ahead, and how much follows is known only then.
  bool is_list(const Sha256& name) const { return to_bytes(name) == list_; }

  Status write(const pb::SubmitRequest& request) {
    while (const int number = tied_ == nullptr ? 0 : tied_->take()) {
      if (number != SIGWINCH) end_by(number);
    }
    if (call_.write(request)) return ok();
    return Error{Code::Unavailable, "the connection to the daemon broke", ""};
  }

  // Why the stream ended without an answer.
  Error broken() {
    Status status = call_.finish();
    if (!status.ok()) return std::move(status).error();
    return {Code::Unavailable, "the daemon ended the submission without an answer", ""};
  }

  SnapshotBlobs* blobs_;
  const SubmitProgress& progress_;
  Signals* const tied_;
  RpcCall call_;
  std::string list_;
  uint64_t sent_bytes_ = 0;
  uint64_t total_bytes_ = 0;
};

bool went_away(Code code) {
  return code == Code::Unavailable || code == Code::Cancelled;
}

}  // namespace

std::string user_name() {
  constexpr size_t kMostBytes = 64;
  if (const char* name = std::getenv("DTRAIN_USER"); name != nullptr && *name != '\0') return on_one_line(as_utf8(std::string_view(name).substr(0, kMostBytes)));
  const passwd* user = getpwuid(getuid());
  return user != nullptr ? as_utf8(user->pw_name) : fmt::format("{}", getuid());
}

void add_user(pb::SubmitHeader& header) {
  header.set_user(user_name());
  if (!remote_machine().empty()) return;   // what is here is not there
  for (const char* name : kPythonVariables) {
    const char* value = std::getenv(name);
    if (value != nullptr && *value != '\0') (*header.mutable_user_env())[name] = value;
  }
}

Result<pb::SubmitHeader> header_again(const Spec& spec, const pb::ShowReply& shown) {
  pb::SubmitHeader header;
  TRY(const std::string submission_id, random_id());
  header.set_submission_id(submission_id);
  header.set_spec_yaml(to_yaml(spec));
  header.set_snapshot(shown.snapshot());
  header.set_project_dir(shown.experiment().project_dir());
  header.set_user(user_name());
  *header.mutable_user_env() = shown.user_env();
  return header;
}

Status take_secrets(const Spec& spec, pb::SubmitHeader& header, const std::map<std::string, std::string>& known) {
  for (const std::string& name : spec.env_from_shell) {
    if (const auto secret = known.find(name); secret != known.end()) {
      (*header.mutable_secrets())[name] = secret->second;
      continue;
    }
    const char* value = std::getenv(name.c_str());
    if (value == nullptr) {
      return Error{Code::InvalidArgument,
                   fmt::format("{} is to be taken from your shell, but is not set there", name),
                   fmt::format("export {}=..., or take it out of env", name)};
    }
    (*header.mutable_secrets())[name] = value;
  }
  return ok();
}

Result<pb::Accepted> submit(Connection& connection, const CommandContext& context,
                            const pb::SubmitHeader& header, SnapshotBlobs* blobs,
                            const SubmitProgress& progress, Signals* tied) {
  int64_t retry_ms = kRetryFirstMs;
  for (int tries = 1;; ++tries) {
    auto accepted = Attempt(connection, blobs, progress, tied).run(header);
    if (accepted.ok() || !went_away(accepted.error().code) || tries == kTriesMax) return accepted;
    poll(nullptr, 0, static_cast<int>(retry_ms));
    retry_ms = std::min(2 * retry_ms, kRetryMaxMs);
    auto again = connect(connection.home(), Autostart::IfNeeded, context);
    if (again.ok()) {
      connection = std::move(again).value();
    } else if (!went_away(again.error().code)) {
      return std::move(again).error();
    }
  }
}

}  // namespace dtrain::cli
