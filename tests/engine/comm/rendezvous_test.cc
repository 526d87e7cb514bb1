#include "engine/comm/rendezvous.h"

#include <cstring>
#include <mutex>

#include "engine/comm/hello.h"
#include "gangs.h"

namespace dtrain::engine {
namespace {

TEST_CASE("processes of one host meet, and know their participants") {
  std::mutex mutex;
  int seen = 0;
  with_gangs({.threads = {1, 2, 3}}, [&](Gang& gang) {
    const std::lock_guard lock(mutex);
    ++seen;
    CHECK(gang.world() == 6);
    CHECK(gang.hosts() == std::vector<std::vector<int>>{{0, 1, 2}});
    CHECK(gang.participant(4).process == 2);
    CHECK(gang.participant(4).thread == 1);
    CHECK(gang.participant_name(4).find("thread 1 of worker 2 at 127.0.0.1:") == 0);
    CHECK(gang.participant_name(0).find("worker 0 at 127.0.0.1:") == 0);
    CHECK(gang.first() == (gang.self() == 0 ? 0 : gang.self() == 1 ? 1 : 3));
    CHECK(gang.look({}).ok());
  });
  CHECK(seen == 3);
}

TEST_CASE("participants are ordered by host, then process") {
  with_gangs({.threads = {1, 2, 1, 1}, .hosts = {0, 1, 0, 1}}, [&](Gang& gang) {
    CHECK(gang.hosts() == std::vector<std::vector<int>>{{0, 2}, {1, 3}});
    std::vector<int> processes;
    for (int i = 0; i < gang.world(); ++i) processes.push_back(gang.participant(i).process);
    CHECK(processes == std::vector<int>{0, 2, 1, 1, 3});
  });
}

TEST_CASE("a process by itself is a gang") {
  const auto place = parse_place("", 1);
  const auto gang = meet({.place = *place, .threads = 2}, Deadline::after(kPatience_seconds));
  REQUIRE(gang.ok());
  CHECK((*gang)->world() == 2);
  CHECK((*gang)->look({}).ok());
}

// What each of the processes says; nothing of those that come.
std::vector<std::string> errors_of(Ports& ports, double deadline_seconds) {
  std::vector<std::string> errors(ports.attendances.size());
  std::vector<std::thread> processes;
  for (size_t i = 0; i < errors.size(); ++i) {
    processes.emplace_back([&, i] {
      const auto gang = meet(ports.attendances[i], Deadline::after(deadline_seconds),
                             std::move(ports.listeners[i]));
      if (!gang.ok()) errors[i] = gang.error().message;
    });
  }
  for (std::thread& process : processes) process.join();
  return errors;
}

TEST_CASE("on the deadline those that did not come are named") {
  Ports ports({.threads = {1, 1, 1, 1}});
  ports.attendances.erase(ports.attendances.begin());  // 0 and 2 stay away
  ports.listeners.erase(ports.listeners.begin());
  ports.attendances.erase(ports.attendances.begin() + 1);
  ports.listeners.erase(ports.listeners.begin() + 1);
  // The one that gives up first ends the other's wait.
  bool gave_up = false;
  for (const std::string& error : errors_of(ports, 0.3)) {
    CAPTURE(error);
    CHECK(error.find("worker 0 at 127.0.0.1:") != std::string::npos);
    CHECK(error.find(", worker 2 at") != std::string::npos);
    gave_up = gave_up || error.find(" did not come for 0.3 s") != std::string::npos;
  }
  CHECK(gave_up);
}

// Until somebody has connected and gone again without a word: to see whether anybody listens.
void wait_for_a_look(Listener& listener) {
  char byte = 0;
  while (true) {
    auto socket = listener.accept(Deadline::after(kPatience_seconds));
    REQUIRE(socket.ok());
    if (!socket->read(&byte, 1, Deadline::after(kPatience_seconds)).ok()) return;
  }
}

TEST_CASE("who listens and reads its data is waited for beyond the deadline, by those before it and after it") {
  Ports ports({.threads = {1, 1, 1}});
  std::vector<std::string> errors(3);
  std::vector<std::thread> processes;
  const auto start = [&](size_t i, double deadline_seconds) {
    processes.emplace_back([&, i, deadline_seconds] {
      const auto gang = meet(ports.attendances[i], Deadline::after(deadline_seconds), std::move(ports.listeners[i]));
      if (!gang.ok()) errors[i] = gang.error().message;
    });
  };
  start(2, 0.2);
  start(0, 0.3);
  wait_for_a_look(ports.listeners[1]);
  start(1, kPatience_seconds);
  for (std::thread& process : processes) process.join();
  CHECK(errors == std::vector<std::string>(3));
}

TEST_CASE("who listens no more is not waited for beyond the deadline") {
  Ports ports({.threads = {1, 1, 1}});
  std::string error;
  std::thread first([&] {
    const auto gang = meet(ports.attendances[0], Deadline::after(0.3), std::move(ports.listeners[0]));
    error = gang.ok() ? "met" : gang.error().message;
  });
  wait_for_a_look(ports.listeners[1]);
  ports.listeners[1].close();
  first.join();
  CHECK_MESSAGE(error.find("worker 1 at 127.0.0.1:") == 0, error);
  CHECK_MESSAGE(error.find(" did not come for 0.3 s") != std::string::npos, error);
  CHECK_MESSAGE(error.find("worker 2") == std::string::npos, error);
}

TEST_CASE("processes that would not train the same model say so at both ends") {
  for (const bool layout : {true, false}) {
    Ports ports({.threads = {1, 1}});
    (layout ? ports.attendances[1].layout_hash : ports.attendances[1].spec_hash) = 0xabc;
    for (const std::string& error : errors_of(ports, kPatience_seconds)) {
      CAPTURE(error);
      CHECK(error.find("worker 0") != std::string::npos);
      CHECK(error.find("worker 1") != std::string::npos);
      CHECK(error.find("0xabc") != std::string::npos);
      CHECK(error.find(layout ? "layout" : "configuration") != std::string::npos);
    }
  }
}

TEST_CASE("who is gone is named, and not who waits for it and says nothing") {
  Ports ports({.threads = {1, 1, 1}});
  std::string error;
  std::thread first([&] {
    const auto gang = meet(ports.attendances[0], Deadline::after(0.3), std::move(ports.listeners[0]));
    error = gang.ok() ? "met" : gang.error().message;
  });
  std::vector<Socket> others;
  for (const uint32_t process : {1u, 2u}) {
    auto socket = Socket::connect(ports.attendances[0].place.workers[0], Deadline::after(5));
    REQUIRE(socket.ok());
    Hello hello, answer;
    hello.key = ports.attendances[0].place.key;
    hello.process = process;
    hello.processes = 3;
    hello.threads = 1;
    REQUIRE(socket->write(&hello, sizeof(hello), Deadline::after(5)).ok());
    REQUIRE(socket->read(&answer, sizeof(answer), Deadline::after(5)).ok());
    others.push_back(std::move(*socket));
  }
  others.pop_back();
  first.join();
  CHECK_MESSAGE(error.find("worker 2 at 127.0.0.1:") == 0, error);
  CHECK_MESSAGE(error.find(" closed the connection") != std::string::npos, error);
}

TEST_CASE("strangers are dropped and harm nobody") {
  Ports ports({.threads = {1, 1}});
  const std::string address = ports.attendances[0].place.workers[0];
  // One says nothing, one says rubbish, one is of another launch and one claims a place too many.
  auto silent = Socket::connect(address, Deadline::after(5));
  auto rubbish = Socket::connect(address, Deadline::after(5));
  auto straggler = Socket::connect(address, Deadline::after(5));
  REQUIRE((silent.ok() && rubbish.ok() && straggler.ok()));
  const std::string text(100, 'x');
  REQUIRE(rubbish->write(text.data(), text.size(), Deadline::after(5)).ok());
  Hello hello;
  hello.key = 99;
  hello.process = 1;
  hello.processes = 2;
  hello.threads = 1;
  REQUIRE(straggler->write(&hello, sizeof(hello), Deadline::after(5)).ok());
  CHECK(errors_of(ports, kPatience_seconds) == std::vector<std::string>(2));
  char byte = 0;
  CHECK(straggler->read(&byte, 1, Deadline::after(5)).error().code == Code::Unavailable);
  CHECK(rubbish->read(&byte, 1, Deadline::after(5)).error().code == Code::Unavailable);
}

TEST_CASE("one that listens for an earlier attempt is tried until it is gone") {
  Ports ports({.threads = {1, 1}});
  Listener earlier = std::move(ports.listeners[0]);
  const int port = earlier.port();
  std::string error = "not run";
  std::thread second([&] {
    const auto gang = meet(ports.attendances[1], Deadline::after(kPatience_seconds),
                           std::move(ports.listeners[1]));
    error = gang.ok() ? "" : gang.error().message;
  });
  // It answers with another key, then makes way.
  auto met = earlier.accept(Deadline::after(5));
  REQUIRE(met.ok());
  Hello hello;
  REQUIRE(met->read(&hello, sizeof(hello), Deadline::after(5)).ok());
  hello.key = 99;
  hello.process = 0;
  REQUIRE(met->write(&hello, sizeof(hello), Deadline::after(5)).ok());
  earlier.close();
  met->close();
  auto listener = Listener::open("127.0.0.1", port);
  REQUIRE(listener.ok());
  CHECK(meet(ports.attendances[0], Deadline::after(kPatience_seconds), std::move(*listener)).ok());
  second.join();
  CHECK(error.empty());
}

TEST_CASE("why a process ends reaches the others; leaving is no failure") {
  Ports ports({.threads = {1, 1, 1}});
  std::vector<std::unique_ptr<Gang>> gangs(3);
  std::vector<std::thread> processes;
  for (size_t i = 0; i < 3; ++i) {
    processes.emplace_back([&, i] {
      auto gang = meet(ports.attendances[i], Deadline::after(kPatience_seconds),
                       std::move(ports.listeners[i]));
      if (gang.ok()) gangs[i] = std::move(*gang);
    });
  }
  for (std::thread& process : processes) process.join();
  REQUIRE((gangs[0] && gangs[1] && gangs[2]));
  gangs[1].reset();
  CHECK(gangs[0]->look({}).ok());
  gangs[2]->fail({Code::DataLoss, "the loss is not a number", ""});
  gangs[2].reset();
  const auto news = gangs[0]->look({});
  REQUIRE(!news.ok());
  CHECK(news.error().message == "the loss is not a number");
  CHECK(news.error().code == Code::DataLoss);
}

}  // namespace
}  // namespace dtrain::engine
