// The messages of one server stream, read ahead on a thread, so that a command can wait for them,
// for signals and for time at once.
//
// Owner: the command, on its stack. The thread only reads the stream and fills a queue of a few
// messages: a slow terminal slows down the sender and never fills memory.
// Promises: the destructor cancels the call and joins the thread.
#pragma once

#include <grpcpp/grpcpp.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "schema/result.h"

namespace dtrain::cli {

template <typename Message>
class StreamReader {
 public:
  using Open = std::function<std::unique_ptr<grpc::ClientReader<Message>>(grpc::ClientContext*)>;

  explicit StreamReader(const Open& open)
      : wake_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)), stream_(open(&context_)) {
    INVARIANT(wake_fd_ >= 0, "an eventfd for a stream");
    thread_ = std::thread([this] { read_all(); });
  }

  ~StreamReader() {
    context_.TryCancel();
    {
      std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    room_.notify_one();
    thread_.join();
    close(wake_fd_);
  }

  StreamReader(const StreamReader&) = delete;
  StreamReader& operator=(const StreamReader&) = delete;

  int fd() const { return wake_fd_; }  // readable when next() or ended() has news

  // The next message that is here already.
  std::optional<Message> next() {
    eventfd_t ignored = 0;
    eventfd_read(wake_fd_, &ignored);
    std::optional<Message> message;
    {
      std::lock_guard lock(mutex_);
      if (queue_.empty()) return std::nullopt;
      message = std::move(queue_.front());
      queue_.pop_front();
      if (!queue_.empty() || ended_) eventfd_write(wake_fd_, 1);
    }
    room_.notify_one();
    return message;
  }

  // How the stream ended, once next() has given out everything.
  std::optional<grpc::Status> ended() {
    std::lock_guard lock(mutex_);
    return queue_.empty() ? ended_ : std::nullopt;
  }

 private:
  static constexpr size_t kQueueMax = 4;

  void read_all() {
    Message message;
    while (stream_->Read(&message)) {
      std::unique_lock lock(mutex_);
      room_.wait(lock, [this] { return stopped_ || queue_.size() < kQueueMax; });
      if (stopped_) break;
      queue_.push_back(std::move(message));
      message = Message();
      eventfd_write(wake_fd_, 1);
    }
    grpc::Status status = stream_->Finish();
    std::lock_guard lock(mutex_);
    ended_ = std::move(status);
    eventfd_write(wake_fd_, 1);
  }

  int wake_fd_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReader<Message>> stream_;
  // Guarded by mutex_.
  std::mutex mutex_;
  std::condition_variable room_;
  std::deque<Message> queue_;
  std::optional<grpc::Status> ended_;
  bool stopped_ = false;

  std::thread thread_;
};

}  // namespace dtrain::cli
