// Communicator among emulated devices, of whatever processes of this host. Each two members have a connection: a
// call sends at once what others need of it, and is over when all has come that it needs of them. Who is gone, or
// gives up, is silent.
#include "engine/cuda/communicator.h"

#include <sys/socket.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "cuda_runtime.h"
#include "devices.h"
#include "emulator.h"
#include "engine/comm/pass_fd.h"

namespace dtrain::engine::cuda {

namespace {

std::atomic<int64_t> lonely_ends = 0;

// What another member sends: messages, each with its size before it.
class Connection {
 public:
  explicit Connection(Fd fd) : socket_(std::move(fd), "a member"), reader_([this] { read(); }) {}
  ~Connection() {
    ::shutdown(socket_.fd(), SHUT_RDWR);
    reader_.join();
  }

  void send(const void* data, int64_t bytes) {
    const iovec parts[] = {{&bytes, sizeof bytes}, {const_cast<void*>(data), static_cast<size_t>(bytes)}};
    static_cast<void>(socket_.write(parts, kForEver));
  }
  bool has_come() const {
    const std::lock_guard lock(mutex_);
    return !came_.empty();
  }
  // One has come, or the other end is gone.
  bool wait_until(Deadline deadline) {
    std::unique_lock lock(mutex_);
    return changed_.wait_until(lock, deadline.at(), [&] { return over_ || !came_.empty(); });
  }
  // The next one, which has come.
  void take(void* data, int64_t bytes) {
    const std::lock_guard lock(mutex_);
    if (came_.front().size() != static_cast<size_t>(bytes)) {
      std::fprintf(stderr, "%zu bytes were sent where %lld are received\n", came_.front().size(),
                   static_cast<long long>(bytes));
      std::abort();
    }
    std::memcpy(data, came_.front().data(), static_cast<size_t>(bytes));
    came_.pop_front();
  }

 private:
  void read() {
    int64_t bytes = 0;
    while (socket_.read(&bytes, sizeof bytes, kForEver).ok()) {
      std::string message(static_cast<size_t>(bytes), '\0');
      if (!socket_.read(message.data(), message.size(), kForEver).ok()) break;
      {
        const std::lock_guard lock(mutex_);
        came_.push_back(std::move(message));
      }
      changed_.notify_all();
      emulated::stir();
    }
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
  }

  inline static const Deadline kForEver = Deadline::after(1e6);
  Socket socket_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::string> came_;  // guarded
  bool over_ = false;             // guarded
  std::thread reader_;
};

class EmulatedCommunicator : public Communicator {
 public:
  // By rank; none to itself.
  EmulatedCommunicator(int rank, std::vector<std::unique_ptr<Connection>> connections)
      : rank_(rank), connections_(std::move(connections)) {}
  ~EmulatedCommunicator() override {
    {
      std::unique_lock lock(mutex_);
      const auto all_over = [&] { return over_ == turn_; };
      if (!changed_.wait_for(lock, std::chrono::seconds(5), all_over)) {
        aborted_ = true;
        emulated::stir();
        changed_.wait(lock, all_over);
      }
    }
    // As NCCL's, which is closed by all members of a host together.
    if (!aborted_) {
      to_others("", 1);
      const Deadline deadline = Deadline::after(5);
      const bool together = std::ranges::all_of(
          connections_, [&](const auto& each) { return each == nullptr || each->wait_until(deadline); });
      if (!together) ++lonely_ends;
    }
    wait_to_free();
  }

  void all_reduce(cudaStream_t stream, float* values, int64_t count) override { sum(stream, values, count); }
  void all_reduce(cudaStream_t stream, double* values, int64_t count) override { sum(stream, values, count); }
  void all_reduce(cudaStream_t stream, Bfloat16* values, int64_t count) override { sum(stream, values, count); }
  void broadcast(cudaStream_t stream, float* arena, std::span<const Range> ranges, int root) override {
    for (const Range range : ranges) {
      float* const values = arena + range.begin;
      const int64_t bytes = range.size() * static_cast<int64_t>(sizeof(float));
      in_turn(stream, [this, values, bytes, root] {
        if (root == rank_) {
          to_others(values, bytes);
          return true;
        }
        return take_from(root, values, bytes);
      });
    }
  }
  void gather(cudaStream_t stream, const float* mine, float* all, int64_t count) override {
    const int64_t bytes = count * static_cast<int64_t>(sizeof(float));
    in_turn(stream, [this, mine, all, count, bytes, sent = false]() mutable {
      if (!std::exchange(sent, true)) to_others(mine, bytes);
      if (!others_have_come()) return false;
      for (int other = 0; other < size(); ++other) {
        if (other != rank_) take_from(other, all + other * count, bytes);
      }
      std::memcpy(all + rank_ * count, mine, static_cast<size_t>(bytes));
      return true;
    });
  }
  void pass(cudaStream_t stream, const Parcel& parcel) override {
    in_turn(stream, [this, parcel, sent = false]() mutable {
      if (parcel.to == rank_) {
        if (parcel.out_bytes > 0) std::memcpy(parcel.in, parcel.out, static_cast<size_t>(parcel.out_bytes));
        return true;
      }
      if (!std::exchange(sent, true) && parcel.out_bytes > 0) to(parcel.to).send(parcel.out, parcel.out_bytes);
      return parcel.in_bytes == 0 || take_from(parcel.from, parcel.in, parcel.in_bytes);
    });
  }
  Status status() override {
    const std::lock_guard lock(mutex_);
    return status_;
  }
  // Memory of NCCL's is freed after all that the device does.
  static void wait_to_free() { emulated::wait_for_device(emulated::current_device()); }
  void give_up() {
    {
      const std::lock_guard lock(mutex_);
      if (status_.ok()) status_ = Error{Code::Aborted, "communication was given up", ""};
    }
    aborted_ = true;
  }

