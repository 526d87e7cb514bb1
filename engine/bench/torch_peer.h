// PyTorch as the peer of benches, by a python that has it: at its best settings, in processes of
// its own.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "schema/engine_spec.h"
#include "schema/result.h"

namespace dtrain::engine {

// How a process of it is run: OpenMP's threads, those of a BLAS that has its own, and whether threads
// that wait spin.
struct TorchSetting {
  int threads = 1, blas_threads = 1;
  bool spins = false;
  bool operator==(const TorchSetting&) const = default;
};
// "2 threads (BLAS 1), waiting asleep"
std::string to_string(const TorchSetting& setting);
// All that may be the best for each of so many processes, which share the CPUs.
std::vector<TorchSetting> torch_settings(int cpus, int processes, bool has_own_blas);

// How it runs on a GPU: as it is, by torch.compile, and by that with CUDA graphs.
inline constexpr const char* kTorchModes[] = {"eager", "default", "reduce-overhead"};

class TorchPeer {
 public:
  // `python` by path; empty: python3 if it has torch, else none. NotFound: that one has no torch.
  static Result<std::optional<TorchPeer>> find(const std::string& python);

  const std::string& version() const { return version_; }

  bool has_own_blas() const { return has_own_blas_; }
  // Debian's torch without OpenBLAS: who compares with it compares with little.
  bool has_reference_blas() const { return has_reference_blas_; }
  // Samples a second of all processes, over about so many seconds.
  Result<double> samples_per_second(const EngineSpec& spec, const TorchSetting& setting,
                                    int processes, double seconds) const;
  // On the first GPU, in one of kTorchModes. Unavailable: it failed.
  Result<double> gpu_samples_per_second(const EngineSpec& spec, const std::string& mode, double seconds) const;
  // Gloo's all-reduce: seconds of each size.
  Result<std::vector<double>> all_reduce_seconds(const std::vector<int64_t>& sizes_bytes,
                                                 int processes) const;

 private:
  explicit TorchPeer(std::string python) : python_(std::move(python)) {}
  enum class On { Cpu, Gpu };
  Result<std::map<std::string, std::string>> ask(const std::string& json, const TorchSetting& setting,
                                                 On on = On::Cpu) const;
  Status choose_core_type();

  std::string python_, version_;
  bool has_own_blas_ = false;  // OpenBLAS: with threads of its own
  bool has_reference_blas_ = false;
  std::string core_type_;      // for which OpenBLAS is fastest; empty: which it finds by itself
};

}  // namespace dtrain::engine
