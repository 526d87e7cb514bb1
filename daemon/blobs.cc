#include "daemon/blobs.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <system_error>
#include <unordered_set>
#include <utility>

#include "daemon/blob_sweep.h"
#include "schema/framing.h"

namespace dtrain::daemon {

namespace {

// A pack ends with its table: frames of rows, then one frame that says where the first of them is.
constexpr uint32_t kTableEnd = 2;
constexpr uint32_t kTableRows = 3;   // 1 were those without checksums
struct TableEnd {
  uint64_t table_offset;
  uint64_t rows;
};
constexpr size_t kTableEndBytes = kFrameOverheadBytes + sizeof(TableEnd);
constexpr size_t kRowsInFrame = 1000;

constexpr size_t kBufferBytes = 1 << 20;
// Bytes go to the disk while the next ones arrive, so that the sync at the end has little left to
// do.
constexpr uint64_t kWritebackBytes = 8 << 20;

constexpr std::string_view kPackSuffix = ".pack";
constexpr std::string_view kTemporarySuffix = ".tmp";

Result<std::string> read_at(int fd, uint64_t offset, uint64_t size) {
  std::string bytes(size, '\0');
  size_t got = 0;
  while (got < bytes.size()) {
    const ssize_t n =
        ::pread(fd, bytes.data() + got, bytes.size() - got, static_cast<off_t>(offset + got));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno_error("read a pack", errno);
    if (n == 0) return Error{Code::DataLoss, "a pack is shorter than its table says", ""};
    got += static_cast<size_t>(n);
  }
  return bytes;
}

Error damaged(const Sha256& name) {
  return {Code::DataLoss, fmt::format("blob {} is damaged", to_hex(name)), "submit again; if it comes back, check the disk"};
}

Result<std::string> read_blob(int fd, const Sha256& name, uint64_t offset, uint64_t stored_bytes,
                              uint64_t size_bytes, uint64_t bytes_max) {
  if (size_bytes > bytes_max || stored_bytes > bytes_max + (bytes_max >> 8) + 1024) {
    return Error{
        Code::ResourceExhausted,
        fmt::format("a blob of {} bytes, at most {} are expected here", size_bytes, bytes_max), ""};
  }
  TRY(const std::string frame, read_at(fd, offset, stored_bytes));
  TRY(std::string bytes, decompress_blob(frame, size_bytes));
  if (sha256(bytes) != name) return damaged(name);
  return bytes;
}

}  // namespace

Result<std::unique_ptr<Blobs>> Blobs::open(const std::filesystem::path& folder) {
  std::error_code failed;
  std::filesystem::create_directories(folder, failed);
  if (failed) return errno_error("create " + folder.native(), failed.value());
  std::unique_ptr<Blobs> blobs(new Blobs(folder));
  blobs->folder_fd_ = Fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!blobs->folder_fd_) return errno_error("open " + folder.native(), errno);

  std::vector<uint64_t> packs;
  std::filesystem::directory_iterator item(folder, failed);
  for (; !failed && item != std::filesystem::directory_iterator(); item.increment(failed)) {
    const std::string name = item->path().filename().native();
    if (name.ends_with(kTemporarySuffix)) {
      ::unlink(item->path().c_str());  // of a submission that was never acknowledged
      continue;
    }
    uint64_t pack = 0;
    const char* const end = name.data() + name.size();
    const auto [rest, error] = std::from_chars(name.data(), end, pack);
    const auto suffix = static_cast<size_t>(end - rest);
    if (error == std::errc() && std::string_view(rest, suffix) == kPackSuffix) {
      packs.push_back(pack);
    }
  }
  if (failed) return errno_error("list " + folder.native(), failed.value());
  std::sort(packs.begin(), packs.end());
  for (const uint64_t pack : packs) {
    blobs->next_pack_ = pack + 1;
    if (auto loaded = blobs->load_pack(pack); !loaded.ok()) {
      blobs->notices_.push_back(
          fmt::format("{}: {}", blobs->pack_path(pack).native(), loaded.error().message));
    }
  }
  return blobs;
}

std::filesystem::path Blobs::pack_path(uint64_t pack) const {
  return folder_ / fmt::format("{}{}", pack, kPackSuffix);
}

