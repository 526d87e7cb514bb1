#include "engine/comm/channel.h"

#include <atomic>
#include <functional>
#include <mutex>
#include <optional>

#include "forked.h"
#include "teams.h"

namespace dtrain::engine {
namespace {

const Moment kMoment{3, "pipeline"};

std::vector<float> message(size_t size, int seed) {
  std::vector<float> values(size);
  for (size_t i = 0; i < size; ++i)
    values[i] = static_cast<float>(i % 1000) + 1000.0f * static_cast<float>(seed);
  return values;
}

TEST_CASE("messages of all sizes go down a pipeline and back") {
  // On one host within a process and between two, over two hosts, and mixed.
  const Cast casts[] = {{.threads = {3}},
                        {.threads = {1, 2}},
                        {.threads = {1, 1, 1}, .hosts = {0, 1, 2}},
                        {.threads = {1, 1, 1}, .hosts = {0, 0, 1}}};
  for (const Cast& cast : casts) {
    std::atomic<int> wrong = 0;
    with_teams(cast, {.elements = 1}, [&](Team& team, int me) {
      const auto deadline = Deadline::after(kPatience_seconds);
      std::vector<Channel> neighbours;
      for (const int other : {me - 1, me + 1}) {
        if (other < 0 || other > 2) continue;
        auto channel = Channel::open(team, me, other, deadline);
        if (!channel.ok()) FAIL_CHECK(channel.error().message);
        if (!channel.ok()) return;
        neighbours.push_back(std::move(*channel));
      }
      int seed = 0;
      for (const size_t size : {1u, 0u, 1000u, 262'144u, 700'001u, 5u}) {
        ++seed;
        const std::vector<float> down = message(size, seed), up = message(size, -seed);
        std::vector<float> got(size);
        if (me == 0) {
          wrong += !neighbours[0].send(down, deadline, kMoment).ok();
          wrong += !neighbours[0].receive(got, deadline, kMoment).ok();
        } else {
          wrong += !neighbours[0].receive(got, deadline, kMoment).ok();
          wrong += got != down;
          if (me == 1) {
            wrong += !neighbours[1].send(got, deadline, kMoment).ok();
            wrong += !neighbours[1].receive(got, deadline, kMoment).ok();
            wrong += got != up;
          }
          wrong += !neighbours[0].send(up, deadline, kMoment).ok();
        }
        if (me == 0) wrong += got != up;
      }
    });
    CHECK(wrong == 0);
  }
}

TEST_CASE("a channel names who is silent and who is out of step") {
  for (const std::vector<int>& hosts : {std::vector<int>{0, 0}, std::vector<int>{0, 1}}) {
    std::mutex mutex;
    std::vector<std::string> texts(2);
    for (const bool silent : {true, false}) {
      with_teams({.threads = {1, 1}, .hosts = hosts}, {.elements = 1}, [&](Team& team, int me) {
        auto channel = Channel::open(team, me, 1 - me, Deadline::after(kPatience_seconds));
        if (!channel.ok()) FAIL_CHECK(channel.error().message);
        if (!channel.ok()) return;
        std::vector<float> values(10);
        Status status = ok();
        if (me == 0) {
          const auto deadline = Deadline::after(silent ? 0.1 : kPatience_seconds);
          status = channel->receive(values, deadline, kMoment);
        } else if (silent) {
          // Stays until the other has given up.
          while (status.ok()) status = team.look(kMoment);
        } else {
          status = channel->send(std::span(values).first(9), Deadline::after(1), kMoment);
        }
        const std::lock_guard lock(mutex);
        texts[static_cast<size_t>(me)] = status.ok() ? "" : status.error().message;
      });
      CAPTURE(texts[0]);
      CHECK(texts[0].find("worker 1 at 127.0.0.1:") == 0);
      CHECK(texts[0].find(silent ? "did not answer for 0.1 s after step 3 (pipeline)"
                                 : "sends 9 values where 10 are due") != std::string::npos);
      if (silent) CHECK(texts[1] == texts[0]);
    }
  }
}

// One of processes in a line, with a channel to each of its neighbours.
struct InLine {
  Team& team;
  std::optional<Channel> before, after;
  bool is_last() const { return !after; }

