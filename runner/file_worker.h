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
    if (batch_)
      for (const auto& job : *batch_) (void)job();
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

  // The same for a job that may not be possible for now (false): tried again, while others go ahead.
  void run_until_done(std::function<bool()> job, std::function<void()> then) {
    auto done = std::make_shared<bool>(false);
    run([done, job] { *done = job(); },
        [this, done, job, then = std::move(then)]() mutable {
          if (*done) return then();
          auto pause = std::make_shared<boost::asio::steady_timer>(loop_, kAgain);
          pause->async_wait([this, pause, job = std::move(job), then = std::move(then),
                             delivering = std::weak_ptr<int>(delivering_)](auto) mutable {
            if (!delivering.expired()) run_until_done(std::move(job), std::move(then));
          });
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
  using Jobs = std::vector<std::function<bool()>>;
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
    if (batch_ || later_.empty() || (urgent_ > 0 && later_.size() < kLaterMax)) return;
    // The more there is, the more at once: each turn stands behind all that is urgent.
    const auto end = later_.begin() + static_cast<std::ptrdiff_t>(1 + later_.size() / kTurns);
    batch_ = std::make_shared<Jobs>(later_.begin(), end);
    later_.erase(later_.begin(), end);
    give([batch = batch_] { std::erase_if(*batch, [](const auto& job) { return job(); }); },
         [this] {
           later_.insert(later_.end(), batch_->begin(), batch_->end());
           again_.expires_after(batch_->empty() ? std::chrono::seconds(0) : kAgain);
           batch_->clear();
           again_.async_wait([this](boost::system::error_code error) {
             if (error) return;
             batch_.reset();
             clear_up();
           });
         });
  }

  boost::asio::io_context& loop_;
  boost::asio::steady_timer again_;
  std::shared_ptr<int> delivering_ = std::make_shared<int>(0);
  std::deque<std::function<bool()>> later_;
  std::shared_ptr<Jobs> batch_;   // of later_, on the thread; what is left there is not done
  size_t urgent_ = 0;             // jobs given and not finished, of run()
  boost::asio::thread_pool thread_{1};
};

}  // namespace dtrain::runner
