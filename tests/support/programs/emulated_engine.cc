// dtrain-engine with GPUs that are emulated: as many as CUDA_VISIBLE_DEVICES names, by their indices.
#include <cstdlib>
#include <sstream>

#include "engine/cuda/gpus.h"
#include "engine/server/grpc/grpc_tunnels.h"
#include "engine/training/replica.h"
#include "tests/support/emulated_cuda/emulator.h"

int main() {
  using namespace dtrain;
  std::vector<int> devices;
  const char* const visible = std::getenv("CUDA_VISIBLE_DEVICES");
  std::istringstream indices(visible == nullptr ? "" : visible);
  for (std::string index; std::getline(indices, index, ',');) devices.push_back(std::stoi(index));
  emulated::set_devices(devices);
  const Status status = engine::run_replica(engine::grpc_tunnels(), &engine::cuda::gpus());
  if (status.ok()) return 0;
  fmt::print(stderr, "dtrain-engine: {}\n", status.error().message);
  return status.error().code == Code::InvalidArgument ? 2 : 1;
}
