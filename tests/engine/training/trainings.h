// Whole trainings by the program itself, as many processes as TF_CONFIG lists, on drawn digits.
#pragma once

#include <doctest/doctest.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <initializer_list>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "engine/bench/trainings.h"
#include "engine/data/digits.h"
#include "engine/formats/checkpoint.h"
#include "schema/fd.h"
#include "tests/support/project.h"
#include "tests/support/sanitized.h"

namespace dtrain::trainings {

using namespace dtrain::engine;

namespace fs = std::filesystem;
using Json = nlohmann::json;

// How much of a training that is made many times over. Each step is the same to a sanitizer, under which all of them take
// minutes.
inline constexpr double kPart = tests::kSanitized ? 0.25 : 1;

// Drawn once, and there until the program ends, when no checks count any more.
struct Digits {
  Digits() {
    std::string name = (fs::temp_directory_path() / "dtrain-digits-XXXXXX").native();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path = name;
    REQUIRE(generate_digits(path, {.train = 4000, .test = 500, .seed = 1}).ok());
  }
  ~Digits() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  fs::path path;
};
inline const fs::path& digits() {
  static const Digits digits;
  return digits.path;
}

inline Json spec_of(const Json& changes) {
  Json spec = {{"model", {{"mlp", {{"hidden", {32}}}}}},
               {"data", {{"train", digits() / "train"}, {"test", digits() / "test"}}},
               {"batch", 50},
               {"epochs", 4},
               {"optimizer", {{"kind", "sgd"}, {"learning-rate", 0.1}}},
               {"deadline", 20}};
  spec.merge_patch(changes);
  return spec;
}

// One process of a gang. Ends it, at the latest when it goes.
class Replica {
 public:
  Replica(const Json& spec, const fs::path& output, const std::string& tf_config, const fs::path& log,
          const std::string& attempt) {
    pid_ = ::fork();
    REQUIRE(pid_ >= 0);
    if (pid_ == 0) {
      const int fd = ::open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0666);
      ::dup2(fd, 1);
      ::dup2(fd, 2);
      ::setenv("DTRAIN_ENGINE", spec.dump().c_str(), 1);
      ::setenv("TF_CONFIG", tf_config.c_str(), 1);
      ::setenv("OUTPUT_DIR", output.c_str(), 1);
      ::setenv("EXPERIMENT_ID", "7", 1);
      ::setenv("DTRAIN_ATTEMPT", attempt.c_str(), 1);
      ::setenv("OMP_NUM_THREADS", "1", 1);
      ::execl(BIN_DIR "/dtrain-engine", "dtrain-engine", "train", nullptr);
      ::_exit(127);
    }
  }
  ~Replica() {
    signal(SIGKILL);
    (void)wait();
  }
  Replica(const Replica&) = delete;
  Replica& operator=(const Replica&) = delete;

  void signal(int number) {
    if (pid_ > 0) ::kill(pid_, number);
  }
  // Until the file is there; false if the process ended before.
  bool runs_until(const fs::path& file) const {
    return runs_until([&] { return fs::exists(file); });
  }
  bool runs_until(const std::function<bool()>& is_there) const {
    const Fd process(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
    pollfd ended{process.get(), POLLIN, 0};
    while (!is_there()) {
      if (::poll(&ended, 1, 1) != 0) return is_there();
    }
    return true;
  }
  // Its exit code, or 128 and the signal.
  int wait() {
    if (pid_ > 0) {
      int status = 0;
      ::waitpid(pid_, &status, 0);
      pid_ = 0;
      code_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }
    return code_;
  }

 private:
  pid_t pid_ = 0;
  int code_ = 0;
};

// A training with so many workers and parameter servers.
struct Gang {
  Gang(const Json& spec, int workers, int servers, std::string attempt = "1", fs::path folder = {})
      : output(folder.empty() ? own / "out" : folder) {
    fs::create_directories(output);
    Json cluster = {{"worker", Json::array()}};
    for (int i = 0; i < workers + servers; ++i) {
      auto port = ReservedPort::take();
      REQUIRE(port.ok());
      cluster[i < workers ? "worker" : "ps"].push_back(port->address());
      ports_.push_back(std::move(*port));
    }
    for (int i = 0; i < workers + servers; ++i) {
      const bool works = i < workers;
      const int index = works ? i : i - workers;
      const Json config = {{"cluster", cluster}, {"task", {{"type", works ? "worker" : "ps"}, {"index", index}}}};
      const std::string text = workers + servers == 1 ? "" : config.dump();
      const fs::path log = own / fmt::format("{}.{}", works ? "worker" : "ps", index);
      Json own_spec = spec;
      if (!works) own_spec["data"] = {{"train", own / "no-data"}, {"test", own / "no-data"}};  // servers need none
      start_.push_back([=, this](const std::string& at) { return std::make_unique<Replica>(own_spec, output, text, log, at); });
      replicas.push_back(start_.back()(attempt));
    }
    workers_ = static_cast<size_t>(workers);
  }

