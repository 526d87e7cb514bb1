#include "engine/server/shard_state.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <filesystem>

namespace dtrain::engine {

namespace {

constexpr uint64_t kStateMagic = 0x3776617473746474;
constexpr size_t kPage = 4096;
constexpr int kLockRetry_ms = 20;

// What was stored before is in the mapping before what is stored after, for whoever looks once this
// process is dead: a matter of the compiler alone.
void in_order() {
  std::atomic_signal_fence(std::memory_order_seq_cst);
}

enum class Change : uint32_t {
  None,       // the arenas are whole
  Begun,      // the block may be half changed: put the old one back
  Committed,  // the block is changed, the books may not say so yet
};

size_t paged(size_t bytes) {
  return (bytes + kPage - 1) / kPage * kPage;
}

}  // namespace

struct ShardState::Header {
  uint64_t magic;  // stored last
  uint64_t job;
  int64_t elements;
  int32_t states, writers;
  uint64_t generation, attempt;
  uint64_t begun_at;
  uint32_t filled;
  Change change;
  int64_t block;
  uint64_t updates;  // of the block, once committed
  int64_t writer;
  Progress after;  // of the writer, once committed
  Applied applied;
  Learned learned;
  uint32_t finished;
  uint64_t boot;
};

Result<std::unique_ptr<ShardState>> ShardState::open(const std::string& path, const Shape& shape,
                                                     Deadline deadline) {
  std::unique_ptr<ShardState> state(new ShardState);
  state->path_ = path;
  state->shape_ = shape;
  const auto writers = static_cast<size_t>(shape.writers);
  const auto blocks = static_cast<size_t>(blocks_of(shape.elements));
  const auto arena_bytes = static_cast<size_t>(shape.elements) * sizeof(float);
  const size_t progress_at = kPage;
  const size_t deals_at = progress_at + paged(writers * sizeof(Progress));
  const size_t updates_at = deals_at + paged(writers * sizeof(uint64_t));
  const size_t aside_at = updates_at + paged(blocks * sizeof(uint64_t));
  const size_t arenas_at = aside_at + 3 * kBlock * sizeof(float);
  const auto arenas = static_cast<size_t>(1 + shape.states);
  state->size_ = arenas_at + arenas * paged(arena_bytes);

  int flags = MAP_PRIVATE | MAP_ANONYMOUS;
  bool same_size = false;
  if (!path.empty()) {
    flags = MAP_SHARED;
    std::error_code not_made;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path(), not_made);
    if (not_made) return errno_error("make the folder of " + path, not_made.value());
    state->fd_ = Fd(::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
    if (!state->fd_) return errno_error("open " + path, errno);
    while (::flock(state->fd_.get(), LOCK_EX | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK && errno != EINTR) return errno_error("lock " + path, errno);
      if (deadline.expired()) {
        return Error{Code::DeadlineExceeded,
                     fmt::format("{} is still used by another server after {:g} s", path,
                                 deadline.seconds()),
                     "end the other dtrain-engine"};
      }
      ::poll(nullptr, 0, kLockRetry_ms);
    }
    struct stat found {};
    if (::fstat(state->fd_.get(), &found) != 0) return errno_error("stat " + path, errno);
    same_size = static_cast<size_t>(found.st_size) == state->size_;
    if (!same_size) {
      if (::ftruncate(state->fd_.get(), 0) != 0) return errno_error("truncate " + path, errno);
      // Now, for a mapping without room behind it kills its process.
      const int error = ::posix_fallocate(state->fd_.get(), 0, static_cast<off_t>(state->size_));
      if (error != 0) {
        static_cast<void>(::ftruncate(state->fd_.get(), 0));
        return errno_error("make room for " + path, error);
      }
    }
  }
  void* map = ::mmap(nullptr, state->size_, PROT_READ | PROT_WRITE, flags, state->fd_.get(), 0);
  if (map == MAP_FAILED) return errno_error("map " + path, errno);
  state->map_ = static_cast<char*>(map);
  state->header_ = reinterpret_cast<Header*>(state->map_);
  state->progress_ = reinterpret_cast<Progress*>(state->map_ + progress_at);
  state->deals_ = reinterpret_cast<uint64_t*>(state->map_ + deals_at);
  state->updates_ = reinterpret_cast<uint64_t*>(state->map_ + updates_at);
  state->aside_ = reinterpret_cast<float*>(state->map_ + aside_at);
  for (size_t i = 0; i < arenas; ++i) {
    state->arenas_[i] = reinterpret_cast<float*>(state->map_ + arenas_at + i * paged(arena_bytes));
  }

  Header& header = *state->header_;
  if (same_size && header.magic == kStateMagic && header.job == shape.job &&
      header.elements == shape.elements && header.states == shape.states &&
      header.writers == shape.writers && header.boot == shape.boot && state->is_sound()) {
    state->recover();
    return state;
  }
  header.magic = 0;
  in_order();
  header = Header{.magic = 0,
                  .job = shape.job,
                  .elements = shape.elements,
                  .states = shape.states,
                  .writers = shape.writers,
                  .generation = 0,
                  .attempt = 0,
                  .begun_at = 0,
                  .filled = 0,
                  .change = Change::None,
                  .block = 0,
                  .updates = 0,
                  .writer = 0,
                  .after = {},
                  .applied = {},
                  .learned = {},
                  .finished = 0,
                  .boot = shape.boot};
  in_order();
  header.magic = kStateMagic;
  return state;
}

ShardState::~ShardState() {
  if (map_ != nullptr) ::munmap(map_, size_);
}

Range ShardState::block(int64_t index) const {
  return {index * kBlock, std::min(shape_.elements, (index + 1) * kBlock)};
}

bool ShardState::filled() const {
  return header_->filled != 0;
}
uint64_t ShardState::generation() const {
  return header_->generation;
}
uint64_t ShardState::attempt() const {
  return header_->attempt;
}

uint64_t ShardState::begun_at() const {
  return header_->begun_at;
}

void ShardState::begin_filling(uint64_t generation, uint64_t attempt) {
  header_->filled = header_->finished = 0;
  in_order();
  std::fill_n(progress_, shape_.writers, Progress{});  // of the generation before
  std::fill_n(deals_, shape_.writers, 0);
  header_->applied = {};
  header_->generation = generation;
  header_->attempt = attempt;
}

void ShardState::set_filled(uint64_t updates, uint64_t begun_at) {
  header_->filled = 0;
  header_->change = Change::None;
  in_order();
  header_->begun_at = begun_at;
  header_->learned = {};
  std::fill_n(updates_, blocks(), updates);
  std::fill_n(progress_, shape_.writers, Progress{});
  std::fill_n(deals_, shape_.writers, 0);
  in_order();
  header_->filled = 1;
}

void ShardState::begin_change(int64_t index) {
  const Range range = block(index);
  const size_t bytes = static_cast<size_t>(range.size()) * sizeof(float);
  for (int i = 0; i <= shape_.states; ++i) {
    std::memcpy(aside_ + i * kBlock, arenas_[i] + range.begin, bytes);
  }
  header_->block = index;
  in_order();
  header_->change = Change::Begun;
  in_order();
}

void ShardState::commit_change(int writer, uint64_t sequence) {
  Header& header = *header_;
  header.updates = updates_[header.block] + 1;
  header.writer = writer;
  header.after = {sequence, static_cast<uint64_t>(header.block) + 1};
  in_order();
  header.change = Change::Committed;
  in_order();
  updates_[header.block] = header.updates;
  progress_[writer] = header.after;
  in_order();
  header.change = Change::None;
  in_order();
}

// A store is whole or not there, and the largest number is always in somebody's hands: which is next follows from
// what each has, whenever this process is killed.
uint64_t ShardState::deal(int writer) {
  if (deals_[writer] == 0) deals_[writer] = 1 + *std::max_element(deals_, deals_ + shape_.writers);
  return deals_[writer] - 1;
}

bool ShardState::deal_next(int writer, uint64_t done) {
  if (deals_[writer] != done + 1) return false;
  deals_[writer] = 1 + *std::max_element(deals_, deals_ + shape_.writers);
  return true;
}

const ShardState::Learned& ShardState::learned() const {
  return header_->learned;
}

void ShardState::add_learned(const Learned& more) {
  header_->learned.loss += more.loss;
  header_->learned.rows += more.rows;
}

const ShardState::Applied& ShardState::applied() const {
  return header_->applied;
}

void ShardState::set_applied(const Applied& applied) {
  header_->applied.step = 0;
  in_order();
  header_->applied.gradient_scale = applied.gradient_scale;
  header_->applied.samples = applied.samples;
  in_order();
  header_->applied.step = applied.step;
  in_order();
}

// Whether what a change names is there.
bool ShardState::is_sound() const {
  const Header& header = *header_;
  if (header.change == Change::None) return true;
  if (header.change != Change::Begun && header.change != Change::Committed) return false;
  return header.block >= 0 && header.block < blocks() && header.writer >= 0 && header.writer < shape_.writers;
}

void ShardState::recover() {
  Header& header = *header_;
  if (header.change == Change::Begun) {
    const Range range = block(header.block);
    const size_t bytes = static_cast<size_t>(range.size()) * sizeof(float);
    for (int i = 0; i <= shape_.states; ++i) {
      std::memcpy(arenas_[i] + range.begin, aside_ + i * kBlock, bytes);
    }
  } else if (header.change == Change::Committed) {
    updates_[header.block] = header.updates;
    progress_[header.writer] = header.after;
  }
  in_order();
  header.change = Change::None;
}

bool ShardState::finished() const {
  return header_->finished != 0;
}

void ShardState::set_finished() {
  header_->finished = 1;
}

void ShardState::remove() {
  if (path_.empty()) return;
  ::unlink(path_.c_str());
  // The folder goes with the last of the servers that share it.
  ::rmdir(std::filesystem::path(path_).parent_path().c_str());
}

}  // namespace dtrain::engine
