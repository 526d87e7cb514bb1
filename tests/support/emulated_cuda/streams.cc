// Streams and events: each device has a thread that takes steps of its streams, of any of them at random.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <thread>
#include <utility>

#include "cuda_runtime.h"
#include "devices.h"

namespace emulated {

namespace {

class Worker;

}  // namespace

struct Graph {
  std::vector<Step> steps;
  bool is_broken = false;  // while it is captured: nothing comes of it
};
struct Stream {
  Worker* worker = nullptr;
  std::unique_ptr<Graph> captured = {};  // while it is; the host's
  std::deque<Step> steps = {};           // guarded by the worker's mutex; the first one may be running
};
// How often it was recorded, how many of these have been reached, and when the last one was.
struct Event {
  int device;
  bool is_timed;
  struct Reached {
    std::atomic<uint64_t> count = 0;
    std::atomic<std::chrono::steady_clock::time_point> when = {};
  };
  uint64_t recorded = 0;
  std::shared_ptr<Reached> reached = std::make_shared<Reached>();
};

namespace {

constexpr int kNone = -1;
std::atomic<int> hung_device = kNone;
std::atomic<int64_t> graph_launch_count = 0;
std::atomic<size_t> queue_length = SIZE_MAX;
thread_local Stream* capturing = nullptr;  // by this thread, for itself: what others do is their own

class Worker {
 public:
  explicit Worker(int device) : device_(device), thread_([this] { work(); }) {}
  ~Worker() {
    {
      const std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  int device() const { return device_; }
  void add(Stream* stream) {
    const std::lock_guard lock(mutex_);
    streams_.push_back(stream);
  }
  // When it has nothing more to do.
  void remove(Stream* stream) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return stream->steps.empty(); });
    std::erase(streams_, stream);
  }
  // Who adds to a full queue waits.
  void push(Stream* stream, Step step) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stream->steps.size() < queue_length; });
      stream->steps.push_back(std::move(step));
    }
    changed_.notify_all();
  }
  bool is_idle(Stream* stream) {
    const std::lock_guard lock(mutex_);
    return stream->steps.empty();
  }
  void wait(Stream* stream) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return stream->steps.empty(); });
  }
  void wait_for_all() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return std::ranges::all_of(streams_, [](Stream* each) { return each->steps.empty(); }); });
  }
  void stir() {
    {
      const std::lock_guard lock(mutex_);
      stirred_ = true;
    }
    changed_.notify_all();
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    while (!over_) {
      stirred_ = false;
      std::vector<Stream*> todo;
      for (Stream* each : streams_) {
        if (!each->steps.empty() && hung_device != device_) todo.push_back(each);
      }
      std::shuffle(todo.begin(), todo.end(), random_);
      bool has_done = false;
      for (Stream* each : todo) {
        Step& step = each->steps.front();  // a deque's stays where it is while others are pushed
        lock.unlock();
        has_done = step();
        lock.lock();
        if (!has_done) continue;
        each->steps.pop_front();
        break;
      }
      if (has_done) {
        changed_.notify_all();
      } else {
        changed_.wait(lock, [&] { return over_ || stirred_ || (hung_device != device_ && has_more_than(todo)); });
      }
    }
  }
  bool has_more_than(const std::vector<Stream*>& seen) const {
    return std::ranges::any_of(streams_, [&](Stream* each) {
      return !each->steps.empty() && std::ranges::find(seen, each) == seen.end();
    });
  }

  const int device_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Stream*> streams_;  // guarded
  bool stirred_ = false;          // guarded
  bool over_ = false;             // guarded
  std::mt19937_64 random_{std::random_device{}()};
  std::thread thread_;
};

// Those of devices that have streams; with how many. A process that forks has none, if it has closed its contexts.
struct Workers {
  std::mutex mutex;
  std::map<int, std::pair<std::unique_ptr<Worker>, int>> by_device;  // guarded
  std::set<Stream*> streams;                                         // guarded; that have not been destroyed
  std::set<Event*> events;                                           // guarded; the same
};
Workers& workers() {
  static Workers all;
  return all;
}

// A real driver reads what is freed then.
template <class T>
void check_lives(const std::set<T*>& all, T* one, const char* what) {
  const std::lock_guard lock(workers().mutex);
  if (all.contains(one)) return;
  std::fprintf(stderr, "emulated device: %s is used that was destroyed\n", what);
  std::abort();
}
void check_stream(Stream* stream) {
  if (stream != nullptr) check_lives(workers().streams, stream, "a stream");
}
void check_event(Event* event) { check_lives(workers().events, event, "an event"); }

}  // namespace

int device_of(Stream* stream) {
  check_stream(stream);
  return stream == nullptr ? current_device() : stream->worker->device();
}

void enqueue(Stream* stream, Step step) {
  check_stream(stream);
  if (stream == nullptr) {
    while (!step()) std::this_thread::yield();
  } else if (stream->captured) {
    stream->captured->steps.push_back(std::move(step));
  } else {
    stream->worker->push(stream, std::move(step));
  }
}

bool breaks_capture() {
  if (capturing == nullptr) return false;
  capturing->captured->is_broken = true;
  return true;
}

int64_t graph_launches() { return graph_launch_count; }

