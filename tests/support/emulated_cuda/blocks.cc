// How kernels run: blocks one at a time, each of their threads a fiber.
#include <ucontext.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <map>
#include <mutex>
#include <vector>

#include "cuda_runtime.h"
#include "devices.h"
#include "emulator.h"

namespace emulated {

namespace {

constexpr size_t kStackBytes = 128 << 10;
constexpr int kWarp = 32;

[[noreturn]] void die(const char* why) {
  std::fprintf(stderr, "emulated device: %s\n", why);
  std::abort();
}

// Who has come to a barrier, and how often all have.
struct Meeting {
  int arrived = 0;
  uint64_t round = 0;
};

// Where a context goes on. The compiler's own jumps: swapcontext() asks the kernel for the signal mask every
// time, which is most of what a barrier would take. noipa: while one jumps, others change what it reads.
using Jump = void* [5];

[[gnu::noipa, gnu::no_sanitize("address")]] void leap(Jump& to) { __builtin_longjmp(to, 1); }
[[gnu::noipa, gnu::no_sanitize("address")]] void jump(Jump& from, Jump& to) {
  if (__builtin_setjmp(from) == 0) leap(to);
}

struct Warp {
  Meeting meeting;
  int living = 0;
  // What lanes gave, and in which round; by turns two of them, so that nobody overwrites what another has still to read.
  struct Slots {
    std::array<uint64_t, kWarp> values = {};
    std::array<uint64_t, kWarp> given = {};  // one more than the round: 0 is never
  };
  std::array<Slots, 2> slots;
};

// Begun once, by the first block that needs so many; it lasts for all that come after.
struct Fiber {
  ucontext_t context = {};  // where it begins
  Jump jump = {};
  bool begun = false;
  std::unique_ptr<char[]> stack{new char[kStackBytes]};
  Here here;
  // Of its thread.
  size_t warp_index = 0, lane = 0;
  Warp* warp = nullptr;
  // What it waits for; and whether that is still to come.
  const Meeting* meeting = nullptr;
  uint64_t round = 0;
  bool waits() const { return meeting != nullptr && meeting->round == round; }
  bool done = false;
};

// Runs the blocks of launches, one at a time. One for each thread of the host.
class Engine {
 public:
  void run(const Launch& launch, const std::function<void()>& kernel) {
    const auto blocks = static_cast<size_t>(launch.grid.x) * launch.grid.y * launch.grid.z;
    std::vector<size_t> order(blocks);
    for (size_t i = 0; i < blocks; ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), random_);
    for (const size_t block : order) run_block(launch, block, kernel);
  }

  Fiber& running() { return *running_; }
  // At a multiple of 32, as launch.h declares it, and of no more.
  void* shared() {
    const auto at = reinterpret_cast<uintptr_t>(shared_.data());
    return shared_.data() + (96 - at % 64) % 64;
  }

  void meet(Meeting& meeting, int expected) {
    Fiber& mine = *running_;
    mine.round = meeting.round;
    ++meeting.arrived;
    release(meeting, expected);
    if (meeting.round != mine.round) return;
    mine.meeting = &meeting;
    yield();
    mine.meeting = nullptr;
  }
  void sync_block() { meet(block_, living_); }
  void sync_warp() { meet(running_->warp->meeting, running_->warp->living); }

 private:
  // A fiber takes one thread after the other, until one has to wait: then the next one takes the rest. So
  // kernels without barriers run on one.
  static void enter() {
    Engine& engine = current();
    while (true) {
      while (engine.next_ < engine.threads_) {
        engine.begin_thread(engine.next_++);
        (*engine.kernel_)();
        engine.end_thread();
      }
      engine.running().done = true;
      engine.yield();
    }
  }
  void begin_thread(size_t thread) {
    running_->warp_index = thread / kWarp;
    running_->warp = &warps_[running_->warp_index];
    running_->lane = thread % kWarp;
    const auto at = static_cast<unsigned>(thread);
    running_->here = {{at % size_.x, at / size_.x % size_.y, at / size_.x / size_.y}, block_at_, size_, grid_};
  }
  // Those that wait go on without it.
  void end_thread() {
    --living_;
    Warp& mine = *running_->warp;
    --mine.living;
    release(mine.meeting, mine.living);
    release(block_, living_);
    progressed_ = true;
  }
  static Engine& current();
  friend Engine& engine();

  void release(Meeting& meeting, int expected) {
    if (expected == 0 || meeting.arrived < expected) return;
    meeting.arrived = 0;
    ++meeting.round;
    progressed_ = true;
  }

  void yield() { jump(running_->jump, scheduler_); }

