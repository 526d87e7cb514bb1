// Communicator among threads of one process with an emulated device each: a call waits for all members. The
// id names the group.
#include "engine/cuda/communicator.h"

#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "emulator.h"

namespace dtrain::engine::cuda {

namespace {

// Members meet, the last one computes for all, and all go on.
struct Group {
  explicit Group(int n) : pointers(static_cast<size_t>(n)) {}

  std::mutex mutex;
  std::condition_variable changed;
  std::vector<void*> pointers;
  int arrived = 0, left = 0;
  uint64_t round = 0;
  bool aborted = false;
  int joined = 0;
  std::map<std::pair<int, int>, std::deque<std::string>> on_the_way;  // by from and to

  // false: somebody gave up.
  bool meet(int rank, void* pointer, const std::function<void(const std::vector<void*>&)>& compute) {
    std::unique_lock lock(mutex);
    pointers[static_cast<size_t>(rank)] = pointer;
    const uint64_t mine = round;
    if (++arrived == static_cast<int>(pointers.size())) {
      compute(pointers);
      arrived = 0;
      ++round;
      changed.notify_all();
      return true;
    }
    changed.wait(lock, [&] { return round != mine || aborted; });
    return round != mine;
  }
};

std::mutex groups_mutex;
std::map<Communicator::Id, std::shared_ptr<Group>> groups;  // guarded by groups_mutex

template <class T>
void add_up(const std::vector<void*>& pointers, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    Sum<T> sum = 0;
    for (void* each : pointers) sum += static_cast<Sum<T>>(static_cast<T*>(each)[i]);
    for (void* each : pointers) static_cast<T*>(each)[i] = static_cast<T>(sum);
  }
}

class EmulatedCommunicator : public Communicator {
 public:
  EmulatedCommunicator(std::shared_ptr<Group> group, int rank) : group_(std::move(group)), rank_(rank) {}

  void all_reduce(cudaStream_t stream, float* values, int64_t count) override { sum(stream, values, count); }
  void all_reduce(cudaStream_t stream, double* values, int64_t count) override { sum(stream, values, count); }
  void all_reduce(cudaStream_t stream, Bfloat16* values, int64_t count) override { sum(stream, values, count); }
  void broadcast(cudaStream_t stream, float* values, int64_t count, int root) override {
    meet(stream, values, [count, root](const std::vector<void*>& all) {
      const void* from = all[static_cast<size_t>(root)];
      for (void* to : all) {
        if (to != from) std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
      }
    });
  }
  void gather(cudaStream_t stream, const float* mine, float* all, int64_t count) override {
    std::memcpy(all + rank_ * count, mine, static_cast<size_t>(count) * sizeof(float));
    meet(stream, all, [count](const std::vector<void*>& arrays) {
      for (size_t from = 0; from < arrays.size(); ++from) {
        const auto part = static_cast<int64_t>(from) * count;
        for (size_t to = 0; to < arrays.size(); ++to) {
          if (to == from) continue;
          std::memcpy(static_cast<float*>(arrays[to]) + part, static_cast<float*>(arrays[from]) + part,
                      static_cast<size_t>(count) * sizeof(float));
        }
      }
    });
  }
  void pass(cudaStream_t stream, const Parcel& parcel) override {
    emulated::enqueue(stream, [this, parcel] {
      std::unique_lock lock(group_->mutex);
      if (parcel.out_bytes > 0) {
        group_->on_the_way[{rank_, parcel.to}].emplace_back(static_cast<const char*>(parcel.out),
                                                            static_cast<size_t>(parcel.out_bytes));
        group_->changed.notify_all();
      }
      if (parcel.in_bytes == 0) return;
      auto& here = group_->on_the_way[{parcel.from, rank_}];
      group_->changed.wait(lock, [&] { return !here.empty() || group_->aborted; });
      if (here.empty()) {
        if (status_.ok()) status_ = Error{Code::Aborted, "communication was given up", ""};
        return;
      }
      const std::string came = std::move(here.front());
      here.pop_front();
      if (came.size() != static_cast<size_t>(parcel.in_bytes)) {
        std::fprintf(stderr, "%zu bytes were sent where %lld are received\n", came.size(),
                     static_cast<long long>(parcel.in_bytes));
        std::abort();
      }
      std::memcpy(parcel.in, came.data(), came.size());
    });
  }
  Status status() override { return status_; }
  void abort() override {
    const std::lock_guard lock(group_->mutex);
    group_->aborted = true;
    group_->changed.notify_all();
  }

 private:
  template <class T>
  void sum(cudaStream_t stream, T* values, int64_t count) {
    meet(stream, values, [count](const std::vector<void*>& all) { add_up<T>(all, count); });
  }
  void meet(cudaStream_t stream, void* pointer, std::function<void(const std::vector<void*>&)> compute) {
    emulated::enqueue(stream, [this, pointer, compute = std::move(compute)] {
      if (!group_->meet(rank_, pointer, compute) && status_.ok()) {
        status_ = Error{Code::Aborted, "communication was given up", ""};
      }
    });
  }

  const std::shared_ptr<Group> group_;
  const int rank_;
  Status status_ = ok();
};

}  // namespace

Result<Communicator::Id> Communicator::make_id() {
  static std::atomic<uint64_t> next = 1;
  Id id = {};
  const uint64_t number = next++;
  std::memcpy(id.data(), &number, sizeof number);
  return id;
}

Result<std::unique_ptr<Communicator>> Communicator::open(const Id& id, int rank, int size,
                                                         double deadline_seconds) {
  const Deadline deadline = Deadline::after(deadline_seconds);
  std::shared_ptr<Group> group;
  {
    const std::lock_guard lock(groups_mutex);
    std::shared_ptr<Group>& at = groups[id];
    if (!at) at = std::make_shared<Group>(size);
    group = at;
  }
  std::unique_lock lock(group->mutex);
  if (++group->joined == size) {
    const std::lock_guard all(groups_mutex);
    groups.erase(id);
    group->changed.notify_all();
  } else if (!group->changed.wait_until(lock, deadline.at(), [&] { return group->joined == size; })) {
    return Error{Code::DeadlineExceeded, "not all members of a group came", ""};
  }
  return std::unique_ptr<Communicator>(std::make_unique<EmulatedCommunicator>(group, rank));
}

}  // namespace dtrain::engine::cuda
