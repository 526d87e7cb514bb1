// One thread for file work that may take long: building trees, mounting, copying, deleting.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <chrono>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

namespace dtrain::runner {

// FileWorker runs jobs one after the other on its thread and hands what follows back to the loop.
// Owner: Agent. A job touches files and what it carries with it, never the agent's state.
// Destruction waits for the job in progress and does what was put off; what would have followed a job
// is dropped.
class FileWorker {
 public:
  explicit FileWorker(boost::asio::io_context& loop) : loop_(loop), again_(loop) {}
  ~FileWorker() {
    delivering_.reset();
    thread_.stop();
    thread_.join();
    for (const auto& job : later_) (void)job();
  }
  FileWorker(const FileWorker&) = delete;
  FileWorker& operator=(const FileWorker&) = delete;

  // Thread: loop. `then` runs there too.
  void run(std::function<void()> job, std::function<void()> then) {
    ++urgent_;
    give(std::move(job), [this, then = std::move(then)] {
      --urgent_;
      then();
      clear_up();
    });
  }

  // What nobody waits for, above all deleting: done when nothing else is to do, or too much has
  // gathered. A file system looks for free inodes more slowly while it deletes. False: it could not be
  // done for now (no descriptors, no memory) and is tried again. What a killed runner leaves undone the
  // next one finds and does.
  void later(std::function<bool()> job) {
    later_.push_back(std::move(job));
    clear_up();
  }

 private:
  static constexpr size_t kLaterMax = 1'000;
  static constexpr size_t kTurns = 32;   // in about as many all of it is done
  static constexpr std::chrono::seconds kAgain{1};

  void give(std::function<void()> job, std::function<void()> then) {
    std::weak_ptr<int> delivering = delivering_;
    boost::asio::post(thread_, [&loop = loop_, delivering, job = std::move(job),
                                then = std::move(then)]() mutable {
      job();
      boost::asio::post(loop, [delivering, then = std::move(then)] {
        if (!delivering.expired()) then();
      });
    });
  }

  void clear_up() {
    if (clearing_ || later_.empty() || (urgent_ > 0 && later_.size() < kLaterMax)) return;
    clearing_ = true;
    // The more there is, the more at once: each turn stands behind all that is urgent. They are kept
    // until they are done, so that the end of the process can't lose them; twice is once.
    const auto count = static_cast<std::ptrdiff_t>(1 + later_.size() / kTurns);
    using Jobs = std::vector<std::function<bool()>>;
    auto jobs = std::make_shared<Jobs>(later_.begin(), later_.begin() + count);
    give([jobs] { std::erase_if(*jobs, [](const auto& job) { return job(); }); },
         [this, jobs, count] {
           later_.erase(later_.begin(), later_.begin() + count);
           later_.insert(later_.end(), jobs->begin(), jobs->end());
           again_.expires_after(jobs->empty() ? std::chrono::seconds(0) : kAgain);
           again_.async_wait([this](boost::system::error_code error) {
             if (error) return;
             clearing_ = false;
             clear_up();
           });
         });
  }

  boost::asio::io_context& loop_;
  boost::asio::steady_timer again_;
  std::shared_ptr<int> delivering_ = std::make_shared<int>(0);
  std::deque<std::function<bool()>> later_;
  size_t urgent_ = 0;       // jobs given and not finished, of run()
  bool clearing_ = false;   // one of later_ is under way
  boost::asio::thread_pool thread_{1};
};

}  // namespace dtrain::runner