  void run_block(const Launch& launch, size_t block, const std::function<void()>& kernel) {
    size_ = launch.block;
    grid_ = launch.grid;
    block_at_ = place(block, grid_);
    threads_ = static_cast<size_t>(size_.x) * size_.y * size_.z;
    next_ = 0;
    shared_.assign(launch.shared_bytes + 96, 0xff);  // all bits: no number
    warps_.assign((threads_ + kWarp - 1) / kWarp, {});
    for (size_t i = 0; i < threads_; ++i) ++warps_[i / kWarp].living;
    block_ = {};
    living_ = static_cast<int>(threads_);
    kernel_ = &kernel;
    size_t used = 0;
    bool everyone = true;
    for (bool all_done = false; !all_done;) {
      progressed_ = false;
      all_done = true;
      // Some warps at a time, so that one may be far ahead of the others wherever no barrier holds it.
      const uint64_t chosen = everyone ? ~uint64_t{0} : random_();
      for (size_t i = 0; i < used; ++i) {
        Fiber& fiber = *fibers_[i];
        if (!fiber.done && !fiber.waits() && (chosen >> fiber.warp_index % 64 & 1) != 0) resume(fiber);
        all_done = all_done && fiber.done;
      }
      while (next_ < threads_) {
        if (used == fibers_.size()) fibers_.push_back(std::make_unique<Fiber>());
        Fiber& fiber = *fibers_[used++];
        fiber.done = false;
        resume(fiber);
        all_done = all_done && fiber.done;
        progressed_ = true;
      }
      if (!all_done && !progressed_ && everyone) die("some threads of a block wait for others at another barrier");
      everyone = !progressed_;
    }
  }
  void resume(Fiber& fiber) {
    running_ = &fiber;
    if (fiber.begun) {
      jump(scheduler_, fiber.jump);
    } else {
      start(fiber);
    }
  }
  void start(Fiber& fiber) {
    if (getcontext(&fiber.context) != 0) die("getcontext failed");
    fiber.context.uc_stack.ss_sp = fiber.stack.get();
    fiber.context.uc_stack.ss_size = kStackBytes;
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, &Engine::enter, 0);
    fiber.begun = true;
    begin(fiber);
  }
  [[gnu::noipa, gnu::no_sanitize("address")]] void begin(Fiber& fiber) {
    if (__builtin_setjmp(scheduler_) == 0) setcontext(&fiber.context);
  }
  static dim3 place(size_t block, const dim3& grid) {
    const auto at = static_cast<unsigned>(block);
    return {at % grid.x, at / grid.x % grid.y, at / grid.x / grid.y};
  }

  std::vector<std::unique_ptr<Fiber>> fibers_;
  std::vector<Warp> warps_;
  std::vector<unsigned char> shared_;
  Jump scheduler_ = {};
  Fiber* running_ = nullptr;
  // Of the block that runs.
  const std::function<void()>* kernel_ = nullptr;
  dim3 size_, grid_, block_at_;
  size_t threads_ = 0, next_ = 0;
  Meeting block_;
  int living_ = 0;
  bool progressed_ = false;
  std::mt19937_64 random_{std::random_device{}()};
};

Engine& engine() {
  thread_local Engine one;
  return one;
}
Engine& Engine::current() { return engine(); }

std::atomic<int64_t> launch_count = 0;
std::mutex allowed_mutex;
std::map<const void*, size_t> allowed;  // bytes of shared memory, by kernel

}  // namespace

const Here& here() { return engine().running().here; }
int lane() { return static_cast<int>(engine().running().lane); }
void sync_block() { engine().sync_block(); }
void sync_warp() { engine().sync_warp(); }
void* shared_memory() { return engine().shared(); }

uint64_t exchange_bits(uint64_t mine, int from) {
  Engine& here = engine();
  const Fiber& fiber = here.running();
  Warp& warp = *fiber.warp;
  const uint64_t round = warp.meeting.round + 1;
  auto& slots = warp.slots[round % 2];
  slots.values[fiber.lane] = mine;
  slots.given[fiber.lane] = round;
  here.sync_warp();
  if (slots.given[static_cast<size_t>(from)] != round) die("a shuffle takes what a lane that has ended should give");
  return slots.values[static_cast<size_t>(from)];
}

// Of compute capability 9.0 these are the limits, and what a block gets without asking for more; less what a kernel may
// have by name, which is of the same memory.
constexpr size_t kByName = 1 << 10, kMostShared = (227 << 10) - kByName, kSharedUnasked = (48 << 10) - kByName;

size_t shared_allowed(const void* kernel) {
  const std::lock_guard lock(allowed_mutex);
  const auto found = allowed.find(kernel);
  return found == allowed.end() ? kSharedUnasked : found->second;
}
cudaError_t allow_shared(const void* kernel, int bytes) {
  if (bytes < 0 || static_cast<size_t>(bytes) > kMostShared) return failed(cudaErrorInvalidValue);
  const std::lock_guard lock(allowed_mutex);
  allowed[kernel] = std::max(kSharedUnasked, static_cast<size_t>(bytes));
  return cudaSuccess;
}

cudaError_t check(const Launch& launch) {
  const dim3 &grid = launch.grid, &block = launch.block;
  const uint64_t threads = uint64_t{block.x} * block.y * block.z;
  if (threads == 0 || threads > 1024 || block.z > 64) return failed(cudaErrorInvalidConfiguration);
  if (grid.x == 0 || grid.y == 0 || grid.z == 0) return failed(cudaErrorInvalidConfiguration);
  if (grid.x > INT32_MAX || grid.y > 65535 || grid.z > 65535) return failed(cudaErrorInvalidConfiguration);
  return launch.shared_bytes > launch.shared_allowed ? failed(cudaErrorInvalidValue) : cudaSuccess;
}

void run(const Launch& launch, const std::function<void()>& kernel) {
  ++launch_count;
  engine().run(launch, kernel);
}
int64_t launches() { return launch_count; }

}  // namespace emulated
