#include "engine/comm/meeting.h"

#include <atomic>
#include <csignal>

#include "forked.h"
#include "teams.h"

namespace dtrain::engine {
namespace {

// Runs body(meeting, participant) on every thread of every process.
void with_meetings(const Cast& cast, const std::function<void(Meeting&, int)>& body) {
  with_gangs(cast, [&](Gang& gang) {
    auto team = Team::open(gang, {.elements = 16}, Deadline::after(kPatience_seconds));
    if (!team.ok()) FAIL_CHECK(team.error().message);
    if (!team.ok()) return;
    Meeting meeting(**team);
    std::vector<std::thread> threads;
    for (int me = gang.first(); me < gang.first() + gang.threads(); ++me) threads.emplace_back([&, me] { body(meeting, me); });
    for (std::thread& thread : threads) thread.join();
  });
}

TEST_CASE("who gathers no notes waits for the others all the same, on other hosts too") {
  std::atomic<int> came = 0;
  with_meetings({.threads = {1, 2, 1}, .hosts = {0, 1, 2}}, [&](Meeting& meeting, int me) {
    for (int round = 1; round <= 200; ++round) {
      ++came;
      CHECK(meeting.gather(me, round, Deadline::after(kPatience_seconds), {}, {}).ok());
      CHECK(came >= 4 * round);  // some may have come for the next one by now
    }
  });
}

TEST_CASE("who waits for participant 0 comes after it, on other hosts too") {
  std::atomic<int> came = 0;
  with_meetings({.threads = {2, 1, 2, 1}, .hosts = {0, 0, 1, 1}}, [&](Meeting& meeting, int me) {
    for (int round = 1; round <= 200; ++round) {
      if (me == 0) came = round;
      CHECK(meeting.wait_for_first(me, round, kPatience_seconds, kPatience_seconds).ok());
      CHECK(came >= round);
      CHECK(meeting.gather(me, round, Deadline::after(kPatience_seconds), {}, {}).ok());
    }
  });
}

TEST_CASE("one that stopped while others wait for participant 0 is named on the deadline, once that is there") {
  for (const int stops : {1, 3}) {
    CAPTURE(stops);
    const auto texts = forked({.threads = {1, 1, 1, 1}, .hosts = {0, 0, 1, 1}}, [&](Gang& gang) -> std::string {
      auto team = Team::open(gang, {.elements = 16}, Deadline::after(kPatience_seconds));
      if (!team.ok()) return team.error().message;
      Meeting meeting(**team);
      if (gang.self() == stops) ::raise(SIGSTOP);
      Status status = meeting.wait_for_first(gang.first(), 7, 1e4, 0.5);
      while (status.ok()) status = (*team)->look({7, "the next"});  // those of the other host have all they wait for
      return status.error().message;
    });
    for (const int others : {0, 4 - stops, 2}) {
      const std::string& text = texts[static_cast<size_t>(others)];
      CHECK_MESSAGE(text.find(fmt::format("worker {} at 127.0.0.1:", stops)) == 0, text);
      CHECK_MESSAGE(text.find(" did not answer for 0.5 s after step 7") != std::string::npos, text);
    }
  }
}

TEST_CASE("who is waited for on its host is named before the one who waits for it is missed on others") {
  const auto texts = forked({.threads = {1, 1, 1, 1}, .hosts = {0, 0, 1, 1}}, [&](Gang& gang) -> std::string {
    auto team = Team::open(gang, {.elements = 16}, Deadline::after(kPatience_seconds));
    if (!team.ok()) return team.error().message;
    Meeting meeting(**team);
    Status status = ok();
    for (int64_t step = 7; status.ok(); ++step) {
      const auto deadline = Deadline::after(0.5);
      if (gang.self() == 1) {  // not to the end of it: what others tell has come to its host, and it does not
        status = (*team)->barrier(1, deadline, {step, "values"});
        ::raise(SIGSTOP);
      } else {
        status = meeting.gather(gang.first(), step, deadline, {}, {});
      }
    }
    return status.error().message;
  });
  for (const size_t other : {0, 2, 3}) CHECK_MESSAGE(texts[other].find("worker 1 at 127.0.0.1:") == 0, texts[other]);
}

}  // namespace
}  // namespace dtrain::engine
