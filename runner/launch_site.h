// What every launch on a host shares.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "runner/cgroup.h"
#include "runner/environment.h"
#include "runner/nvml.h"
#include "runner/outbox.h"
#include "runner/workdir.h"

namespace dtrain::runner {

inline constexpr uint64_t kTreesBytesMax = uint64_t{20} << 30;

// Constant after the runner's start, except for the trees,
// which only the thread that prepares touches.
struct LaunchSite {
  std::filesystem::path home;
  std::string host_name;
  std::string host_id;
  Environment inherited;
  CgroupSupport cgroups;
  std::unique_ptr<Trees> trees;
  uint64_t trees_bytes_max = kTreesBytesMax;  // of those that no launch uses
  BlobSource* blobs = nullptr;
  OutputStore* store = nullptr;
  std::vector<GpuFacts> gpus;
  std::filesystem::path driver_libraries;  // of those GPUs; empty: there are none
  std::filesystem::path programs;  // where dtrain's own executables are: beside the runner's
  std::string data_mount = "/data";  // where replicas see data sets, if it is there and empty

  std::filesystem::path launches() const { return home / "launches"; }
  std::filesystem::path work() const { return home / "work"; }
  std::filesystem::path envs() const { return home / "envs"; }
  std::filesystem::path outputs() const { return home / "outputs"; }   // carried_outputs.h
};

}  // namespace dtrain::runner
