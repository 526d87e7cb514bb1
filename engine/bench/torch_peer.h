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

class TorchPeer {
 public:
  // `python` by path; empty: python3 if it has torch, else none. NotFound: that one has no torch.
  static Result<std::optional<TorchPeer>> find(const std::string& python);

  const std::string& version() const { return version_; }

  // Samples a second of all processes, over about so many seconds.
  Result<double> samples_per_second(const EngineSpec& spec, int threads, int processes,
                                    double seconds) const;
  // Gloo's all-reduce: seconds of each size.
  Result<std::vector<double>> all_reduce_seconds(const std::vector<int64_t>& sizes_bytes,
                                                 int processes) const;

 private:
  explicit TorchPeer(std::string python) : python_(std::move(python)) {}
  Result<std::map<std::string, std::string>> ask(const std::string& json, int threads) const;

  std::string python_, version_;
};

}  // namespace dtrain::engine
