#include "runner/thread_count.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace dtrain::runner {
namespace {

constexpr std::string_view kBlanks = " \t\n\\";  // a line goes on after a backslash

std::vector<std::string_view> split_words(std::string_view line) {
  std::vector<std::string_view> words;
  size_t at = line.find_first_not_of(kBlanks);
  while (at != std::string_view::npos) {
    const size_t end = line.find_first_of(kBlanks, at);
    words.push_back(line.substr(at, end - at));
    at = line.find_first_not_of(kBlanks, end);
  }
  return words;
}

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

std::string_view base_name(std::string_view path) {
  return path.substr(path.rfind('/') + 1);
}

// 0: it says nothing of that kind, or no number.
long processes_of(std::string_view line, const Seat& seat) {
  const std::vector<std::string_view> words = split_words(line);
  bool is_mpi = false;
  bool is_accelerate = false;
  for (size_t i = 0; i < words.size(); ++i) {
    is_mpi = is_mpi || is_one_of(base_name(words[i]), {"mpirun", "mpiexec", "horovodrun"});
    is_accelerate = is_accelerate || base_name(words[i]) == "accelerate";
    const size_t equals = words[i].find('=');
    const std::string_view name = words[i].substr(0, equals);
    const bool counts = is_one_of(name, {"--nproc-per-node", "--nproc_per_node"}) ||
                        (is_mpi && is_one_of(name, {"-np", "-n", "--np"})) ||
                        (is_accelerate && is_one_of(name, {"--num_processes", "--num-processes"}));
    if (!counts) continue;
    std::string_view value;
    if (equals != std::string_view::npos) {
      value = words[i].substr(equals + 1);
    } else if (i + 1 < words.size()) {
      value = words[i + 1];
    }
    if (is_one_of(value, {"gpu", "auto"})) return static_cast<long>(seat.gpus.size());
    long count = 0;
    std::from_chars(value.data(), value.data() + value.size(), count);
    return count;
  }
  return 0;
}

}  // namespace

long threads_each(const Spec& spec, const Seat& seat) {
  long processes = processes_in(spec, seat);
  const bool is_elsewhere = spec.framework == Framework::Mpi && spec.is_distributed();   // what `run` starts
  if (const RoleSpec* role = spec.role(seat.replica.role); role != nullptr && !is_elsewhere) {
    for (const std::string& line : role->run) {
      processes = std::max(processes, processes_of(line, seat));
    }
  }
  return std::max(1L, std::lround(seat.cpus / static_cast<double>(processes)));
}

}  // namespace dtrain::runner
