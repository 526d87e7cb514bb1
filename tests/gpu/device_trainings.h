// Trainings by a replica on devices or on the CPU, on drawn digits: what the tests of them have in common.
#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "engine/cuda/gpus.h"
#include "engine/data/digits.h"
#include "engine/formats/safetensors.h"
#include "engine/training/replica.h"
#include "tests/gpu/device_array.h"

namespace dtrain::engine {

namespace fs = std::filesystem;
using Json = nlohmann::json;

// A folder with digits, which goes with it.
struct Folder {
  Folder() {
    std::string name = (fs::temp_directory_path() / "dtrain-gpu-XXXXXX").native();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path = name;
    REQUIRE(generate_digits(path, {.train = 300, .test = 60, .seed = 1}).ok());
  }
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
  fs::path path;
};

enum class On { Cpu, Device };

#ifdef DTRAIN_EMULATED_CUDA
inline void have_devices(int count) { emulated::set_device_count(count); }
#endif

inline Json spec_of(const Folder& folder, On on, const Json& changes) {
  Json spec = {{"model", {{"mlp", {{"hidden", {24}}}}}},
               {"data", {{"train", folder.path / "train"}, {"test", folder.path / "test"}}},
               {"batch", 30},
               {"steps", 8},
               {"optimizer", {{"kind", "sgd"}, {"learning-rate", 0.1}, {"momentum", 0.9}}},
               {"deadline", 120}};  // an emulated step takes seconds, with the sanitizers tens of them
  if (on == On::Device) spec["precision"] = "fp32";
  if (changes.contains("model")) spec.erase("model");
  spec.merge_patch(changes);
  return spec;
}

// As the runner starts it: one process, or one of those in `places`.
inline Status train(const Folder& folder, On on, const std::string& output, const Json& changes, const std::string& places = "") {
  ::setenv("DTRAIN_ENGINE", spec_of(folder, on, changes).dump().c_str(), 1);
  ::setenv("OUTPUT_DIR", (folder.path / output).c_str(), 1);
  ::setenv("OMP_NUM_THREADS", "1", 1);
  ::setenv("CUDA_VISIBLE_DEVICES", on == On::Device ? "0,1,2" : "", 1);
  places.empty() ? ::unsetenv("TF_CONFIG") : ::setenv("TF_CONFIG", places.c_str(), 1);
  const Status status = run_replica({}, &cuda::gpus());
  ::unsetenv("TF_CONFIG");
  return status;
}

// All tensors, one after the other.
inline std::vector<float> model_of(const Folder& folder, const std::string& output, const Json& changes = Json::object()) {
  const auto file = SafetensorsFile::open(folder.path / output / "model.safetensors");
  REQUIRE(file.ok());
  const bool has_text = changes.contains("model") && changes["model"].contains("gpt");
  const SampleShape images{.channels = 1, .height = 28, .width = 28, .classes = 10}, text{.context = 6, .vocabulary = 128};
  Json model = changes.contains("model") ? changes["model"] : Json{{"mlp", {{"hidden", {24}}}}};
  const auto spec = engine_spec_from_json(Json{{"model", model}, {"data", {{"train", "x"}}}}.dump());
  REQUIRE(spec.ok());
  std::vector<float> all;
  const Layout layout = layout_of(spec->model, has_text ? text : images);
  for (const Parameter& p : layout.parameters()) {
    std::vector<int64_t> shape = p.shape;
    if (p.transposed) std::swap(shape[0], shape[1]);
    const size_t before = all.size();
    all.resize(before + static_cast<size_t>(p.size()));
    REQUIRE(file->read(p.name, shape, {all.data() + before, static_cast<size_t>(p.size())}).ok());
  }
  return all;
}

inline double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double apart = 0, length = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    apart += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
    length += std::pow(static_cast<double>(a[i]), 2);
  }
  return std::sqrt(apart / length);
}

// Whether there is a device at all.
inline bool has_device() { return cuda::test_context() != nullptr; }

inline const Json kAdam = {{"optimizer", {{"kind", "adamw"}, {"learning-rate", 0.003}, {"weight-decay", 0.1}}}};

}  // namespace dtrain::engine
