#include "engine/models/host_losses.h"

#include <doctest/doctest.h>

#include <barrier>
#include <thread>
#include <vector>

#include "engine/models/host_kernels.h"

namespace dtrain::engine {
namespace {

// Slices that are threads of one process.
struct Table {
  explicit Table(int slices) : all(static_cast<size_t>(slices)), meeting(slices) {}
  std::vector<std::vector<float>> all;
  std::barrier<> meeting;
};
class Slice : public Partners<float> {
 public:
  Slice(Table& table, int me) : table_(table), me_(static_cast<size_t>(me)) {}
  void add_up(float*, int64_t) override { FAIL("losses are not added up"); }
  void gather(const float* mine, float* all, int64_t count) override {
    table_.all[me_].assign(mine, mine + count);
    table_.meeting.arrive_and_wait();
    for (const std::vector<float>& each : table_.all) all = std::ranges::copy(each, all).out;
    table_.meeting.arrive_and_wait();
  }

 private:
  Table& table_;
  const size_t me_;
};

// By slices of the columns, or whole.
int64_t correct(int slices, const std::vector<std::vector<float>>& rows, const std::vector<int32_t>& labels) {
  const auto n = static_cast<int64_t>(rows.front().size()), count = static_cast<int64_t>(rows.size());
  Table table(slices);
  std::vector<int64_t> told(static_cast<size_t>(slices));
  std::vector<std::thread> threads;
  for (int me = 0; me < slices; ++me) {
    threads.emplace_back([&, me] {
      const Range columns{n * me / slices, n * (me + 1) / slices};
      std::vector<float> logits;
      for (const auto& row : rows) logits.insert(logits.end(), row.begin() + columns.begin, row.begin() + columns.end);
      HostLosses<float> losses(count, columns, slices);
      Slice slice(table, me);
      told[static_cast<size_t>(me)] =
          losses.run(HostKernels<float>(), {&count, 1}, 1, labels.data(), logits.data(), columns.size(), &slice).correct;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const int64_t each : told) CHECK(each == told.front());
  return told.front();
}

TEST_CASE("of several logits that are as large the first is guessed") {
  const std::vector<std::vector<float>> rows{{2, 2, 2, 2, 2}, {2, 2, 2, 2, 2}, {1, 3, 0, 3, 0}, {1, 3, 0, 3, 0}, {0, 0, 0, 1, 0}};
  const std::vector<int32_t> labels{0, 2, 1, 3, 3};
  for (const int slices : {1, 2, 3, 5, 7}) {
    CAPTURE(slices);
    CHECK(correct(slices, rows, labels) == 3);
  }
}

}  // namespace
}  // namespace dtrain::engine
