#include "engine/bench/torch_peer.h"

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "engine/bench/torch_peer_source.h"
#include "engine/bench/trainings.h"

namespace dtrain::engine {

using Json = nlohmann::json;

std::string to_string(const TorchSetting& setting) {
  std::string text = fmt::format("{} thread{}", setting.threads, setting.threads == 1 ? "" : "s");
  if (setting.blas_threads != setting.threads) text += fmt::format(" (BLAS {})", setting.blas_threads);
  if (setting.threads > 1) text += setting.spins ? ", waiting awake" : ", waiting asleep";
  return text;
}

std::vector<TorchSetting> torch_settings(int cpus, int processes, bool has_own_blas) {
  std::vector<int> counts;
  const int most = std::max(1, cpus / processes);
  for (int threads = 1; threads < most; threads *= 2) counts.push_back(threads);
  counts.push_back(most);
  std::vector<TorchSetting> all;
  for (const int threads : counts) {
    for (const int blas : has_own_blas ? counts : std::vector{threads}) {
      all.push_back({threads, blas, false});
      if (threads > 1) all.push_back({threads, blas, true});
    }
  }
  return all;
}

Result<std::optional<TorchPeer>> TorchPeer::find(const std::string& python) {
  TorchPeer peer(python.empty() ? "python3" : python);
  auto answer = peer.ask(Json{{"what", "version"}}.dump(), {});
  if (answer.ok()) {
    peer.version_ = (*answer)["torch"];
    peer.has_own_blas_ = (*answer)["blas"] == "openblas";
    peer.has_reference_blas_ = (*answer)["blas"] == "reference";
    if (peer.has_own_blas_) TRY(peer.choose_core_type());
    return std::optional(std::move(peer));
  }
  if (python.empty()) return std::optional<TorchPeer>();
  return Error{Code::NotFound, fmt::format("{} has no torch that works", python),
               answer.error().hint};
}

// An old OpenBLAS does not know every processor, and takes it for one that is many times slower.
Status TorchPeer::choose_core_type() {
  std::vector<std::string> types{""};
  if (__builtin_cpu_supports("avx512f")) types.push_back("SkylakeX");
  if (__builtin_cpu_supports("avx2")) types.push_back("Haswell");
  std::string best;
  double most = 0;
  for (const std::string& type : types) {
    core_type_ = type;
    TRY(auto answer, ask(Json{{"what", "product"}}.dump(), {}));
    const double rate = std::strtod(answer["operations_per_second"].c_str(), nullptr);
    if (rate > most) best = type, most = rate;
  }
  core_type_ = best;
  return ok();
}

Result<Line> TorchPeer::ask(const std::string& json, const TorchSetting& setting, On on) const {
  const std::string threads = std::to_string(setting.threads);
  std::map<std::string, std::string> environment{
      {"OMP_WAIT_POLICY", setting.spins ? "active" : "passive"},
      {"OMP_NUM_THREADS", threads},
      {"MKL_NUM_THREADS", threads},
      {"OPENBLAS_NUM_THREADS", std::to_string(setting.blas_threads)}};
  if (on == On::Cpu) environment["CUDA_VISIBLE_DEVICES"] = "";
  if (!core_type_.empty()) environment["OPENBLAS_CORETYPE"] = core_type_;
  TRY(const std::string output,
      run_command({{python_, "-c", kTorchPeerSource, json}, environment}));
  const std::vector<Line> lines = parse_lines(output);
  if (lines.empty()) return Error{Code::Unavailable, fmt::format("{} says nothing", python_), ""};
  return lines.back();
}

Result<double> TorchPeer::samples_per_second(const EngineSpec& spec, const TorchSetting& setting,
                                             int processes, double seconds) const {
  const Json model = Json::parse(to_json(spec))["model"];
  const Json work = {{"what", "step"},      {"data", spec.train_data},
                     {"model", model},      {"batch", spec.batch},
                     {"threads", setting.threads}, {"processes", processes},
                     {"seconds", seconds}};
  TRY(auto answer, ask(work.dump(), setting));
  return std::strtod(answer["samples_per_second"].c_str(), nullptr);
}

Result<double> TorchPeer::gpu_samples_per_second(const EngineSpec& spec, const std::string& mode, double seconds) const {
  const Json whole = Json::parse(to_json(spec));
  const Json work = {{"what", "gpu_step"},  {"device", "cuda"},
                     {"data", spec.train_data}, {"model", whole["model"]},
                     {"optimizer", whole["optimizer"]["kind"]}, {"batch", spec.batch},
                     {"mode", mode}, {"seconds", seconds}};
  TRY(auto answer, ask(work.dump(), {.threads = 8, .blas_threads = 1}, On::Gpu));
  return std::strtod(answer["samples_per_second"].c_str(), nullptr);
}

Result<std::vector<double>> TorchPeer::all_reduce_seconds(const std::vector<int64_t>& sizes_bytes,
                                                          int processes) const {
  const Json work = {{"what", "allreduce"}, {"sizes", sizes_bytes}, {"processes", processes}};
  TRY(auto answer, ask(work.dump(), {}));
  std::vector<double> seconds;
  for (const int64_t bytes : sizes_bytes) {
    seconds.push_back(std::strtod(answer[std::to_string(bytes)].c_str(), nullptr));
  }
  return seconds;
}

}  // namespace dtrain::engine
