#include "engine/comm/team.h"

#include <atomic>
#include <latch>
#include <mutex>

#include "forked.h"
#include "teams.h"

namespace dtrain::engine {
namespace {

TEST_CASE("what is written before a barrier is there after it, round after round") {
  for (const Cast& cast : {Cast{.threads = {3}}, Cast{.threads = {1, 2}}, Cast{.threads = {1}}}) {
    std::atomic<int> wrong = 0;
    with_teams(cast, {.elements = 100, .states = 1, .arenas = 2}, [&](Team& team, int me) {
      for (int round = 1; round <= 300; ++round) {
        const auto value = static_cast<float>(round);
        team.gradients(me, 1)[99] = value;
        if (me == 0) team.params()[0] = team.state(0)[99] = value;
        if (!team.barrier(me, Deadline::after(kPatience_seconds), {round, "test"}).ok()) ++wrong;
        for (int p = 0; p < team.size(); ++p) wrong += team.gradients(p, 1)[99] != value;
        wrong += team.params()[0] != value || team.state(0)[99] != value;
        if (!team.barrier(me, Deadline::after(kPatience_seconds), {round, "test"}).ok()) ++wrong;
      }
    });
    CHECK(wrong == 0);
  }
}

TEST_CASE("subgroups of one slot pass their barriers by themselves") {
  std::atomic<int> wrong = 0;
  with_teams({.threads = {2, 2}}, {.elements = 4}, [&](Team& team, int me) {
    // {0, 2} and {1, 3}; the latter passes oftener.
    const std::vector<int> group{me % 2, me % 2 + 2};
    for (int round = 0; round < (me % 2 == 0 ? 10 : 50); ++round) {
      if (!team.barrier(me, group, 1, Deadline::after(kPatience_seconds), {round, "test"}).ok()) {
        ++wrong;
      }
    }
  });
  CHECK(wrong == 0);
}

TEST_CASE("the missing are named on the deadline, and everyone says the same") {
  std::mutex mutex;
  std::vector<std::string> texts;
  with_teams({.threads = {1, 3}}, {.elements = 4}, [&](Team& team, int me) {
    if (me == 2) return;
    const auto status = team.barrier(me, Deadline::after(0.2), {17, "all-reduce"});
    const std::lock_guard lock(mutex);
    texts.push_back(status.ok() ? "passed" : status.error().message);
  });
  REQUIRE(texts.size() == 3);
  CHECK(texts[0].find("thread 1 of worker 1 at 127.0.0.1:") == 0);
  CHECK(texts[0].find(" did not answer for 0.2 s after step 17 (all-reduce)") != std::string::npos);
  CHECK(texts[0].find("worker 0") == std::string::npos);
  CHECK(texts[1] == texts[0]);
  CHECK(texts[2] == texts[0]);
}

TEST_CASE("a barrier waits for who still moves data beyond the deadline") {
  for (const Cast& cast : {Cast{.threads = {2}}, Cast{.threads = {1, 1}}}) {
    with_teams(cast, {.elements = 1}, [](Team& team, int me) {
      Status news = ok();
      for (const auto busy = Deadline::after(0.6); me == 1 && news.ok() && !busy.expired();) {
        team.gang().asking().has_moved();
        news = team.look({17, "all-reduce"}, [&] { return team.gang().self(); });
      }
      const Status passed = team.barrier(me, Deadline::after(0.2), {17, "all-reduce"});
      CHECK_MESSAGE(passed.ok(), (passed.ok() ? "" : passed.error().message));
    });
  }
}

TEST_CASE("who waits for a missing one elsewhere is not named for it") {
  std::mutex mutex;
  std::vector<std::string> texts;
  std::latch waits(1);
  with_teams({.threads = {2, 2}}, {.elements = 4}, [&](Team& team, int me) {
    if (me == 3) return;
    Status status = ok();
    if (me == 2) {
      waits.count_down();
      const int group[] = {2, 3};
      status = team.barrier(me, group, 1, Deadline::after(kPatience_seconds), {17, "sum over slices"});
    } else {
      waits.wait();
      status = team.barrier(me, Deadline::after(0.3), {17, "values"});
    }
    const std::lock_guard lock(mutex);
    texts.push_back(status.ok() ? "passed" : status.error().message);
  });
  REQUIRE(texts.size() == 3);
  CHECK(texts[0].find("thread 1 of worker 1 at 127.0.0.1:") == 0);
  CHECK_MESSAGE(texts[0].find("thread 0 of worker 1") == std::string::npos, texts[0]);
  CHECK(texts == std::vector<std::string>(3, texts[0]));
}

TEST_CASE("who does not come to the memory of its host is named") {
  std::string error;
  std::latch others(2);
  with_gangs({.threads = {1, 1, 1}}, [&](Gang& gang) {
    if (gang.self() == 2) return others.wait();
    const auto team = Team::open(gang, {.elements = 4}, Deadline::after(0.2));
    if (gang.self() == 0) error = team.ok() ? "opened" : team.error().message;
    others.count_down();
  });
  CHECK_MESSAGE(error.find("worker 2 at 127.0.0.1:") == 0, error);
  CHECK_MESSAGE(error.find("did not map the shared memory of its host for 0.2 s") != std::string::npos, error);
}

TEST_CASE("one that fails ends the others with its words") {
  for (const Cast& cast : {Cast{.threads = {2, 2}}, Cast{.threads = {2, 2}, .hosts = {0, 1}}}) {
    std::mutex mutex;
    std::vector<std::string> texts;
    with_teams(cast, {.elements = 4}, [&](Team& team, int me) {
      std::string text;
      if (me == 3) {
        text = team.fail({Code::DataLoss, "the loss is not a number", ""}).message;
      } else {
        // The error of one that waits already, and of whoever comes later.
        const auto status = team.barrier(me, Deadline::after(kPatience_seconds), {1, "all-reduce"});
        text = status.ok() ? "passed" : status.error().message;
        // On two hosts those of the other have nothing to wait for.
        if (status.ok()) {
          const auto function = [&] { return team.look({1, "all-reduce"}); };
          Status news = function();
          while (news.ok()) news = function();
          text = news.error().message;
        }
      }
      const std::lock_guard lock(mutex);
      texts.push_back(text);
    });
    CHECK(texts == std::vector<std::string>(4, "the loss is not a number"));
  }
}

std::string three_rounds(Gang& gang, double deadline_seconds, const std::function<void()>& end) {
  auto team = Team::open(gang, {.elements = 10}, Deadline::after(kPatience_seconds));
  if (!team.ok()) return team.error().message;
  for (int step = 1; step <= 3; ++step) {
    if (step == 3 && gang.self() == 1) end();
    const auto status =
        (*team)->barrier(gang.first(), Deadline::after(deadline_seconds), {step, "all-reduce"});
    if (!status.ok()) return status.error().message;
  }
  return "passed";
}

TEST_CASE("a process killed on the way to a barrier is named at once") {
  const auto texts = forked({.threads = {1, 1, 1}}, [](Gang& gang) {
    return three_rounds(gang, 1e4, [] { ::raise(SIGKILL); });
  });
  CHECK(texts[0].find("worker 1 at 127.0.0.1:") == 0);
  CHECK(texts[0].find(" closed the connection after step 3 (all-reduce)") != std::string::npos);
  CHECK(texts[1].empty());
  CHECK(texts[2] == texts[0]);
}

TEST_CASE("a process that stopped is named on the deadline") {
  const auto texts = forked({.threads = {1, 1, 1}}, [](Gang& gang) {
    return three_rounds(gang, 0.5, [] { ::raise(SIGSTOP); });
  });
  CHECK(texts[0].find("worker 1 at 127.0.0.1:") == 0);
  CHECK(texts[0].find(" did not answer for 0.5 s after step 3 (all-reduce)") != std::string::npos);
  CHECK(texts[2] == texts[0]);
}

}  // namespace
}  // namespace dtrain::engine