  // Until worker 0 has ended: its exit code. The servers are told to end then.
  int run() {
    const int code = replicas[0]->wait();
    for (size_t i = workers_; i < replicas.size(); ++i) {
      replicas[i]->signal(SIGTERM);
      CHECK(replicas[i]->wait() == 0);
    }
    return code;
  }
  // It alone, as a later attempt than the others'.
  void start_again(size_t replica) { replicas[replica] = start_[replica]("2"); }

  // Asserts nothing: an assertion that failed may be what asks.
  std::string log(const std::string& name) const {
    return test::content_of(own / name);
  }
  // Of all replicas.
  std::string logs() const {
    std::string all;
    for (size_t i = 0; i < replicas.size(); ++i) {
      const std::string name = i < workers_ ? fmt::format("worker.{}", i) : fmt::format("ps.{}", i - workers_);
      all += fmt::format("{}:\n{}", name, log(name));
    }
    return all;
  }
  std::string model() const { return test::read_file(output / "model.safetensors"); }

  test::TemporaryFolder own;
  fs::path output;
  std::vector<std::unique_ptr<Replica>> replicas;  // workers, then servers

 private:
  std::vector<ReservedPort> ports_;  // nobody else gets them while replicas start, or start again
  std::vector<std::function<std::unique_ptr<Replica>(const std::string&)>> start_;
  size_t workers_ = 0;
};

// The last value of a key of worker 0's lines.
inline double last(const Gang& gang, const std::string& key) {
  const std::string log = gang.log("worker.0");
  const size_t at = log.rfind(key + "=");
  REQUIRE_MESSAGE(at != std::string::npos, log);
  return std::atof(log.c_str() + at + key.size() + 1);
}

// What a training by one process says that is refused, before its first step.
inline std::string refusal(const Json& spec, const fs::path& output = {}) {
  Gang gang(spec, 1, 0, "1", output);
  CHECK(gang.run() == 2);
  CHECK(gang.log("worker.0").find("epoch=") == std::string::npos);
  return gang.log("worker.0");
}
inline bool says(const std::string& log, std::initializer_list<std::string> parts) {
  return std::ranges::all_of(parts, [&](const std::string& part) { return log.find(part) != std::string::npos; });
}

// Of parameters, by the newest checkpoint.
inline int64_t updates(const Gang& gang) {
  const auto newest = newest_checkpoint(gang.output / "checkpoints");
  return newest ? Json::parse(newest->state)["updates"].get<int64_t>() : 0;
}

inline Json all_reduce(Json more = Json::object()) {
  more["strategy"] = {{"kind", "multi-worker-mirrored"}};
  return spec_of(more);
}
inline Json servers(const std::string& mode) {
  return spec_of({{"strategy", {{"kind", "parameter-server"}, {"mode", mode}, {"staleness", 3}}}});
}

}  // namespace dtrain::trainings
