// The slices of a model's layers, each on a GPU. An error shows in the links' status.
#pragma once

#include "engine/cuda/rank.h"
#include "engine/models/model_part.h"

namespace dtrain::engine::cuda {

template <class T>
class DevicePartners : public Partners<T, float> {
 public:
  explicit DevicePartners(Rank& rank) : rank_(rank) {}

  // Whether it computes without the others, to no end but plans.
  void rehearse(bool rehearses) { rehearses_ = rehearses; }

  void add_up(T* values, int64_t count) override {
    if (!rehearses_) rank_.links().row->all_reduce(rank_.stream(), values, count);
  }
  void gather(const float* mine, float* all, int64_t count) override {
    if (!rehearses_) rank_.links().row->gather(rank_.stream(), mine, all, count);
  }

 private:
  Rank& rank_;
  bool rehearses_ = false;
};

}  // namespace dtrain::engine::cuda