void stir() {
  const std::lock_guard lock(workers().mutex);
  for (auto& [device, worker] : workers().by_device) worker.first->stir();
}

void make_queues(size_t length) { queue_length = length; }

void hang(int device) { hung_device = device; }
void recover() { hung_device = kNone; }

void wait_for_device(int device) {
  Worker* worker = nullptr;
  {
    const std::lock_guard lock(workers().mutex);
    const auto found = workers().by_device.find(device);
    if (found == workers().by_device.end()) return;
    worker = found->second.first.get();
  }
  worker->wait_for_all();
}

}  // namespace emulated

using namespace emulated;

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned) {
  if (const cudaError_t error = call(); error != cudaSuccess) return error;
  const std::lock_guard lock(workers().mutex);
  auto& [worker, streams] = workers().by_device[current_device()];
  if (worker == nullptr) worker = std::make_unique<Worker>(current_device());
  ++streams;
  *stream = new Stream{.worker = worker.get()};
  workers().streams.insert(*stream);
  worker->add(*stream);
  return cudaSuccess;
}
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  return cudaStreamCreateWithFlags(stream, flags);
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  if (const cudaError_t error = call(); error != cudaSuccess) return error;
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  check_stream(stream);
  stream->worker->remove(stream);
  std::unique_ptr<Worker> last;
  {
    const std::lock_guard lock(workers().mutex);
    workers().streams.erase(stream);
    auto& all = workers().by_device;
    const auto found = std::ranges::find_if(all, [&](auto& each) { return each.second.first.get() == stream->worker; });
    if (--found->second.second == 0) {
      last = std::move(found->second.first);
      all.erase(found);
    }
  }
  delete stream;
  return cudaSuccess;
}
cudaError_t cudaStreamQuery(cudaStream_t stream) {
  check_stream(stream);
  if (stream != nullptr && stream == capturing && breaks_capture()) return failed(cudaErrorStreamCaptureUnsupported);
  if (const cudaError_t error = repeated_call(); error != cudaSuccess) return error;
  return stream == nullptr || stream->worker->is_idle(stream) ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  check_stream(stream);
  if (stream != nullptr && stream == capturing && breaks_capture()) return failed(cudaErrorStreamCaptureUnsupported);
  if (const cudaError_t error = repeated_call(); error != cudaSuccess) return error;
  if (stream != nullptr) stream->worker->wait(stream);
  return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  if (const cudaError_t error = call(); error != cudaSuccess) return error;
  *event = new Event{.device = current_device(), .is_timed = (flags & cudaEventDisableTiming) == 0};
  const std::lock_guard lock(workers().mutex);
  workers().events.insert(*event);
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  check_event(event);
  {
    const std::lock_guard lock(workers().mutex);
    workers().events.erase(event);
  }
  delete event;
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  check_event(event);
  if (const cudaError_t error = call(); error != cudaSuccess) return error;
  if (event->device != device_of(stream)) return cudaErrorInvalidResourceHandle;
  enqueue(stream, [reached = event->reached, which = ++event->recorded] {
    reached->when = std::chrono::steady_clock::now();
    reached->count = which;
    stir();
    return true;
  });
  return cudaSuccess;
}
// For what it was recorded after last, so far.
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  check_event(event);
  if (const cudaError_t error = call(); error != cudaSuccess) return error;
  enqueue(stream, [reached = event->reached, which = event->recorded] { return reached->count >= which; });
  return cudaSuccess;
}
// Of one that was never recorded there is nothing to wait for.
cudaError_t cudaEventQuery(cudaEvent_t event) {
  check_event(event);
  if (breaks_capture()) return failed(cudaErrorStreamCaptureUnsupported);
  if (const cudaError_t error = repeated_call(); error != cudaSuccess) return error;
  return event->reached->count >= event->recorded ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  check_event(from);
  check_event(to);
  if (const cudaError_t error = call(); error != cudaSuccess) return error;
  for (const Event* each : {from, to}) {
    if (!each->is_timed || each->recorded == 0) return cudaErrorInvalidResourceHandle;
  }
  if (from->reached->count < from->recorded || to->reached->count < to->recorded) return cudaErrorNotReady;
  *milliseconds = std::chrono::duration<float, std::milli>(to->reached->when.load() - from->reached->when.load()).count();
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (const cudaError_t error = call(); error != cudaSuccess) return error;
  if (stream == nullptr || stream->captured) return failed(cudaErrorInvalidValue);
  stream->captured = std::make_unique<Graph>();
  capturing = stream;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = nullptr;
  if (stream == nullptr || !stream->captured) return failed(cudaErrorInvalidValue);
  capturing = nullptr;
  const std::unique_ptr<Graph> captured = std::exchange(stream->captured, nullptr);
  if (const cudaError_t error = call(); error != cudaSuccess) return error;
  if (captured->is_broken) return failed(cudaErrorStreamCaptureInvalidated);
  *graph = new Graph(*captured);
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  if (const cudaError_t error = call(); error != cudaSuccess) return error;
  *executable = new Graph(*graph);
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  if (const cudaError_t error = call(); error != cudaSuccess) return error;
  ++graph_launch_count;
  for (const Step& step : executable->steps) enqueue(stream, step);
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete executable;
  return cudaSuccess;
}
