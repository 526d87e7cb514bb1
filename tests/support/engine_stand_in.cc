// What stands where dtrain-engine would: it trains nothing, but checks what a replica of
// framework: engine is promised and prints it. A server stays until it is ended, a worker ends; the
// first of them, with which the experiment ends, when all others have printed.
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "schema/engine_spec.h"

namespace {

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

int refuse(const std::string& what) {
  std::fprintf(stderr, "%s\n", what.c_str());
  return dtrain::kEngineRefusedCode;
}

// Through a pipe in the folder that all share: worker 0 takes a byte of each of the others.
bool meet(bool is_first, size_t others) {
  const std::string pipe = variable("OUTPUT_DIR") + "/printed";
  mkfifo(pipe.c_str(), 0600);  // or another one was first
  // Opening waits for the other side.
  const int fd = open(pipe.c_str(), (is_first ? O_RDWR : O_WRONLY) | O_CLOEXEC);
  char byte = '.';
  if (!is_first) return write(fd, &byte, 1) == 1;
  for (size_t i = 0; i < others; ++i) {
    if (read(fd, &byte, 1) != 1) return false;
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2 || std::string(argv[1]) != "train") return refuse("expected: dtrain-engine train");
  const auto spec = dtrain::engine_spec_from_json(variable(dtrain::kEngineVariable));
  if (!spec.ok()) return refuse(spec.error().message);
  std::ifstream data(spec->train_data);
  std::string first;
  if (!std::getline(data, first)) return refuse("can't read " + spec->train_data);
  if (variable("OUTPUT_DIR").empty()) return refuse("there is no OUTPUT_DIR");

  std::string type = "worker";
  size_t index = 0, workers = 1, servers = 0;
  if (const std::string text = variable("TF_CONFIG"); !text.empty()) {
    const auto config = nlohmann::json::parse(text, nullptr, false);
    if (config.is_discarded()) return refuse("TF_CONFIG is no JSON: " + text);
    type = config.at("task").at("type").get<std::string>();
    index = config.at("task").at("index").get<size_t>();
    workers = config.at("cluster").at("worker").size();
    if (config.at("cluster").contains("ps")) servers = config.at("cluster").at("ps").size();
    const auto own = config.at("cluster").at(type).at(index).get<std::string>();
    if (!own.ends_with(":" + variable("DTRAIN_PORT"))) return refuse("another's port: " + own);
  }
  std::printf("task=%s index=%zu workers=%zu servers=%zu batch=%d rate=%g threads=%s data=%s\n",
              type.c_str(), index, workers, servers, spec->batch, spec->optimizer.learning_rate,
              variable("OMP_NUM_THREADS").c_str(), first.c_str());
  std::fflush(stdout);
  if (workers + servers > 1 && !meet(type == "worker" && index == 0, workers + servers - 1)) {
    return refuse("can't meet the others");
  }
  if (type != "ps") return 0;
  sigset_t ending;
  sigemptyset(&ending);
  sigaddset(&ending, SIGTERM);
  sigprocmask(SIG_BLOCK, &ending, nullptr);
  int signal = 0;
  sigwait(&ending, &signal);
  std::printf("server ends\n");
  return 0;
}
