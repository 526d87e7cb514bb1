#include "runner/numa.h"

#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>

#include "schema/small_file.h"

namespace dtrain::runner {

namespace fs = std::filesystem;

namespace {

constexpr int kUnknown = -1;

bool has_several_nodes(const fs::path& sys) {
  int nodes = 0;
  std::error_code error;
  for (fs::directory_iterator entry(sys / "devices/system/node", error); !error && entry != fs::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename();
    nodes += name.size() > 4 && name.starts_with("node") && std::all_of(name.begin() + 4, name.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
  }
  return nodes > 1;
}

// A domain of four digits, and in lower case.
std::string name_in_sys(std::string_view bus_id) {
  std::string name(bus_id.substr(bus_id.find(':') == 8 ? 4 : 0));
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return name;
}

bool take_number(std::string_view& text, int& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < 0) return false;
  text.remove_prefix(static_cast<size_t>(end - text.data()));
  return true;
}

}  // namespace

int numa_node_of(std::string_view bus_id, const fs::path& sys) {
  if (bus_id.empty() || !has_several_nodes(sys)) return kUnknown;
  const auto text = read_small_file(sys / "bus/pci/devices" / name_in_sys(bus_id) / "numa_node");
  if (!text) return kUnknown;
  int node = kUnknown;
  std::string_view rest(*text);
  return take_number(rest, node) ? node : kUnknown;
}

std::vector<int> listed_processors(std::string_view text) {
  std::vector<int> listed;
  for (;;) {
    int first = 0;
    if (!take_number(text, first)) return listed;
    int last = first;
    if (text.starts_with('-')) {
      text.remove_prefix(1);
      if (!take_number(text, last)) return listed;
    }
    for (int one = first; one <= last && one < CPU_SETSIZE; ++one) listed.push_back(one);
    if (!text.starts_with(',')) return listed;
    text.remove_prefix(1);
  }
}

std::vector<int> processors_of_node(int node, const fs::path& sys) {
  const auto text = read_small_file(sys / "devices/system/node" / fmt::format("node{}", node) / "cpulist");
  std::vector<int> processors = listed_processors(text.value_or(""));
  cpu_set_t usable;
  CPU_ZERO(&usable);
  if (::sched_getaffinity(0, sizeof usable, &usable) != 0) return {};
  std::erase_if(processors, [&](int one) { return !CPU_ISSET(static_cast<size_t>(one), &usable); });
  return processors;
}

std::vector<int> processors_near(const std::vector<int>& nodes, double cpus, const fs::path& sys) {
  if (nodes.empty() || nodes.front() == kUnknown) return {};
  if (std::any_of(nodes.begin(), nodes.end(), [&](int node) { return node != nodes.front(); })) return {};
  std::vector<int> processors = processors_of_node(nodes.front(), sys);
  if (static_cast<double>(processors.size()) < std::ceil(cpus)) processors.clear();
  return processors;
}

}  // namespace dtrain::runner