Status Blobs::load_pack(uint64_t pack) {
  const Error no_table{Code::DataLoss, "has no whole table; its blobs are lost until sent again",
                       ""};
  const Fd file(::open(pack_path(pack).c_str(), O_RDONLY | O_CLOEXEC));
  struct stat st {};
  if (!file || ::fstat(file.get(), &st) != 0) return errno_error("open", errno);
  const auto size = static_cast<uint64_t>(st.st_size);
  if (size < kTableEndBytes) return no_table;

  TRY(const std::string last, read_at(file.get(), size - kTableEndBytes, kTableEndBytes));
  Frame frame;
  TableEnd end{};
  if (read_frame(last, frame) != FrameStatus::Good || frame.kind != kTableEnd) return no_table;
  std::memcpy(&end, frame.payload.data(), sizeof end);

  std::vector<TableRow> rows;
  bool sane = end.table_offset <= size;
  TRY(const uint64_t scanned,
      scan_frames(file.get(), end.table_offset, [&](uint64_t, const Frame& f) {
        if (f.kind != kTableRows || f.payload.size() < sizeof(TableRow)) return;
        const size_t before = rows.size();
        rows.resize(before + f.payload.size() / sizeof(TableRow));
        std::memcpy(rows.data() + before, f.payload.data(),
                    (rows.size() - before) * sizeof(TableRow));
      }));
  for (TableRow& row : rows) {
    const Location& at = row.location;
    sane = sane && at.offset <= end.table_offset && at.stored_bytes <= end.table_offset - at.offset;
    row.location.pack = pack;
  }
  if (!sane || scanned != size || rows.size() != end.rows) return no_table;
  index_.reserve(index_.size() + rows.size());
  for (const TableRow& row : rows) enter(row);
  packs_.insert(pack);
  return ok();
}

// The newest place counts: an older pack may be on its way out.
void Blobs::enter(const TableRow& row) {
  const auto [found, added] = index_.try_emplace(row.name, row.location);
  if (!added) stored_bytes_ -= std::exchange(found->second, row.location).stored_bytes;
  stored_bytes_ += row.location.stored_bytes;
}

bool Blobs::is_whole(const Sha256& root) {
  if (marking_ != nullptr) marking_->keep_tree(root);
  return has(root) && whole_.contains(root);
}

std::vector<Sha256> Blobs::missing(const std::vector<Sha256>& names) {
  if (marking_ != nullptr) marking_->keep(names);
  std::vector<Sha256> result;
  std::unordered_set<Sha256, Sha256Hash> seen;
  for (const Sha256& name : names) {
    if (!has(name) && seen.insert(name).second) result.push_back(name);
  }
  return result;
}

