// GPUs as a grid: `model` participants in a row have the parts of one copy of the model, and `data` rows share
// the batch. Participants in order: those of a process, which are close to each other, are in a row first.
#pragma once

#include <vector>

#include "engine/models/model_part.h"
#include "schema/engine_spec.h"

namespace dtrain::engine::cuda {

class DeviceGrid {
 public:
  DeviceGrid(const StrategySpec& strategy, int world)
      : is_pipeline_(strategy.kind == Strategy::Pipeline),
        model_(strategy.kind == Strategy::Mesh                                       ? strategy.mesh_model
               : strategy.kind == Strategy::Pipeline || strategy.kind == Strategy::Tensor ? world
                                                                                     : 1),
        data_(world / model_) {}

  bool is_pipeline() const { return is_pipeline_; }
  int model() const { return model_; }
  int data() const { return data_; }
  int model_of(int participant) const { return participant % model_; }
  int data_of(int participant) const { return participant / model_; }
  int at(int data, int model) const { return data * model_ + model; }

  ModelPart part(int model) const {
    if (is_pipeline_) return {.stage = model, .stages = model_};
    return {.slice = model, .slices = model_};
  }
  std::vector<int> row(int data) const {
    std::vector<int> row;
    for (int model = 0; model < model_; ++model) row.push_back(at(data, model));
    return row;
  }
  std::vector<int> column(int model) const {
    std::vector<int> column;
    for (int data = 0; data < data_; ++data) column.push_back(at(data, model));
    return column;
  }

 private:
  bool is_pipeline_;
  int model_, data_;
};

}  // namespace dtrain::engine::cuda
