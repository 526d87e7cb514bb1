#include "engine/bench/torch_peer.h"

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "engine/bench/torch_peer_source.h"
#include "engine/bench/trainings.h"

namespace dtrain::engine {

using Json = nlohmann::json;

Result<std::optional<TorchPeer>> TorchPeer::find(const std::string& python) {
  TorchPeer peer(python.empty() ? "python3" : python);
  auto answer = peer.ask(Json{{"what", "version"}}.dump(), 1);
  if (answer.ok()) {
    peer.version_ = (*answer)["torch"];
    return std::optional(std::move(peer));
  }
  if (python.empty()) return std::optional<TorchPeer>();
  return Error{Code::NotFound, fmt::format("{} has no torch that works", python),
               answer.error().hint};
}

Result<Line> TorchPeer::ask(const std::string& json, int threads) const {
  // Threads that wait shall not spin: it would cost the peer the other's core. A BLAS that has
  // threads of its own has one; and an old OpenBLAS does not know every processor.
  std::map<std::string, std::string> environment{{"OMP_WAIT_POLICY", "passive"},
                                                 {"OMP_NUM_THREADS", std::to_string(threads)},
                                                 {"MKL_NUM_THREADS", std::to_string(threads)},
                                                 {"OPENBLAS_NUM_THREADS", "1"},
                                                 {"CUDA_VISIBLE_DEVICES", ""}};
  if (__builtin_cpu_supports("avx512f")) environment["OPENBLAS_CORETYPE"] = "SkylakeX";
  TRY(const std::string output,
      run_command({{python_, "-c", kTorchPeerSource, json}, environment}));
  const std::vector<Line> lines = parse_lines(output);
  if (lines.empty()) return Error{Code::Unavailable, fmt::format("{} says nothing", python_), ""};
  return lines.back();
}

Result<double> TorchPeer::samples_per_second(const EngineSpec& spec, int threads, int processes,
                                             double seconds) const {
  const Json model = Json::parse(to_json(spec))["model"];
  const Json work = {{"what", "step"},      {"data", spec.train_data}, {"model", model},
                     {"batch", spec.batch}, {"threads", threads},      {"processes", processes},
                     {"seconds", seconds}};
  TRY(auto answer, ask(work.dump(), threads));
  return std::strtod(answer["samples_per_second"].c_str(), nullptr);
}

Result<std::vector<double>> TorchPeer::all_reduce_seconds(const std::vector<int64_t>& sizes_bytes,
                                                          int processes) const {
  const Json work = {{"what", "allreduce"}, {"sizes", sizes_bytes}, {"processes", processes}};
  TRY(auto answer, ask(work.dump(), 1));
  std::vector<double> seconds;
  for (const int64_t bytes : sizes_bytes) {
    seconds.push_back(std::strtod(answer[std::to_string(bytes)].c_str(), nullptr));
  }
  return seconds;
}

}  // namespace dtrain::engine