  // Says to those who ask that data moves here all the time.
  Status seem_to_move(double seconds) const {
    Status status = ok();
    for (const auto busy = Deadline::after(seconds); status.ok() && !busy.expired();) {
      team.gang().asking().has_moved();
      status = team.look(kMoment, [this] { return team.gang().self(); });
    }
    return status;
  }
  // Of what the one behind sends, to the one before.
  Status pass_on(Deadline deadline) {
    std::vector<float> values(10);
    if (after) TRY(after->receive(values, deadline, kMoment));
    return before ? before->send(values, Deadline::after(kPatience_seconds), kMoment) : ok();
  }
};

// What each of them comes to, "passed" or the error.
std::vector<std::string> in_line(const std::vector<int>& hosts, const std::function<Status(InLine&)>& body) {
  const Cast cast{.threads = std::vector<int>(hosts.size(), 1), .hosts = hosts};
  return forked(cast, [&](Gang& gang) -> std::string {
    const auto run = [&]() -> Status {
      const auto patient = Deadline::after(kPatience_seconds);
      TRY(const auto team, Team::open(gang, {.elements = 16}, patient));
      InLine one{*team, {}, {}};
      const int me = gang.first();
      for (const auto& [to, other] : {std::pair{&one.before, me - 1}, std::pair{&one.after, me + 1}}) {
        if (other < 0 || other >= gang.world()) continue;
        TRY(*to, Channel::open(*team, me, other, patient));
      }
      return body(one);
    };
    const Status status = run();
    return status.ok() ? "passed" : status.error().message;
  });
}

TEST_CASE("who still moves data is waited for beyond the deadline, and so are those who wait for it") {
  for (const std::vector<int>& hosts : {std::vector<int>{0, 0, 0}, {0, 1, 2}, {0, 0, 1}, {0, 1, 1}}) {
    CAPTURE(hosts[1]);
    CAPTURE(hosts[2]);
    const auto texts = in_line(hosts, [](InLine& one) -> Status {
      if (one.is_last()) TRY(one.seem_to_move(1.5));
      return one.pass_on(Deadline::after(0.5));
    });
    for (const std::string& text : texts) CHECK_MESSAGE(text == "passed", text);
  }
}

TEST_CASE("who waits for another one itself is not named, but that one") {
  for (const std::vector<int>& hosts : {std::vector<int>{0, 0, 0, 0}, {0, 1, 2, 3}, {0, 0, 1, 1}}) {
    CAPTURE(hosts[3]);
    // Each waits for the next one, and the first of them not long.
    const auto texts = in_line(hosts, [](InLine& one) {
      if (one.is_last()) ::raise(SIGSTOP);
      return one.pass_on(Deadline::after(one.before ? kPatience_seconds : 0.5));
    });
    for (size_t i = 0; i < 3; ++i) CHECK_MESSAGE(texts[i].find("worker 3 at 127.0.0.1:") == 0, texts[i]);
  }
}

TEST_CASE("who computes since data came slowly is waited for a deadline from then on") {
  // The last one says nothing from 1.5 s after the last time that it was asked.
  const auto texts = in_line({0, 1, 2}, [](InLine& one) -> Status {
    if (one.is_last()) TRY(one.seem_to_move(3.5));
    for (const auto busy = Deadline::after(1.7); one.is_last() && !busy.expired();) std::this_thread::yield();
    return one.pass_on(Deadline::after(2));
  });
  for (const std::string& text : texts) CHECK_MESSAGE(text == "passed", text);
}

TEST_CASE("a thread that waits for another process is not named by those of its own") {
  // A thread waits at a barrier for the other one, which waits for a process that is stopped, not
  // as long yet.
  const auto texts = forked({.threads = {2, 1}, .hosts = {0, 1}}, [](Gang& gang) -> std::string {
    const auto patient = Deadline::after(kPatience_seconds);
    auto team = Team::open(gang, {.elements = 16}, patient);
    if (!team.ok()) return team.error().message;
    auto channel =
        Channel::open(**team, gang.self() == 0 ? 1 : 2, gang.self() == 0 ? 2 : 1, patient);
    if (!channel.ok()) return channel.error().message;
    if (gang.self() == 1) ::raise(SIGSTOP);
    Status at_barrier = ok();
    std::thread other([&] { at_barrier = (*team)->barrier(0, Deadline::after(0.5), kMoment); });
    for (const auto busy = Deadline::after(0.3); !busy.expired();) std::this_thread::yield();
    std::vector<float> values(10);
    const Status status = channel->receive(values, Deadline::after(0.5), kMoment);
    other.join();
    return status.ok() || at_barrier.ok()
               ? "passed"
               : status.error().message + "; " + at_barrier.error().message;
  });
  CHECK_MESSAGE(texts[0].find("thread") == std::string::npos, texts[0]);
  CHECK_MESSAGE(texts[0].find("worker 1 at 127.0.0.1:") == 0, texts[0]);
}

TEST_CASE("the other end killed in the middle of a message is named at once") {
  for (const std::vector<int>& hosts : {std::vector<int>{0, 0}, std::vector<int>{0, 1}}) {
    const auto texts = forked({.threads = {1, 1}, .hosts = hosts}, [](Gang& gang) -> std::string {
      auto team = Team::open(gang, {.elements = 1}, Deadline::after(kPatience_seconds));
      if (!team.ok()) return team.error().message;
      auto channel =
          Channel::open(**team, gang.self(), 1 - gang.self(), Deadline::after(kPatience_seconds));
      if (!channel.ok()) return channel.error().message;
      std::vector<float> values(10'000'000);
      if (gang.self() == 1) {
        // The last that is received is not the last of what is sent: the other waits in a message.
        std::vector<float> some(10);
        if (!channel->receive(some, Deadline::after(kPatience_seconds), kMoment).ok()) return "?";
        ::raise(SIGKILL);
      }
      auto status = channel->send(std::span(values).first(10), Deadline::after(1e4), kMoment);
      if (status.ok()) status = channel->send(values, Deadline::after(1e4), kMoment);
      return status.ok() ? "passed" : status.error().message;
    });
    CHECK(texts[0].find("worker 1 at 127.0.0.1:") != std::string::npos);
    CHECK(texts[0].find(" after step 3 (pipeline)") != std::string::npos);
  }
}

}  // namespace
}  // namespace dtrain::engine
