// One thread for file work that may take long: building trees, mounting, copying, deleting.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <functional>
#include <memory>

namespace dtrain::runner {

// FileWorker runs jobs one after the other on its thread and hands what follows back to the loop.
// Owner: Agent. A job touches files and what it carries with it, never the agent's state.
// Destruction waits for the job in progress; what would have followed is dropped.
class FileWorker {
 public:
  explicit FileWorker(boost::asio::io_context& loop) : loop_(loop) {}
  ~FileWorker() {
    delivering_.reset();
    thread_.stop();
    thread_.join();
  }
  FileWorker(const FileWorker&) = delete;
  FileWorker& operator=(const FileWorker&) = delete;

  // Thread: loop. `then` runs there too.
  void run(std::function<void()> job, std::function<void()> then) {
    std::weak_ptr<int> delivering = delivering_;
    boost::asio::post(thread_, [&loop = loop_, delivering, job = std::move(job),
                                then = std::move(then)]() mutable {
      job();
      boost::asio::post(loop, [delivering, then = std::move(then)] {
        if (!delivering.expired()) then();
      });
    });
  }

 private:
  boost::asio::io_context& loop_;
  std::shared_ptr<int> delivering_ = std::make_shared<int>(0);
  boost::asio::thread_pool thread_{1};
};

}  // namespace dtrain::runner
