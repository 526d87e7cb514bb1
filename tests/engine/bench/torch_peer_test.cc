#include "engine/bench/torch_peer.h"

#include <doctest/doctest.h>

#include <algorithm>

namespace dtrain::engine {
namespace {

TEST_CASE("a peer is tried with each number of threads, and with threads that wait either way") {
  const auto two = torch_settings(2, 1, false);
  CHECK(two == std::vector<TorchSetting>{{1, 1, false}, {2, 2, false}, {2, 2, true}});
  // Processes share the CPUs.
  CHECK(torch_settings(2, 2, false) == std::vector<TorchSetting>{{1, 1, false}});
  CHECK(torch_settings(1, 4, false) == std::vector<TorchSetting>{{1, 1, false}});
  std::vector<int> counts;
  for (const TorchSetting& each : torch_settings(6, 1, false)) counts.push_back(each.threads);
  CHECK(counts == std::vector<int>{1, 2, 2, 4, 4, 6, 6});
}

TEST_CASE("a BLAS with threads of its own is tried with each number of them, too") {
  const auto all = torch_settings(2, 1, true);
  CHECK(all.size() == 6);
  for (const int threads : {1, 2}) {
    for (const int blas : {1, 2}) {
      CHECK(std::ranges::find(all, TorchSetting{threads, blas, false}) != all.end());
    }
  }
}

TEST_CASE("a setting is said in words") {
  CHECK(to_string(TorchSetting{1, 1, false}) == "1 thread");
  CHECK(to_string(TorchSetting{1, 2, false}) == "1 thread (BLAS 2)");
  CHECK(to_string(TorchSetting{2, 2, true}) == "2 threads, waiting awake");
  CHECK(to_string(TorchSetting{2, 1, false}) == "2 threads (BLAS 1), waiting asleep");
}

}  // namespace
}  // namespace dtrain::engine