Result<Blobs::Stored> Blobs::find(const Sha256& name) const {
  const auto found = index_.find(name);
  if (found == index_.end()) {
    return Error{Code::NotFound, fmt::format("blob {} is not here, or was found damaged", to_hex(name)), "submit again"};
  }
  const Location& at = found->second;
  Fd file(::open(pack_path(at.pack).c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return errno_error("open " + pack_path(at.pack).native(), errno);
  return Stored{std::move(file), at.offset, at.stored_bytes, at.size_bytes, at.checksum};
}

Error Blobs::forget(const Sha256& name) {
  if (const auto found = index_.find(name); found != index_.end()) {
    stored_bytes_ -= found->second.stored_bytes;
    index_.erase(found);
    whole_.clear();   // who lists it nobody knows
  }
  return damaged(name);
}

Result<std::string> Blobs::read(const Sha256& name, uint64_t bytes_max) const {
  TRY(const Stored stored, find(name));
  return read_blob(stored.fd.get(), name, stored.offset, stored.stored_bytes, stored.size_bytes,
                   bytes_max);
}

Result<std::unique_ptr<PackWriter>> Blobs::begin() {
  return std::unique_ptr<PackWriter>(new PackWriter(*this, next_pack_++));
}

PackWriter::PackWriter(Blobs& blobs, uint64_t pack)
    : blobs_(blobs),
      pack_(pack),
      temporary_(blobs.folder_ / fmt::format("{}{}", pack, kTemporarySuffix)) {
  ++blobs_.writers_;
}

PackWriter::~PackWriter() {
  --blobs_.writers_;
  if (fd_) ::unlink(temporary_.c_str());
  if (stored_) ::unlink(blobs_.pack_path(pack_).c_str());
}

Status PackWriter::add(const Sha256& name, uint64_t size_bytes, std::string_view part, bool last) {
  Status added = add_part(name, size_bytes, part, last);
  spoiled_ = spoiled_ || !added.ok();
  return added;
}

Status PackWriter::add_part(const Sha256& name, uint64_t size_bytes, std::string_view part,
                            bool last) {
  if (!in_blob_) {
    in_blob_ = true;
    current_ = {name, {written_bytes_ + buffer_.size(), 0, size_bytes, pack_, 0}};
    checksum_ = Checksum();
    decoder_.begin(name, size_bytes, -1);
  }
  if (current_.name != name || current_.location.size_bytes != size_bytes) {
    return Error{Code::InvalidArgument, "parts of two blobs are mixed", ""};
  }
  TRY(decoder_.add(part));
  current_.location.stored_bytes += part.size();
  checksum_.add(part);
  buffer_.append(part);
  if (buffer_.size() >= kBufferBytes) TRY(flush());
  if (!last) return ok();

  TRY(decoder_.finish());
  current_.location.checksum = checksum_.value();
  in_blob_ = false;
  rows_by_name_.try_emplace(name, rows_.size());
  rows_.push_back(current_);
  return ok();
}

Status PackWriter::flush() {
  if (!fd_) {
    fd_ = Fd(::open(temporary_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    if (!fd_) return not_kept(errno);
  }
  std::string_view left = buffer_;
  while (!left.empty()) {
    const ssize_t n =
        ::pwrite(fd_.get(), left.data(), left.size(), static_cast<off_t>(written_bytes_));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return not_kept(errno);
    left.remove_prefix(static_cast<size_t>(n));
    written_bytes_ += static_cast<uint64_t>(n);
  }
  buffer_.clear();
  if (written_bytes_ - started_bytes_ >= kWritebackBytes) {
    ::sync_file_range(fd_.get(), static_cast<off_t>(started_bytes_),
                      static_cast<off_t>(written_bytes_ - started_bytes_), SYNC_FILE_RANGE_WRITE);
    started_bytes_ = written_bytes_;
  }
  return ok();
}

Result<std::string> PackWriter::read(const Sha256& name, uint64_t bytes_max) {
  const auto found = rows_by_name_.find(name);
  if (found == rows_by_name_.end()) {
    return Error{Code::NotFound, fmt::format("no blob {}", to_hex(name)), ""};
  }
  TRY(flush());
  const Blobs::Location& at = rows_[found->second].location;
  return read_blob(fd_.get(), name, at.offset, at.stored_bytes, at.size_bytes, bytes_max);
}

Status PackWriter::store() {
  if (spoiled_ || in_blob_) {
    return Error{Code::DataLoss, "the submission's blobs did not arrive whole", "submit again"};
  }
  if (rows_.empty()) return ok();
  const TableEnd end{written_bytes_ + buffer_.size(), rows_.size()};
  for (size_t first = 0; first < rows_.size(); first += kRowsInFrame) {
    const size_t count = std::min(kRowsInFrame, rows_.size() - first);
    append_frame(buffer_, kTableRows,
                 {reinterpret_cast<const char*>(&rows_[first]), count * sizeof(Blobs::TableRow)},
                 {});
  }
  append_frame(buffer_, kTableEnd, {reinterpret_cast<const char*>(&end), sizeof end}, {});
  TRY(flush());
  if (::fdatasync(fd_.get()) != 0) return not_kept(errno);
  const auto path = blobs_.pack_path(pack_);
  if (::rename(temporary_.c_str(), path.c_str()) != 0) {
    return not_kept(errno);
  }
  fd_.reset();
  stored_ = true;
  if (::fsync(blobs_.folder_fd_.get()) != 0) return not_kept(errno);
  return ok();
}

// Whose files are not kept is not accepted either, and does not wait.
Error PackWriter::not_kept(int error) const {
  Error said = errno_error("keep the project's files in " + blobs_.folder_.native(), error);
  if (error == ENOSPC || error == EDQUOT) said.hint = "free some disk space there (dtrain prune), and submit it again";
  return said;
}

void PackWriter::publish() {
  if (!std::exchange(stored_, false)) return;
  blobs_.packs_.insert(pack_);
  for (const Blobs::TableRow& row : rows_) blobs_.enter(row);
  rows_.clear();
  rows_by_name_.clear();
}

Status PackWriter::commit() {
  TRY(store());
  publish();
  return ok();
}

}  // namespace dtrain::daemon
