// Gangs for tests: processes of one, as threads over loopback with ports of their own.
#pragma once

#include <doctest/doctest.h>

#include <functional>
#include <thread>
#include <vector>

#include "engine/comm/rendezvous.h"

namespace dtrain::engine {

constexpr double kPatience_seconds = 30;

struct Cast {
  std::vector<int> threads;     // of each process
  std::vector<int> hosts = {};  // pretended, of each process; empty: one
  uint64_t key = 1;
  std::vector<std::string> instructions = {};  // of each process; empty: none is said
};

// Listeners at free ports, and the place of each process.
struct Ports {
  std::vector<Listener> listeners;
  std::vector<Attendance> attendances;

  explicit Ports(const Cast& cast) {
    std::vector<std::string> addresses;
    for (size_t i = 0; i < cast.threads.size(); ++i) {
      auto listener = Listener::open("127.0.0.1", 0);
      REQUIRE(listener.ok());
      addresses.push_back(fmt::format("127.0.0.1:{}", listener->port()));
      listeners.push_back(std::move(*listener));
    }
    for (size_t i = 0; i < cast.threads.size(); ++i) {
      Attendance attendance;
      attendance.place.index = static_cast<int>(i);
      attendance.place.workers = addresses;
      attendance.place.key = cast.key;
      attendance.threads = cast.threads[i];
      attendance.pretended_host = cast.hosts.empty() ? 0 : cast.hosts[i];
      if (!cast.instructions.empty()) attendance.instructions = cast.instructions[i];
      attendances.push_back(std::move(attendance));
    }
  }
};

// All processes of the cast as threads: body(gang) in each.
inline void with_gangs(const Cast& cast, const std::function<void(Gang&)>& body) {
  Ports ports(cast);
  std::vector<std::thread> processes;
  for (size_t i = 0; i < cast.threads.size(); ++i) {
    processes.emplace_back([&, i] {
      auto gang = meet(ports.attendances[i], Deadline::after(kPatience_seconds),
                       std::move(ports.listeners[i]));
      if (!gang.ok()) FAIL_CHECK(gang.error().message);
      if (gang.ok()) body(**gang);
    });
  }
  for (std::thread& process : processes) process.join();
}

}  // namespace dtrain::engine
