#include "engine/comm/asking.h"

#include <doctest/doctest.h>
#include <fmt/format.h>

#include <memory>

namespace dtrain::engine {
namespace {

constexpr uint64_t kKey = 7;

// Processes that are here all at once. What goes over loopback is there when it was sent.
struct Company {
  explicit Company(int count) {
    for (int process = 0; process < count; ++process) {
      listeners.push_back(Listener::open("127.0.0.1", 0).value());
      members.push_back(std::make_unique<Asking>(process, count, kKey, listeners.back()));
    }
    const Deadline deadline = Deadline::after(30);
    for (int from = 0; from < count; ++from) {
      for (int to = 0; to < count; ++to) {
        const int port = listeners[static_cast<size_t>(to)].port();
        auto connection = Socket::connect(fmt::format("127.0.0.1:{}", port), deadline);
        REQUIRE(connection.ok());
        if (from != to) of(from).add(to, *connection, port);
      }
    }
  }
  Asking& of(int process) { return *members[static_cast<size_t>(process)]; }
  // `asks` asks, and these say for whom they wait.
  void ask(int asks, const std::vector<std::pair<int, int>>& waiting) {
    of(asks).ask(start);
    for (const auto& [process, waits_for] : waiting) {
      CHECK(of(process).is_asked());
      of(process).answer(waits_for);
      CHECK(!of(process).is_asked());
    }
    of(asks).is_asked();
  }

  std::vector<int> silent_behind(int asks, int process) { return of(asks).behind(process, start).silent; }

  const Deadline::Clock::time_point start = Deadline::Clock::now();
  std::vector<Listener> listeners;
  std::vector<std::unique_ptr<Asking>> members;
};

TEST_CASE("who says nothing is found behind those who wait") {
  Company company(5);
  company.ask(0, {{1, 2}, {2, 3}});
  CHECK(company.silent_behind(0, 1) == std::vector<int>{3});
  CHECK(company.silent_behind(0, 2) == std::vector<int>{3});
  CHECK(company.silent_behind(0, 4) == std::vector<int>{4});
}

TEST_CASE("nobody is silent behind those who wait for each other") {
  Company company(3);
  company.ask(0, {{1, 2}, {2, 1}});
  CHECK(company.silent_behind(0, 1).empty());
}

TEST_CASE("behind one that waits for anyone are all who say nothing") {
  Company company(5);
  company.ask(0, {{1, 2}, {2, company.of(2).anyone()}});
  CHECK(company.silent_behind(0, 1) == std::vector<int>{3, 4});
  CHECK(company.silent_behind(0, company.of(0).anyone()) == std::vector<int>{3, 4});
}

TEST_CASE("who answers tells since when nothing has moved there, also who waits for nobody else") {
  Company company(4);
  company.of(2).has_moved();
  company.ask(0, {{1, 2}});
  CHECK(company.of(0).behind(1, company.start).moved < company.start);
  CHECK(company.of(2).is_asked());
  company.of(2).answer(2);
  company.of(0).is_asked();
  const Asking::Behind behind = company.of(0).behind(1, company.start);
  CHECK(behind.silent == std::vector<int>{2});
  CHECK(behind.moved >= company.start);
  CHECK(company.of(0).behind(company.of(0).anyone(), company.start).moved >= company.start);
  // Another thread of it may know more.
  CHECK(company.of(2).is_asked());
  company.of(2).answer(3);
  company.of(0).is_asked();
  CHECK(company.silent_behind(0, 1) == std::vector<int>{3});
}

TEST_CASE("who misses a thread of its own knows whom another thread waits for") {
  Company company(4);
  company.of(2).has_moved();
  company.ask(0, {{1, 2}});
  CHECK(company.silent_behind(0, 0) == std::vector<int>{0});
  company.of(0).answer(0);
  CHECK(company.silent_behind(0, 0) == std::vector<int>{0});
  company.of(0).answer(1);
  CHECK(company.silent_behind(0, 0) == std::vector<int>{2});
  // Behind another process it is any of them.
  company.ask(0, {{2, 0}});
  CHECK(company.silent_behind(0, 1) == std::vector<int>{0});
}

TEST_CASE("an answer is of the time that it was given at") {
  Company company(2);
  company.ask(0, {{1, company.of(1).anyone()}});
  CHECK(company.of(0).behind(1, company.start).silent.empty());
  CHECK(company.of(0).behind(1, Deadline::Clock::now()).silent == std::vector<int>{1});
}

TEST_CASE("where the port of a process is taken, only it itself is known to be missed") {
  auto listener = Listener::open("127.0.0.1", 0);
  REQUIRE(listener.ok());
  Asking first(0, 2, kKey, *listener), second(0, 2, kKey, *listener);
  const auto start = Deadline::Clock::now();
  second.ask(start);
  second.is_asked();
  CHECK(second.behind(1, start).silent == std::vector<int>{1});
}

}  // namespace
}  // namespace dtrain::engine
