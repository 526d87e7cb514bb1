// Which processors are near a GPU: NUMA nodes, as the kernel has them below /sys.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace dtrain::runner {

// Of the device at a bus ID as NVML writes it, "00000000:3B:00.0". -1: the kernel does not say, or has only one node.
int numa_node_of(std::string_view bus_id, const std::filesystem::path& sys = "/sys");

// "0-3,8" as the kernel lists processors; what makes no sense ends it.
std::vector<int> listed_processors(std::string_view text);

// Those of a node that this process may use, in order.
std::vector<int> processors_of_node(int node, const std::filesystem::path& sys = "/sys");

// Where a program with GPUs on these nodes, that asks for so many cpus, is to run: on the processors of the one node they are
// all on, where those are enough. Empty: anywhere.
std::vector<int> processors_near(const std::vector<int>& nodes, double cpus, const std::filesystem::path& sys = "/sys");

}  // namespace dtrain::runner
