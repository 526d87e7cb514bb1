// The emulated device itself: blocks of fibers, streams that run some time later, memory that is checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

#define DTRAIN_EMULATED_CUDA 1

namespace emulated {

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

// Where the running thread of a kernel is.
struct Here {
  dim3 thread, block, block_size, grid_size;
};
const Here& here();
int lane();

// All threads of the block, or of the warp, that have not ended. That some never come ends the process, and
// says so.
void sync_block();
void sync_warp();
// What the lane `from` of the warp gave.
uint64_t exchange_bits(uint64_t mine, int from);
template <class T>
T exchange(T value, int from) {
  static_assert(sizeof value <= sizeof(uint64_t), "a shuffle of more than 8 bytes");
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  bits = exchange_bits(bits, from);
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
// Of the running block, at multiples of 16 bytes.
void* shared_memory();

struct Launch {
  dim3 grid, block;
  size_t shared_bytes = 0, shared_allowed = 0;
};
void run(const Launch& launch, const std::function<void()>& kernel);

struct Stream;
struct Event;
struct Graph;
// What a stream does next: true when it is done, false when it has to be asked again, after the others.
using Step = std::function<bool()>;
// On the default stream at once; as a part of what is captured; else behind what the stream has.
void enqueue(Stream* stream, Step step);
// A step that was not done might be now.
void stir();

// ---- for tests
// Before any is used: those of the machine that this process sees. At first the first one; or so many, from there.
void set_devices(const std::vector<int>& of_machine);
void set_device_count(int count);
void make_devices_one(bool one);    // all show the same uuid
// Its streams take no more steps, as when a kernel waits for another GPU, until a communicator is given up.
void hang(int device);
void recover();
void make_queues(size_t length);    // what a stream takes without a wait; any number at first
int64_t launches();                 // of kernels, so far
int64_t graph_launches();
int64_t plans(int device);          // of products and of attention, so far
void count_plan();                  // of the current device's
int64_t device_bytes();             // that are allocated
int64_t communicators_ended_alone();  // so far: for whose end other members did not come
void fail_allocations_above(size_t bytes);  // of one allocation

}  // namespace emulated
