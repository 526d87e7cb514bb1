#include "daemon/blob_sweep.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <functional>
#include <unordered_map>

#include "schema/manifest.h"

namespace dtrain::daemon {

namespace {

constexpr size_t kCopyBytes = 256 << 10;

}  // namespace

BlobSweep::BlobSweep(Blobs& blobs, std::vector<Sha256> roots, bool dry)
    : blobs_(blobs), dry_(dry), roots_(std::move(roots)) {
  INVARIANT(may_begin(blobs), "a sweep begins between submissions");
  blobs_.marking_ = this;
}

BlobSweep::~BlobSweep() {
  if (blobs_.marking_ == this) blobs_.marking_ = nullptr;
}

Result<bool> BlobSweep::step(std::chrono::microseconds time) {
  const auto end = std::chrono::steady_clock::now() + time;
  do {
    if (phase_ == Phase::Done) return false;
    if (phase_ == Phase::Clear) {
      TRY(clear_some());
    } else if (!roots_.empty()) {
      const Sha256 root = roots_.back();
      roots_.pop_back();
      TRY(mark(root));
    } else {
      TRY(cut());
    }
  } while (std::chrono::steady_clock::now() < end);
  return phase_ != Phase::Done;
}

Status BlobSweep::mark(const Sha256& root) {
  if (!blobs_.has(root)) return ok();   // lost with a damaged pack: its experiment can't run again
  if (!read_.insert(root).second) return ok();
  const auto bytes = blobs_.read(root, kManifestBytesMax);
  if (!bytes.ok() && bytes.error().code == Code::DataLoss) {
    // As lost as with its pack. Forgotten, it is sent again with its files by whoever submits them again.
    std::fprintf(stderr, "prune: the manifest of a snapshot is lost: %s\n", bytes.error().message.c_str());
    return ok();
  }
  if (!bytes.ok()) return bytes.error();
  needed_.insert(root);
  std::string_view rest = *bytes;
  for (ManifestEntry entry; read_entry(rest, entry);) {
    if (entry.kind != pb::Entry::FILE) continue;
    TRY(const Sha256 name, sha256_from_bytes(entry.sha256));
    needed_.insert(name);
  }
  if (rest.empty()) return ok();
  return Error{Code::DataLoss, fmt::format("manifest {} makes no sense", to_hex(root)), ""};
}

Status BlobSweep::cut() {
  std::unordered_map<uint64_t, Pack> stay;
  std::unordered_map<uint64_t, uint64_t> stay_bytes;
  for (const auto& [name, location] : blobs_.index_) {
    if (!needed_.contains(name)) {
      unneeded_bytes_ += location.stored_bytes;
      continue;
    }
    stay[location.pack].stay.emplace_back(name, location);
    stay_bytes[location.pack] += location.stored_bytes;
  }
  phase_ = Phase::Done;
  blobs_.marking_ = nullptr;
  if (dry_) return ok();

  phase_ = Phase::Clear;
  blobs_.stored_bytes_ -= unneeded_bytes_;
  std::erase_if(blobs_.index_, [this](const auto& blob) { return !needed_.contains(blob.first); });
  std::erase_if(blobs_.whole_, [this](const Sha256& root) { return !needed_.contains(root); });
  for (const uint64_t number : blobs_.packs_) {
    struct stat file {};
    if (::stat(blobs_.pack_path(number).c_str(), &file) != 0) continue;
    // Not worth the writing while most of it is needed.
    if (2 * stay_bytes[number] > static_cast<uint64_t>(file.st_size)) continue;
    Pack& pack = packs_.emplace_back(std::move(stay[number]));
    pack.number = number;
  }
  // From the back: on a full disk what is deleted makes room for what is written.
  std::ranges::sort(packs_, std::greater(),
                    [&](const Pack& pack) { return stay_bytes[pack.number]; });
  return ok();
}

Status BlobSweep::clear_some() {
  if (packs_.empty()) {
    phase_ = Phase::Done;
    return ok();
  }
  const Pack& pack = packs_.back();
  if (next_ < pack.stay.size()) return copy_some();
  if (writer_) {
    TRY(writer_->commit());
    writer_.reset();
  }
  return drop_pack();
}

Status BlobSweep::copy_some() {
  const Pack& pack = packs_.back();
  if (!writer_) {
    TRY(writer_, blobs_.begin());
    from_ = Fd(::open(blobs_.pack_path(pack.number).c_str(), O_RDONLY | O_CLOEXEC));
    if (!from_) return errno_error("open " + blobs_.pack_path(pack.number).native(), errno);
  }
  const auto& [name, at] = pack.stay[next_];
  std::string part(std::min<uint64_t>(kCopyBytes, at.stored_bytes - copied_bytes_), '\0');
  const ssize_t n = ::pread(from_.get(), part.data(), part.size(),
                            static_cast<off_t>(at.offset + copied_bytes_));
  if (n < 0 && errno == EINTR) return ok();
  if (n < 0) return leave_pack(errno_error("read it", errno));
  if (n == 0) return leave_pack({Code::DataLoss, "it is shorter than its table says", ""});
  copied_bytes_ += static_cast<uint64_t>(n);
  const bool last = copied_bytes_ == at.stored_bytes;
  Status added = writer_->add(name, at.size_bytes, {part.data(), static_cast<size_t>(n)}, last);
  if (!added.ok() && added.error().code == Code::DataLoss) return leave_pack(added.error());
  TRY(added);
  if (last) {
    copied_bytes_ = 0;
    ++next_;
  }
  return ok();
}

// Something in it is damaged: it stays as it is, with all that is needed of it, and holds up no other.
Status BlobSweep::leave_pack(const Error& why) {
  std::fprintf(stderr, "prune: %s stays: %s\n", blobs_.pack_path(packs_.back().number).c_str(), why.message.c_str());
  packs_.pop_back();
  writer_.reset();
  from_.reset();
  next_ = 0;
  copied_bytes_ = 0;
  return ok();
}

// Nothing is found there any more: what stays was entered anew, what doesn't was forgotten.
Status BlobSweep::drop_pack() {
  const uint64_t number = packs_.back().number;
  packs_.pop_back();
  next_ = 0;
  from_.reset();
  blobs_.packs_.erase(number);
  if (::unlink(blobs_.pack_path(number).c_str()) != 0 && errno != ENOENT) {
    return errno_error("delete " + blobs_.pack_path(number).native(), errno);
  }
  return ok();
}

}  // namespace dtrain::daemon
