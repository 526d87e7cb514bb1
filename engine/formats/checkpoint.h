// A folder of checkpoints, step-00000500/ each: model.safetensors, optimizer.safetensors, state.json,
// and last manifest.json with the size and CRC-32C of the others. One that is there under its name is
// whole; one that is damaged later is recognised. While one is written it lies beside them as
// unfinished-...; writers.lock tells whether somebody lives who writes there.
#pragma once

#include <filesystem>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/formats/safetensors.h"
#include "schema/fd.h"
#include "schema/result.h"

namespace dtrain::engine {

struct CheckpointContent {
  std::span<const TensorView> model;
  std::span<const TensorView> optimizer;
  std::string state;  // JSON
  // If set, what the tensors show lives and stays as it is for as long as this does.
  std::shared_ptr<const void> stays = {};
};

struct FoundCheckpoint {
  int64_t step = 0;
  std::filesystem::path path;
  std::string state;
};

inline constexpr const char* kModelFile = "model.safetensors";
inline constexpr const char* kOptimizerFile = "optimizer.safetensors";

// Of a path that is named as one checkpoint is.
std::optional<int64_t> checkpoint_step(const std::filesystem::path& path);
// The state of the checkpoint there. DataLoss: a file is not what its manifest says.
Result<std::string> check_checkpoint(const std::filesystem::path& path);
// An Error where it can't be known whether there are checkpoints in the folder; that it isn't there is none.
Status check_listed(const std::filesystem::path& folder);
// The newest in a folder whose files are what its manifest says; what is wrong with newer ones, or with a folder that
// can't be listed, is in `skipped`. Changes nothing there.
std::optional<FoundCheckpoint> newest_checkpoint(const std::filesystem::path& folder,
                                                 std::vector<std::string>* skipped = nullptr);

// Owner: the one process that writes there. Blocks.
class Checkpoints {
 public:
  // Makes the folder; what writers that were killed left unfinished goes, unless another one lives.
  static Result<Checkpoints> open(std::filesystem::path folder, int keep);

  // Replaces one of the same step. ResourceExhausted: the disk is full. InvalidArgument: a tensor is not
  // finite. Either way what was there before stays. Then those before it go, but for the last `keep`
  // with it; those of later steps, which a resumed training did not take, are not counted and stay.
  Status save(int64_t step, const CheckpointContent& content);
  // The same, but on return it may be on its way to the disk; unless it `stays` its tensors may change then.
  Status save_behind(int64_t step, const CheckpointContent& content);
  // Nothing is on its way afterwards, as before each save. False: what was failed.
  bool settle();
  // Why one that was on its way is not on the disk, if it isn't: once.
  std::string take_lost() { return std::exchange(lost_, {}); }

  std::optional<FoundCheckpoint> newest_healthy(std::vector<std::string>* skipped = nullptr) const {
    return newest_checkpoint(folder_, skipped);
  }

 private:
  Checkpoints(std::filesystem::path folder, int keep, Fd lock)
      : folder_(std::move(folder)), keep_(keep), lock_(std::move(lock)) {}

  std::filesystem::path folder_;
  int keep_;
  Fd lock_;  // of writers.lock, shared: we live
  std::string lost_ = {};
  std::future<Status> on_its_way_ = {};
};

// A file that is whole or not there, with its name on the disk.
Status write_model(const std::filesystem::path& path, std::span<const TensorView> tensors, const Metadata& metadata);

}  // namespace dtrain::engine
