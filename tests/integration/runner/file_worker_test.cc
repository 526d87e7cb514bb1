#include "runner/file_worker.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <boost/asio/executor_work_guard.hpp>
#include <string>
#include <vector>

namespace dtrain::runner {
namespace {

TEST_CASE("what is put off does not pile up behind work that never ends") {
  boost::asio::io_context loop;
  const auto work = boost::asio::make_work_guard(loop);
  std::atomic<int> put_off = 0;
  int most = 0, finished = 0;
  {
    FileWorker worker(loop);
    constexpr int kChains = 10, kEach = 1'000;
    // Ten that always have an urgent job, each of which leaves something to delete.
    std::function<void(int)> go_on = [&](int left) {
      if (left == 0) return void(++finished);
      worker.later([&] {
        --put_off;
        return true;
      });
      most = std::max(most, ++put_off);
      worker.run([] {}, [&, left] { go_on(left - 1); });
    };
    for (int i = 0; i < kChains; ++i) go_on(kEach);
    while (finished < kChains) loop.run_one();
  }
  CHECK(most < 3'000);
  CHECK(put_off == 0);
}

TEST_CASE("what is put off is done once, however the end cuts into it") {
  for (int round = 0; round < 300; ++round) {
    std::vector<std::atomic<int>> done(40);
    boost::asio::io_context loop;
    {
      FileWorker worker(loop);
      for (auto& each : done)
        worker.later([&each] {
          ++each;
          return true;
        });
      loop.poll();
    }
    for (const auto& each : done) REQUIRE(each == 1);
  }
}

TEST_CASE("what can't be deleted now is tried again, and holds up nothing else") {
  boost::asio::io_context loop;
  const auto work = boost::asio::make_work_guard(loop);
  FileWorker worker(loop);
  std::atomic<int> tried = 0;
  std::atomic<bool> other = false;
  worker.later([&] { return ++tried == 3; });
  worker.later([&] { return other = true; });
  while (tried < 3) loop.run_one();
  CHECK(other);
}

TEST_CASE("what is waited for and not possible for now is tried again, and others go ahead") {
  boost::asio::io_context loop;
  const auto work = boost::asio::make_work_guard(loop);
  FileWorker worker(loop);
  std::atomic<int> tried = 0;
  std::vector<std::string> order;
  worker.run_until_done([&] { return ++tried == 2; }, [&] { order.push_back("first"); });
  worker.run([] {}, [&] { order.push_back("second"); });
  while (order.size() < 2) loop.run_one();
  CHECK(order == std::vector<std::string>{"second", "first"});
  CHECK(tried == 2);
}

}  // namespace
}  // namespace dtrain::runner
