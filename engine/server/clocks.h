// How far each worker is, as one server sees it: the gate of bounded staleness.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace dtrain::engine {

// A plain value; knows neither time nor connections.
class Clocks {
 public:
  explicit Clocks(int workers) : workers_(static_cast<size_t>(workers)) {}

  // Clocks only rise.
  void advance(int worker, uint64_t clock);
  // A worker that is gone is waited for by nobody.
  void take_out(int worker) { at(worker).counted = false; }
  // It goes on no further back than the slowest of the others, who would wait for it otherwise.
  void put_back(int worker);

  uint64_t clock(int worker) const { return workers_[static_cast<size_t>(worker)].clock; }
  bool counted(int worker) const { return workers_[static_cast<size_t>(worker)].counted; }
  // Of those counted; the largest number if there are none.
  uint64_t slowest() const;
  bool may_pass(uint64_t clock, uint64_t staleness) const;

 private:
  struct Worker {
    uint64_t clock = 0;
    bool counted = true;
  };
  Worker& at(int worker) { return workers_[static_cast<size_t>(worker)]; }

  std::vector<Worker> workers_;
};

}  // namespace dtrain::engine
