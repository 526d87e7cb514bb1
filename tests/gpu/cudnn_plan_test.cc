// What cuDNN says to our graphs of attention for a Hopper chip: it needs none to be here, only the driver's library,
// for which the toolkit's stub will do.
#include "engine/cuda/cudnn_attention.h"

#include <doctest/doctest.h>
#include <dlfcn.h>

#include <string_view>

#include "tests/support/skipped.h"

namespace dtrain::engine::cuda {
namespace {

// An H200, by the names that cuDNN asks for: limits of compute capability 9.0, and what is known of the card.
constexpr std::string_view kH200 = R"({"deviceName": "NVIDIA H200", "deviceVer": 900, "driverVer": 13000, "cudaDeviceId": 0,
  "pciDeviceId": 0, "isTccDriver": 0, "supportCoopLaunch": 1, "multiProcessorCount": 132, "warpSize": 32,
  "maxGridSize": [2147483647, 65535, 65535], "maxBlockSize": [1024, 1024, 64], "maxThreadsPerBlock": 1024,
  "maxThreadsPerSM": 2048, "maxCtasPerSM": 32, "regsPerBlock": 65536, "maxRegistersPerSM": 65536,
  "maxSharedMemoryPerBlock": 49152, "maxSharedMemoryPerBlockOptin": 232448, "reservedSharedMemoryPerBlock": 1024,
  "totalGlobalMem": 150754820096, "l2CacheSize": 62914560, "smClockRateKHz": 1980000, "memClockRateKHz": 3201000})";

TEST_CASE("cuDNN has kernels for attention on a Hopper chip, for heads of a multiple of 8") {
  if (const Status loaded = load_cudnn(); !loaded.ok()) return tests::say_skipped(loaded.error().message);
  if (::dlopen("libcuda.so.1", RTLD_NOW) == nullptr) return tests::say_skipped("no libcuda.so.1 is here");
  const auto device = std::make_shared<cudnn_frontend::DeviceProperties>();
  REQUIRE(device->deserialize({kH200.begin(), kH200.end()}).is_good());
  const auto check = [&](const AttentionShape& shape, int64_t samples) {
    return AttentionGraphs::of(shape, samples, 90, device).check(nullptr);
  };
  for (const int64_t head : {8, 24, 32, 64, 128, 256}) {
    for (const int64_t context : {2, 100, 1024}) {
      CAPTURE(head);
      CAPTURE(context);
      const Status status = check({.context = context, .heads = 12, .width = 12 * head}, 3);
      if (!status.ok()) FAIL(status.error().message);
    }
  }
  CHECK_FALSE(check({.context = 100, .heads = 3, .width = 3 * 12}, 3).ok());
  CHECK_FALSE(check({.context = 1, .heads = 3, .width = 3 * 16}, 3).ok());
}

}  // namespace
}  // namespace dtrain::engine::cuda
