// The participants of a split model as a grid: `model` of them in a row have the parts of one copy of
// the model, and `data` rows share the batch. Threads of a process are different rows.
#pragma once

#include <vector>

#include "engine/comm/gang.h"
#include "engine/models/model.h"

namespace dtrain::engine {

class Grid {
 public:
  // `model` consecutive workers are a row; every worker has the same number of threads.
  Grid(const Gang& gang, int model);

  int model() const { return model_; }
  int data() const { return data_; }
  int model_of(int participant) const { return places_[static_cast<size_t>(participant)].model; }
  int data_of(int participant) const { return places_[static_cast<size_t>(participant)].data; }
  int host_of(int participant) const { return places_[static_cast<size_t>(participant)].host; }
  int at(int data, int model) const { return grid_[static_cast<size_t>(data * model_ + model)]; }
  int size() const { return static_cast<int>(places_.size()); }

  std::vector<int> row(int data) const;      // one copy of the model, by part
  std::vector<int> column(int model) const;  // all that have one part, by data
  // The first participant on a host; and whether a part is on it.
  int first_on(int host) const;
  bool is_on(int host, int model) const;

 private:
  struct Seat {
    int model, data, host;
  };
  int model_, data_;
  std::vector<Seat> places_;  // by participant
  std::vector<int> grid_;     // [data][model]
};

// What a participant updates after each step, in the memory of its host.
struct Duty {
  Range range;
  bool counted = true;  // for the norm of the gradient: everything once
};

// Every element that any part on the host holds is a duty of one participant of that host; those with the
// same part share it evenly. `held` is by part.
std::vector<Duty> duties_of(const Grid& grid, int participant, const std::vector<Held>& held);

}  // namespace dtrain::engine
