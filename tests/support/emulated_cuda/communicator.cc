// Communicator among threads of one process with an emulated device each: a call waits for all members. The
// id names the group.
#include "engine/cuda/communicator.h"

#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "cuda_runtime.h"
#include "emulator.h"

namespace dtrain::engine::cuda {

namespace {

// What members do together, in the order in which each of them asked for it, on whatever streams. Members come, the
// last one computes for all, and all go on.
struct Group {
  explicit Group(int n) : size(static_cast<size_t>(n)) {}

  struct Meeting {
    std::vector<void*> pointers;
    size_t arrived = 0, left = 0;
  };

  const size_t size;
  std::mutex mutex;  // guards what follows
  std::condition_variable changed;
  std::map<uint64_t, Meeting> meetings;
  std::map<std::pair<int, int>, std::deque<std::string>> on_the_way;  // by from and to
  bool aborted = false;
  int joined = 0;
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
  ~EmulatedCommunicator() override {
    std::unique_lock lock(group_->mutex);
    const auto all_over = [&] { return over_ == turn_; };
    if (group_->changed.wait_for(lock, std::chrono::seconds(5), all_over)) return;
    group_->aborted = true;
    emulated::stir();
    group_->changed.wait(lock, all_over);
  }

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
    float* const own = all + rank_ * count;
    static_cast<void>(cudaMemcpyAsync(own, mine, static_cast<size_t>(count) * sizeof(float), cudaMemcpyDeviceToDevice, stream));
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
    in_turn(stream, [this, parcel, sent = false]() mutable {
      if (!sent && parcel.out_bytes > 0) {
        group_->on_the_way[{rank_, parcel.to}].emplace_back(static_cast<const char*>(parcel.out),
                                                            static_cast<size_t>(parcel.out_bytes));
        emulated::stir();
      }
      sent = true;
      if (parcel.in_bytes == 0) return true;
      auto& here = group_->on_the_way[{parcel.from, rank_}];
      if (here.empty()) return false;
      const std::string came = std::move(here.front());
      here.pop_front();
      if (came.size() != static_cast<size_t>(parcel.in_bytes)) {
        std::fprintf(stderr, "%zu bytes were sent where %lld are received\n", came.size(),
                     static_cast<long long>(parcel.in_bytes));
        std::abort();
      }
      std::memcpy(parcel.in, came.data(), came.size());
      return true;
    });
  }
  Status status() override {
    const std::lock_guard lock(group_->mutex);
    return status_;
  }
  void abort() override {
    {
      const std::lock_guard lock(group_->mutex);
      group_->aborted = true;
    }
    emulated::recover();
    emulated::stir();
  }

 private:
  template <class T>
  void sum(cudaStream_t stream, T* values, int64_t count) {
    meet(stream, values, [count](const std::vector<void*>& all) { add_up<T>(all, count); });
  }
  void meet(cudaStream_t stream, void* pointer, std::function<void(const std::vector<void*>&)> compute) {
    in_turn(stream, [this, pointer, compute = std::move(compute), which = meetings_++, came = false]() mutable {
      Group::Meeting& meeting = group_->meetings[which];
      meeting.pointers.resize(group_->size);
      meeting.pointers[static_cast<size_t>(rank_)] = pointer;
      if (!std::exchange(came, true) && ++meeting.arrived == group_->size) {
        compute(meeting.pointers);
        emulated::stir();
      }
      if (meeting.arrived < group_->size) return false;
      if (++meeting.left == group_->size) group_->meetings.erase(which);
      return true;
    });
  }
  // The step is asked when all calls before it are over, by the group's lock.
  void in_turn(cudaStream_t stream, emulated::Step step) {
    emulated::enqueue(stream, [this, step = std::move(step), turn = turn_++] {
      const std::lock_guard lock(group_->mutex);
      if (group_->aborted) {
        if (status_.ok()) status_ = Error{Code::Aborted, "communication was given up", ""};
      } else if (over_ != turn || !step()) {
        return false;
      }
      ++over_;
      group_->changed.notify_all();
      emulated::stir();
      return true;
    });
  }

  const std::shared_ptr<Group> group_;
  const int rank_;
  uint64_t turn_ = 0;      // of the next call
  uint64_t meetings_ = 0;  // of all members, so far
  uint64_t over_ = 0;      // calls; guarded by the group's mutex
  Status status_ = ok();   // guarded by the group's mutex
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
