#include <nccl.h>

#include <algorithm>
#include <thread>

#include "engine/cuda/communicator.h"
#include "engine/library.h"

namespace dtrain::engine::cuda {

namespace {

#define DTRAIN_NCCL(F)                                                                                        \
  F(GetUniqueId) F(CommInitRankConfig) F(CommDestroy) F(CommAbort) F(CommFinalize) F(CommGetAsyncError)       \
  F(GetErrorString) F(GetLastError) F(AllReduce) F(Broadcast) F(AllGather) F(Send) F(Recv) F(GroupStart)        \
  F(GroupEnd)

struct Nccl {
#define F(name) decltype(&nccl##name) name = nullptr;
  DTRAIN_NCCL(F)
#undef F

  static Result<Nccl> load() {
    TRY(const Library library, Library::open({"libnccl.so.2", "libnccl.so"}, "NCCL"));
    Nccl found;
#define F(name) TRY(library.find("nccl" #name, found.name));
    DTRAIN_NCCL(F)
#undef F
    return found;
  }
};

class NcclCommunicator : public Communicator {
 public:
  NcclCommunicator(const Nccl& lib, double deadline_seconds) : lib_(lib), deadline_seconds_(deadline_seconds) {}
  ~NcclCommunicator() override {
    if (comm_ == nullptr) return;
    if (status().ok()) {
      // Without waiting for members that are gone.
      check(lib_.CommFinalize(comm_), "end communication");
      finish(Deadline::after(5));
    }
    if (status_.ok()) {
      lib_.CommDestroy(comm_);
      return;
    }
    lib_.CommAbort(comm_);
  }

  Status start(const Id& id, int rank, int size) {
    static_assert(sizeof(ncclUniqueId) == sizeof(Id));
    ncclUniqueId unique;
    std::copy(id.begin(), id.end(), unique.internal);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;  // else a member that never comes is waited for for ever
    check(lib_.CommInitRankConfig(&comm_, size, unique, rank, &config), "meet by NCCL");
    finish(Deadline::after(deadline_seconds_));
    return status_;
  }

  void all_reduce(cudaStream_t stream, float* values, int64_t count) override { sum(stream, values, count, ncclFloat32); }
  void all_reduce(cudaStream_t stream, double* values, int64_t count) override { sum(stream, values, count, ncclFloat64); }
  void all_reduce(cudaStream_t stream, Bfloat16* values, int64_t count) override {
    sum(stream, values, count, ncclBfloat16);
  }
  void broadcast(cudaStream_t stream, float* arena, std::span<const Range> ranges, int root) override {
    check(lib_.GroupStart(), "broadcast");
    for (const Range range : ranges) {
      float* const values = arena + range.begin;
      check(lib_.Broadcast(values, values, static_cast<size_t>(range.size()), ncclFloat32, root, comm_, stream), "broadcast");
    }
    called(lib_.GroupEnd(), "broadcast");
  }
  void pass(cudaStream_t stream, const Parcel& parcel) override {
    check(lib_.GroupStart(), "pass on");
    if (parcel.out_bytes > 0) {
      check(lib_.Send(parcel.out, static_cast<size_t>(parcel.out_bytes), ncclUint8, parcel.to, comm_, stream), "send");
    }
    if (parcel.in_bytes > 0) {
      check(lib_.Recv(parcel.in, static_cast<size_t>(parcel.in_bytes), ncclUint8, parcel.from, comm_, stream), "receive");
    }
    called(lib_.GroupEnd(), "pass on");
  }
  void gather(cudaStream_t stream, const float* mine, float* all, int64_t count) override {
    called(lib_.AllGather(mine, all, static_cast<size_t>(count), ncclFloat32, comm_, stream), "gather");
  }

  Status status() override {
    if (status_.ok() && comm_ != nullptr) {
      ncclResult_t later = ncclSuccess;
      check(lib_.CommGetAsyncError(comm_, &later), "ask NCCL");
      check(later, "communicate");
    }
    return status_;
  }