 private:
  int size() const { return static_cast<int>(connections_.size()); }
  Connection& to(int other) { return *connections_[static_cast<size_t>(other)]; }
  void to_others(const void* data, int64_t bytes) {
    for (const auto& each : connections_) {
      if (each != nullptr) each->send(data, bytes);
    }
  }
  bool others_have_come() const {
    return std::ranges::all_of(connections_, [](const auto& each) { return each == nullptr || each->has_come(); });
  }
  bool take_from(int other, void* data, int64_t bytes) {
    if (!to(other).has_come()) return false;
    to(other).take(data, bytes);
    return true;
  }

  // By all in the order of the ranks, so that all come to the same bits.
  template <class T>
  void sum(cudaStream_t stream, T* values, int64_t count) {
    const int64_t bytes = count * static_cast<int64_t>(sizeof(T));
    in_turn(stream, [this, values, count, bytes, sent = false]() mutable {
      if (!std::exchange(sent, true)) to_others(values, bytes);
      if (!others_have_come()) return false;
      std::vector<Sum<T>> total(static_cast<size_t>(count));
      std::vector<T> part(static_cast<size_t>(count));
      for (int member = 0; member < size(); ++member) {
        if (member != rank_) take_from(member, part.data(), bytes);
        const T* from = member == rank_ ? values : part.data();
        for (size_t i = 0; i < total.size(); ++i) total[i] += static_cast<Sum<T>>(from[i]);
      }
      for (size_t i = 0; i < total.size(); ++i) values[i] = static_cast<T>(total[i]);
      return true;
    });
  }

  // The step is asked when all calls before it are over; by the device's thread.
  void in_turn(cudaStream_t stream, emulated::Step step) {
    emulated::enqueue(stream, [this, step = std::move(step), turn = turn_++] {
      if (!aborted_ && (over_ != turn || !step())) return false;
      const std::lock_guard lock(mutex_);
      ++over_;
      changed_.notify_all();
      emulated::stir();
      return true;
    });
  }

  const int rank_;
  const std::vector<std::unique_ptr<Connection>> connections_;
  uint64_t turn_ = 0;  // of the next call
  std::atomic<bool> aborted_ = false;
  std::atomic<uint64_t> over_ = 0;  // calls
  std::mutex mutex_;
  std::condition_variable changed_;  // over_
  Status status_ = ok();             // guarded
};

std::string address_of(const Communicator::Id& id) { return "unix:@" + std::string(id.data()); }

// Where the members of the groups meet whose ids were made here.
std::mutex listeners_mutex;
std::map<Communicator::Id, Listener> listeners;  // guarded

// The first member in the process that made the id gives each two members a connection.
Status introduce(Listener& listener, int size, Deadline deadline) {
  std::vector<Socket> members(static_cast<size_t>(size));
  for (int i = 0; i < size; ++i) {
    TRY(Socket socket, listener.accept(deadline));
    int rank = 0;
    TRY(socket.read(&rank, sizeof rank, deadline));
    members[static_cast<size_t>(rank)] = std::move(socket);
  }
  for (size_t a = 0; a < members.size(); ++a) {
    for (size_t b = a + 1; b < members.size(); ++b) {
      int ends[2];
      if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) return errno_error("socketpair", errno);
      const Fd one(ends[0]), other(ends[1]);
      TRY(send_fd(members[a], one.get(), deadline));
      TRY(send_fd(members[b], other.get(), deadline));
    }
  }
  return ok();
}

}  // namespace

}  // namespace dtrain::engine::cuda

int64_t emulated::communicators_ended_alone() { return dtrain::engine::cuda::lonely_ends; }

namespace dtrain::engine::cuda {

void Communicator::abort(const std::vector<Communicator*>& all) {
  for (Communicator* each : all) static_cast<EmulatedCommunicator*>(each)->give_up();
  emulated::recover();
  emulated::stir();
  EmulatedCommunicator::wait_to_free();
}

Result<Communicator::Id> Communicator::make_id() {
  std::random_device random;
  const std::string name = fmt::format("dtrain-emulated-{:08x}{:08x}", random(), random());
  Id id = {};
  std::ranges::copy(name, id.begin());
  TRY(auto listener, Listener::open_unix(address_of(id)));
  const std::lock_guard lock(listeners_mutex);
  listeners.emplace(id, std::move(listener));
  return id;
}

Result<std::unique_ptr<Communicator>> Communicator::open(const Id& id, int rank, int size,
                                                         double deadline_seconds) {
  const Deadline deadline = Deadline::after(deadline_seconds);
  TRY(Socket socket, Socket::connect(address_of(id), deadline));
  TRY(socket.write(&rank, sizeof rank, deadline));
  Listener listener;
  {
    const std::lock_guard lock(listeners_mutex);
    if (auto found = listeners.extract(id)) listener = std::move(found.mapped());
  }
  if (listener) TRY(introduce(listener, size, deadline));
  std::vector<std::unique_ptr<Connection>> connections(static_cast<size_t>(size));
  // In this order: so they are introduced.
  for (int other = 0; other < size; ++other) {
    if (other == rank) continue;
    TRY(Fd fd, receive_fd(socket, deadline));
    connections[static_cast<size_t>(other)] = std::make_unique<Connection>(std::move(fd));
  }
  return std::unique_ptr<Communicator>(std::make_unique<EmulatedCommunicator>(rank, std::move(connections)));
}

}  // namespace dtrain::engine::cuda
