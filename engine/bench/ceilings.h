// What this machine can do at most: what figures of a bench stand beside, measured in the same run.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <memory>
#include <vector>

#include "engine/buffer.h"
#include "engine/comm/socket.h"
#include "schema/result.h"

namespace dtrain::engine {

inline constexpr double kBenchPatience_seconds = 60;  // the longest wait of a bench for another process

double median(std::vector<double> values);
double seconds_since(std::chrono::steady_clock::time_point begin);

// How many of the CPUs that this process may use nobody used during `seconds`.
double idle_cpus(double seconds);

// Multiply-adds in the cache, two operations each, by so many threads at once: operations a second
// of all.
double peak_operations(int threads);

// Numbers that are not round: multiplying zeros takes processors less power, and so less time.
void fill_unevenly(Buffer<float>& values);

// Copies as many bytes, by one thread.
double memcpy_seconds(int64_t bytes);

// Another process that sends back what it gets, when it has all of it.
// Owner and thread: a bench. Forks: open it while there is one thread.
class Echo {
 public:
  enum class Way { Tcp, Unix };
  static Result<std::unique_ptr<Echo>> open(Way way);
  ~Echo();
  // There and back.
  Result<double> seconds(int64_t bytes);

 private:
  Echo(Socket socket, pid_t other) : socket_(std::move(socket)), other_(other) {}
  Socket socket_;
  pid_t other_;
  std::vector<char> bytes_;
};

}  // namespace dtrain::engine