  // In a group each is told to end before any is freed.
  static void abort(const std::vector<Communicator*>& all) {
    std::vector<NcclCommunicator*> open;
    for (Communicator* each : all) {
      auto* const one = static_cast<NcclCommunicator*>(each);
      if (one->comm_ != nullptr && std::ranges::find(open, one) == open.end()) open.push_back(one);
    }
    if (open.empty()) return;
    const Nccl& lib = open.front()->lib_;
    lib.GroupStart();
    for (NcclCommunicator* each : open) {
      lib.CommAbort(std::exchange(each->comm_, nullptr));
      if (each->status_.ok()) each->status_ = Error{Code::Aborted, "communication was given up", ""};
    }
    lib.GroupEnd();
  }

 private:
  void sum(cudaStream_t stream, void* values, int64_t count, ncclDataType_t type) {
    called(lib_.AllReduce(values, values, static_cast<size_t>(count), type, ncclSum, comm_, stream), "all-reduce");
  }

  void called(ncclResult_t result, std::string_view doing) {
    check(result, doing);
    if (result == ncclInProgress) finish(Deadline::after(deadline_seconds_));
  }

  // What is under way a thread of NCCL's does, and only then it is on the stream: before, neither the next call may
  // come nor anything else that is to be behind it. That takes microseconds; but the first calls connect members.
  void finish(Deadline deadline) {
    using Clock = std::chrono::steady_clock;
    const Clock::time_point awake_until = Clock::now() + std::chrono::milliseconds(1);
    while (status_.ok()) {
      ncclResult_t now = ncclSuccess;
      check(lib_.CommGetAsyncError(comm_, &now), "ask NCCL");
      check(now, "meet by NCCL");
      if (now != ncclInProgress) return;
      if (deadline.expired()) {
        status_ = Error{Code::DeadlineExceeded, fmt::format("NCCL has not met for {:g} s", deadline.seconds()),
                        "NCCL_DEBUG=INFO says what it waits for"};
      } else if (Clock::now() < awake_until) {
        std::this_thread::yield();
      } else {
        std::this_thread::sleep_for(std::chrono::microseconds(200));
      }
    }
  }

  void check(ncclResult_t result, std::string_view doing) {
    if (result == ncclSuccess || result == ncclInProgress || !status_.ok()) return;
    const char* more = lib_.GetLastError(comm_);
    status_ = Error{Code::Internal,
                    fmt::format("{}: {}{}{}", doing, lib_.GetErrorString(result), more == nullptr || *more == '\0' ? "" : ": ",
                                more == nullptr ? "" : more),
                    "NCCL_DEBUG=INFO says more"};
  }

  const Nccl lib_;
  const double deadline_seconds_;
  ncclComm_t comm_ = nullptr;
  Status status_ = ok();
};

}  // namespace

void Communicator::abort(const std::vector<Communicator*>& all) { NcclCommunicator::abort(all); }

Result<Communicator::Id> Communicator::make_id() {
  TRY(const Nccl lib, Nccl::load());
  ncclUniqueId unique;
  if (const ncclResult_t result = lib.GetUniqueId(&unique); result != ncclSuccess) {
    return Error{Code::Internal, fmt::format("start NCCL: {}", lib.GetErrorString(result)),
                 "NCCL_DEBUG=INFO says more"};
  }
  Id id;
  std::copy(std::begin(unique.internal), std::end(unique.internal), id.begin());
  return id;
}

Result<std::unique_ptr<Communicator>> Communicator::open(const Id& id, int rank, int size,
                                                         double deadline_seconds) {
  TRY(const Nccl lib, Nccl::load());
  auto made = std::make_unique<NcclCommunicator>(lib, deadline_seconds);
  TRY(made->start(id, rank, size));
  return std::unique_ptr<Communicator>(std::move(made));
}

}  // namespace dtrain::engine::cuda
