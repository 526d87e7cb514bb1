#include "engine/comm/group.h"

#include <atomic>
#include <cstring>
#include <future>
#include <memory>

#include "teams.h"

namespace dtrain::engine {
namespace {

float value(int participant, size_t i, int round) {
  return static_cast<float>(participant + 1) * 0.37f + static_cast<float>(i % 977) * 1.3e-3f +
         static_cast<float>(round) * 1e4f;
}

// Reduces and gathers over the group; how much was wrong.
int exchange(Group& group, int me, size_t size) {
  const auto deadline = Deadline::after(kPatience_seconds);
  const std::vector<int>& members = group.members();
  int wrong = 0;
  for (int round = 0; round < 3; ++round) {
    std::vector<float> values(size), expected(size), all(size * members.size());
    for (size_t i = 0; i < size; ++i) {
      values[i] = value(me, i, round);
      expected[i] = value(members[0], i, round);
      for (size_t m = 1; m < members.size(); ++m) expected[i] += value(members[m], i, round);
    }
    wrong += !group.all_gather(values, all, deadline, {round, "test"}).ok();
    for (size_t m = 0; m < members.size(); ++m) {
      for (size_t i = 0; i < size; ++i) wrong += all[m * size + i] != value(members[m], i, round);
    }
    wrong += !group.all_reduce(values, deadline, {round, "test"}).ok();
    wrong += std::memcmp(values.data(), expected.data(), size * sizeof(float)) != 0;
  }
  return wrong;
}

TEST_CASE("a group's sums are in the order of its members, on one host and over several") {
  const Cast casts[] = {{.threads = {1}},
                        {.threads = {2}},
                        {.threads = {2, 1, 1}},
                        {.threads = {1, 1}, .hosts = {0, 1}},
                        {.threads = {2, 1}, .hosts = {0, 1}},
                        {.threads = {1, 1, 1, 1}, .hosts = {0, 1, 0, 2}}};
  for (const Cast& cast : casts) {
    for (const size_t size : {1u, 1000u, 600'001u}) {
      CAPTURE(cast.threads.size());
      CAPTURE(size);
      std::atomic<int> wrong = 0;
      with_teams(cast, {.elements = 1}, [&](Team& team, int me) {
        std::vector<int> everyone;
        for (int p = 0; p < team.gang().world(); ++p) everyone.push_back(p);
        auto group = Group::open(team, me, everyone, 0, Deadline::after(kPatience_seconds));
        if (!group.ok()) FAIL_CHECK(group.error().message);
        if (group.ok()) wrong += exchange(**group, me, size);
      });
      CHECK(wrong == 0);
    }
  }
}

TEST_CASE("rows and columns of a mesh are groups side by side") {
  for (const std::vector<int>& hosts : {std::vector<int>{0, 0}, std::vector<int>{0, 1}}) {
    std::atomic<int> wrong = 0;
    with_teams({.threads = {2, 2}, .hosts = hosts}, {.elements = 1}, [&](Team& team, int me) {
      const auto deadline = Deadline::after(kPatience_seconds);
      const int row = me / 2, column = me % 2;
      auto rows = Group::open(team, me, {2 * row, 2 * row + 1}, 0, deadline);
      auto columns = Group::open(team, me, {column, column + 2}, 1, deadline);
      if (!rows.ok()) FAIL_CHECK(rows.error().message);
      if (!columns.ok()) FAIL_CHECK(columns.error().message);
      if (!rows.ok() || !columns.ok()) return;
      for (int round = 0; round < 3; ++round) {
        wrong += exchange(**rows, me, 5000) + exchange(**columns, me, 300'000);
      }
    });
    CHECK(wrong == 0);
  }
}

TEST_CASE("a member that is there but does not take part is named") {
  for (const std::vector<int>& hosts : {std::vector<int>{0, 0}, std::vector<int>{0, 1}}) {
    CAPTURE(hosts.back());
    std::promise<void> gave_up;
    const std::shared_future<void> until = gave_up.get_future().share();
    with_teams({.threads = {1, 1}, .hosts = hosts}, {.elements = 1}, [&](Team& team, int me) {
      auto group = Group::open(team, me, {0, 1}, 0, Deadline::after(kPatience_seconds));
      if (me == 1) return until.wait();
      std::vector<float> values(5000, 1);
      const std::string said = [&] {
        if (!group.ok()) return group.error().message;
        const Status reduced = (*group)->all_reduce(values, Deadline::after(0.2), {7, "the layer's sum"});
        return reduced.ok() ? "" : reduced.error().message;
      }();
      gave_up.set_value();
      CHECK_MESSAGE(said.find("worker 1") != std::string::npos, said);
      CHECK_MESSAGE(said.find("the layer's sum") != std::string::npos, said);
    });
  }
}

}  // namespace
}  // namespace dtrain::engine
