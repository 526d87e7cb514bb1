#include "engine/strategies/grid.h"

#include <doctest/doctest.h>

#include <mutex>
#include <set>

#include "../comm/gangs.h"

namespace dtrain::engine {
namespace {

struct GridCase {
  const char* name;
  Cast cast;
  int model;
  bool pipeline;
};

const std::vector<GridCase> kCases = {
    {"one", {{1}}, 1, false},
    {"threads", {{3, 3}}, 2, true},
    {"mesh", {{1, 1, 1, 1}}, 2, false},
    {"rows on hosts", {{1, 1, 1, 1}, {0, 0, 1, 1}}, 2, false},
    {"parts on hosts", {{2, 2, 2, 2}, {0, 1, 0, 1}}, 2, false},
    {"stages on hosts", {{1, 1, 1, 1}, {0, 1, 2, 2}}, 4, true},
    {"slices on hosts", {{2, 2, 2, 2}, {0, 1, 1, 0}}, 4, false},
};

TEST_CASE("on every host each element that its parts hold is updated by one participant") {
  const ModelSpec spec = GptSpec{4, 4, 16, 12, 23};
  const SampleShape shape{.context = 12, .vocabulary = 23};
  const Layout layout = layout_of(spec, shape);
  for (const GridCase& one : kCases) {
    CAPTURE(std::string(one.name));
    std::vector<Held> held;
    for (int model = 0; model < one.model; ++model) {
      held.push_back(held_by(spec, shape, one.pipeline ? ModelPart{.stage = model, .stages = one.model}
                                                       : ModelPart{.slice = model, .slices = one.model}));
    }
    std::mutex mutex;
    int looked = 0;
    with_gangs(one.cast, [&](Gang& gang) {
      const Grid grid(gang, one.model);
      const std::lock_guard lock(mutex);
      ++looked;
      CHECK(grid.size() == grid.data() * grid.model());
      std::vector<int> counted(static_cast<size_t>(layout.size()));
      for (int host = 0; host < static_cast<int>(gang.hosts().size()); ++host) {
        std::vector<int> times(counted.size()), due(counted.size());
        for (int me = 0; me < grid.size(); ++me) {
          CHECK(grid.at(grid.data_of(me), grid.model_of(me)) == me);
          if (grid.host_of(me) != host) continue;
          const Held& mine = held[static_cast<size_t>(grid.model_of(me))];
          for (const auto* ranges : {&mine.own, &mine.same, &mine.partial}) {
            for (const Range range : *ranges) {
              for (int64_t i = range.begin; i < range.end; ++i) due[static_cast<size_t>(i)] = 1;
            }
          }
          for (const Duty& duty : duties_of(grid, me, held)) {
            CHECK(duty.range.size() > 0);
            for (int64_t i = duty.range.begin; i < duty.range.end; ++i) {
              ++times[static_cast<size_t>(i)];
              counted[static_cast<size_t>(i)] += duty.counted;
            }
          }
        }
        CHECK(times == due);
      }
      for (const Parameter& p : layout.parameters()) {
        CAPTURE(p.name);
        for (int64_t i = p.offset; i < p.range().end; ++i) CHECK(counted[static_cast<size_t>(i)] == 1);
      }
    });
    CHECK(looked == static_cast<int>(one.cast.threads.size()));
  }
}

}  // namespace
}  // namespace dtrain::engine
